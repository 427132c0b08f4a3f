"""
ADK's store contract over `HoldfastSessionService`; `make test-peers` prints the numbers.

ADK's own suite is in its repository alone, neither in the wheel nor in the source distribution. The
services in the wheel keep its contract, so each behaviour here is asked of ADK's services and of
ours, and must come out the same.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import holdfast
from holdfast.integrations.adk import HoldfastSessionService

Behaviour = Callable[[BaseSessionService], Awaitable[Any]]
ALICE = {"app_name": "app", "user_id": "alice"}
BOB = {"app_name": "app", "user_id": "bob"}


def said(text: str, time: float = 1.0, **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta=delta)
    return Event(author="user", invocation_id="i", content=content, actions=actions, timestamp=time)


def seen(session: Session | None) -> Any:
    """A session without the values that each service makes up."""
    if session is None:
        return None
    events = [each.model_dump(mode="json", exclude={"id"}) for each in session.events]
    return (session.app_name, session.user_id, session.id, dict(session.state), events)


async def unknown_sessions(service: BaseSessionService) -> Any:
    await service.delete_session(**ALICE, session_id="none")
    listed = await service.list_sessions(**ALICE)
    return seen(await service.get_session(**ALICE, session_id="none")), listed.sessions


async def created_and_read(service: BaseSessionService) -> Any:
    made = await service.create_session(**ALICE, session_id="s", state={"k": 1, "temp:t": 2})
    named = await service.create_session(**ALICE)
    again = await service.get_session(**ALICE, session_id="s")
    return seen(made), seen(again), bool(named.id), again is not made


async def created_twice(service: BaseSessionService) -> Any:
    await service.create_session(**ALICE, session_id="s")
    await service.create_session(**BOB, session_id="s")
    try:
        await service.create_session(**ALICE, session_id="s")
    except Exception as exc:  # noqa: BLE001  # its type is compared
        return type(exc).__name__
    return None


async def padded_id(service: BaseSessionService) -> Any:
    made = await service.create_session(**ALICE, session_id="  s  ")
    found = await service.get_session(**ALICE, session_id=" s ")
    await service.delete_session(**ALICE, session_id=" s")
    return made.id, seen(found), seen(await service.get_session(**ALICE, session_id="s"))


async def events_and_state(service: BaseSessionService) -> Any:
    session = await service.create_session(**ALICE, session_id="s", state={"k": "old"})
    delta = {"app:a": 1, "user:u": 2, "temp:t": 3, "k": "new", "more": [1, {"x": None}]}
    await service.append_event(session, said("hello", **delta))
    await service.append_event(session, said("again", time=2.0))
    read = await service.get_session(**ALICE, session_id="s")
    assert read is not None
    return seen(session), seen(read), read.last_update_time


async def shared_state(service: BaseSessionService) -> Any:
    one = await service.create_session(**ALICE, session_id="one", state={"app:a": 0, "user:u": 0})
    await service.append_event(one, said("x", **{"app:a": 1, "user:u": 2, "own": 3}))
    two = await service.create_session(**ALICE, session_id="two")
    other = await service.create_session(**BOB, session_id="three")
    return two.state, other.state, await service.get_user_state(**ALICE)


async def partial_event(service: BaseSessionService) -> Any:
    session = await service.create_session(**ALICE, session_id="s")
    event = said("part", k=1)
    event.partial = True
    await service.append_event(session, event)
    return seen(session), seen(await service.get_session(**ALICE, session_id="s"))


async def whole_event(service: BaseSessionService) -> Any:
    session = await service.create_session(**ALICE, session_id="s")
    call = types.FunctionCall(id="c", name="f", args={"n": [1, 2.5, None, "ü"]})
    parts = [
        types.Part(function_call=call),
        types.Part.from_bytes(data=b"\x00\xff image", mime_type="image/png"),
    ]
    event = Event(
        author="agent",
        invocation_id="i",
        content=types.Content(role="model", parts=parts),
        turn_complete=True,
        long_running_tool_ids={"c"},
        error_code="code",
        error_message="text",
        interrupted=True,
        custom_metadata={"m": {"deep": [1]}},
        branch="a.b",
        timestamp=5.0,
        actions=EventActions(transfer_to_agent="b", escalate=True, artifact_delta={"f": 0}),
    )
    await service.append_event(session, event)
    return seen(await service.get_session(**ALICE, session_id="s"))


async def filtered(service: BaseSessionService) -> Any:
    session = await service.create_session(**ALICE, session_id="s")
    for time in range(1, 6):
        await service.append_event(session, said(str(time), time=float(time)))
    found = []
    for config in (
        GetSessionConfig(num_recent_events=3),
        GetSessionConfig(num_recent_events=0),
        GetSessionConfig(after_timestamp=4.0),
        GetSessionConfig(after_timestamp=50.0),
        GetSessionConfig(num_recent_events=3, after_timestamp=4.0),
    ):
        read = await service.get_session(**ALICE, session_id="s", config=config)
        found.append([each.timestamp for each in read.events] if read is not None else None)
    return found


async def listed_by_time(service: BaseSessionService) -> Any:
    for number, (who, time) in enumerate([(ALICE, 30.0), (BOB, 10.0), (ALICE, 20.0)]):
        session = await service.create_session(**who, session_id=f"s{number}")
        await service.append_event(session, said("x", time=time, k=number))
    everybody = await service.list_sessions(app_name="app")
    hers = await service.list_sessions(**ALICE)
    return [
        [(each.id, each.user_id, each.state, each.events) for each in found.sessions]
        for found in (everybody, hers, await service.list_sessions(app_name="other"))
    ]


async def deleted(service: BaseSessionService) -> Any:
    session = await service.create_session(**ALICE, session_id="s", state={"user:u": 1})
    await service.append_event(session, said("x", k=1))
    await service.delete_session(**ALICE, session_id="s")
    gone = await service.get_session(**ALICE, session_id="s")
    try:
        await service.append_event(session, said("late"))
    except Exception as exc:  # noqa: BLE001  # its type is compared
        late = type(exc).__name__
    else:
        late = "appended"
    anew = await service.create_session(**ALICE, session_id="s")
    return seen(gone), late, seen(anew)


async def removed_key(service: BaseSessionService) -> Any:
    session = await service.create_session(**ALICE, session_id="s", state={"k": 1})
    await service.append_event(session, said("x", k=None))
    return seen(await service.get_session(**ALICE, session_id="s"))


async def strange_names(service: BaseSessionService) -> Any:
    who = {"app_name": "An app: '; DROP --", "user_id": "ü/../x"}
    made = await service.create_session(**who, session_id="any id at all / here")
    await service.append_event(made, said("x", k=1))
    return seen(await service.get_session(**who, session_id="any id at all / here"))


BEHAVIOURS: list[Behaviour] = [
    unknown_sessions,
    created_and_read,
    created_twice,
    padded_id,
    events_and_state,
    shared_state,
    partial_event,
    whole_event,
    filtered,
    listed_by_time,
    deleted,
    removed_key,
    strange_names,
]


@contextlib.asynccontextmanager
async def ours(folder: Path) -> AsyncGenerator[BaseSessionService, None]:
    async with holdfast.open(folder / "home") as home:
        yield HoldfastSessionService(home)


async def outcomes(behaviour: Behaviour, folder: Path) -> dict[str, Any]:
    async with ours(folder) as service:
        found = {"ours": await behaviour(service)}
    found["memory"] = await behaviour(InMemorySessionService())
    found["sqlite"] = await behaviour(SqliteSessionService(str(folder / "adk.db")))
    return found


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.__name__)
def test_a_behaviour_is_that_of_adks_own_services(behaviour: Behaviour, tmp_path: Path) -> None:
    found = asyncio.run(outcomes(behaviour, tmp_path))
    assert found["ours"] in (found["memory"], found["sqlite"]), found
