"""
The events of a turn in a session of ADK, in whichever service. A run that is taken up again begins
anew and replays, so the events of its earlier attempts are rewound. Calls that an earlier turn left
open get the outcome in the journal.
"""

from collections.abc import Iterable
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, Session
from google.genai import types

import holdfast
from holdfast.integrations.adk.tools import WAITING

MARK = "holdfast_turn"  # in the metadata of each event of a turn
_REPLACED = "Not run: the turn was replaced."


async def prepare(
    service: BaseSessionService, session: Session, home: holdfast.Home, turn: holdfast.ExternalTurn
) -> None:
    """Make the session ready for a run of this turn."""
    mine = [each for each in session.events if _turn_of(each) == turn.turn]
    if mine:
        await _rewind(service, session, mine[-1].invocation_id)
        return
    last = next((each for each in reversed(session.events) if _turn_of(each) is not None), None)
    if last is None:
        return
    events = [each for each in session.events if each.invocation_id == last.invocation_id]
    if not _open_calls(events):
        return
    outcomes = {each.id or "": each.text for each in await home.calls(turn.session)}
    await _rewind(service, session, last.invocation_id)
    for event in _closed(events, outcomes):
        await service.append_event(session, event)


def _turn_of(event: Event) -> str | None:
    return (event.custom_metadata or {}).get(MARK)


async def _rewind(service: BaseSessionService, session: Session, invocation: str) -> None:
    """
    Leave out an invocation and all that came after it. State stays as it is: a tool that is
    replayed writes the same again.
    """
    actions = EventActions(rewind_before_invocation_id=invocation)
    await service.append_event(session, Event(author="user", actions=actions))


def _open_calls(events: Iterable[Event]) -> set[str]:
    made: set[str] = set()
    answered: set[str] = set()
    for event in events:
        made |= {each.id or "" for each in event.get_function_calls()}
        answered |= {
            each.id or "" for each in event.get_function_responses() if not _is_waiting(each)
        }
    return made - answered


def _is_waiting(response: types.FunctionResponse) -> bool:
    return (response.response or {}).get("holdfast") == WAITING["holdfast"]


def _closed(events: list[Event], outcomes: dict[str, str]) -> list[Event]:
    """The same events again, with a response to each call."""
    invocation = f"{events[0].invocation_id}-closed"
    still_open = _open_calls(events)
    found: list[Event] = []
    for event in events:
        copied = event.model_copy(
            deep=True,
            update={"id": Event.new_id(), "invocation_id": invocation, "actions": EventActions()},
        )
        for response in copied.get_function_responses():
            if response.id in still_open:
                response.response = {"error": outcomes.get(response.id, _REPLACED)}
                still_open.discard(response.id)
        found.append(copied)
    calls = [call for event in events for call in event.get_function_calls()]
    parts = [_answer(call, outcomes) for call in calls if call.id in still_open]
    if parts:
        content = types.Content(role="user", parts=parts)
        author = next(each.author for each in events if each.get_function_calls())
        found.append(Event(author=author, invocation_id=invocation, content=content))
    return found


def _answer(call: types.FunctionCall, outcomes: dict[str, str]) -> types.Part:
    response: dict[str, Any] = {"error": outcomes.get(call.id or "", _REPLACED)}
    return types.Part(
        function_response=types.FunctionResponse(id=call.id, name=call.name, response=response)
    )
