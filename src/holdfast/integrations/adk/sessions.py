"""
ADK's sessions in the journal: events have the mac, the fence and the backup of everything else, and
an event that holds a known secret is refused.

A session whose id is a name of Holdfast lies in that session, and any other in one of its own. The
list of sessions, and the state of an app and its users, lie in a session of the app. Deleting adds
records; the journal keeps both.
"""

import asyncio
import json
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from pydantic_core import to_jsonable_python

import holdfast
from holdfast.integrations.adk.steps import ADAPTER
from holdfast.integrations.session_names import session_named

_Place = tuple[str, str, str]  # app, user, session


class HoldfastSessionService(BaseSessionService):
    """Keeps the sessions of any number of apps and users in one home."""

    def __init__(self, home: holdfast.Home) -> None:
        self._home = home
        self._opened: dict[str, holdfast.Items] = {}
        # Looking for an event and adding it is one step.
        self._appending = asyncio.Lock()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        place = (app_name, user_id, (session_id or "").strip() or platform_uuid.new_uuid())
        items = self._of_session(place)
        if await items.list(_key("session", *place)):
            raise AlreadyExistsError(f"Session with id {place[2]} already exists.")
        shared, own = _split(state or {})
        made = {"state": own, "time": platform_time.get_time()}
        # A crash in between leaves a name in the list, which is passed over.
        await self._of_app(app_name).add_all(
            [(_key("listed", *place), "{}"), *_shared_items(place, shared)]
        )
        await items.add(_written(made), key=_key("session", *place))
        found = await self._read(place)
        if found is None:
            raise SessionNotFoundError(f"Session {place[2]} not found.")
        return found

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        found = await self._read((app_name, user_id, session_id.strip()))
        if found is None or config is None:
            return found
        if config.num_recent_events is not None:
            most = config.num_recent_events
            found.events = found.events[-most:] if most else []
        if config.after_timestamp is not None:
            late = config.after_timestamp
            before = [n for n, each in enumerate(found.events) if each.timestamp < late]
            found.events = found.events[before[-1] + 1 :] if before else found.events
        return found

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        found: list[Session] = []
        for _, key in await self._of_app(app_name).keys():
            parts = json.loads(key)
            if parts[0] == "listed" and user_id in (None, parts[2]):
                session = await self._read((parts[1], parts[2], parts[3]))
                if session is not None:
                    session.events = []
                    found.append(session)
        found.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        place = (app_name, user_id, session_id.strip())
        items, listed = self._of_session(place), self._of_app(app_name)
        await items.remove([seq for seq, key in await items.keys() if _is_of(key, place)])
        mine = _key("listed", *place)
        await listed.remove([seq for seq, key in await listed.keys() if key == mine])

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return (await self._shared_state(app_name, user_id))[1]

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        place = (session.app_name, session.user_id, session.id)
        items = self._of_session(place)
        key = _key("event", *place, event.id)
        async with self._appending:
            if not await items.list(_key("session", *place)):
                raise SessionNotFoundError(f"Session {session.id} not found.")
            kept = [Event.model_validate_json(each.blob) for each in await items.list(key)]
            if any(each == event for each in kept):
                return event  # delivered again
            await super().append_event(session, event)
            shared, _ = _split(event.actions.state_delta)
            if any(shared.values()):
                # A crash in between leaves the state of an event that a replay appends again.
                await self._of_app(session.app_name).add_all(_shared_items(place, shared))
            await items.add(event.model_dump_json(exclude_none=True), key=key)
        session.last_update_time = event.timestamp
        return event

    async def _read(self, place: _Place) -> Session | None:
        mine = [each for each in await self._of_session(place).list() if _is_of(each.key, place)]
        made = next((each for each in mine if json.loads(each.key)[0] == "session"), None)
        if made is None:
            return None
        begun = json.loads(made.blob)
        app, user, session_id = place
        events = [
            Event.model_validate_json(each.blob)
            for each in mine
            if json.loads(each.key)[0] == "event"
        ]
        state = dict(begun["state"])
        for event in events:
            state.update(_split(event.actions.state_delta)[1])
        app_state, user_state = await self._shared_state(app, user)
        state.update({State.APP_PREFIX + key: value for key, value in app_state.items()})
        state.update({State.USER_PREFIX + key: value for key, value in user_state.items()})
        time = events[-1].timestamp if events else begun["time"]
        return Session(
            id=session_id,
            app_name=app,
            user_id=user,
            state=state,
            events=events,
            last_update_time=time,
        )

    async def _shared_state(self, app: str, user: str) -> tuple[dict[str, Any], dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {_key("app", app): {}, _key("user", app, user): {}}
        for each in await self._of_app(app).list():
            if each.key in found:
                found[each.key].update(json.loads(each.blob))
        return found[_key("app", app)], found[_key("user", app, user)]

    def _of_session(self, place: _Place) -> holdfast.Items:
        return self._items(session_named(place[2], family="adk-sessions"))

    def _of_app(self, app: str) -> holdfast.Items:
        return self._items(session_named(f"adk-apps/{app}", family="adk-apps"))

    def _items(self, name: str) -> holdfast.Items:
        if name not in self._opened:
            self._opened[name] = self._home.items(name, adapter=ADAPTER)
        return self._opened[name]


def _split(state: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The state of the app and of the user, by their own keys, and the state of the session."""
    shared: dict[str, dict[str, Any]] = {"app": {}, "user": {}}
    own: dict[str, Any] = {}
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            shared["app"][key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            shared["user"][key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return shared, own


def _shared_items(place: _Place, shared: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    keys = {"app": _key("app", place[0]), "user": _key("user", place[0], place[1])}
    return [(keys[scope], _written(values)) for scope, values in shared.items() if values]


def _written(value: Any) -> str:
    return json.dumps(to_jsonable_python(value))


def _key(*parts: str) -> str:
    return json.dumps(parts)


def _is_of(key: str, place: _Place) -> bool:
    parts: list[str] = json.loads(key)
    return parts[1:4] == list(place)
