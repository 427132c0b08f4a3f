"""The calls of a session with their outcomes, from its journal, for the loops that made them."""

from typing import Any

import msgspec

from holdfast.ids import CallId, TurnId
from holdfast.ports.journal_store import Record
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports.types import arguments_of
from holdfast.session.codec import decode
from holdfast.session.events import (
    ApprovalRequested,
    CallAllowed,
    CallFinished,
    CallMade,
    CallsProposed,
    DelegateStarted,
    ModelAnswered,
    ToolStarted,
)

_TYPES = frozenset(
    {
        "approval_requested",
        "call_allowed",
        "call_finished",
        "calls_proposed",
        "delegate_started",
        "model_answered",
        "tool_started",
    }
)


class CallReport(msgspec.Struct, frozen=True, kw_only=True):
    """One call: `id` is the model's or the framework's own. `outcome` is None while it is open."""

    call: CallId
    id: str | None
    turn: TurnId
    tool: str
    arguments: Any
    state: str  # proposed, waiting, allowed, started, finished
    outcome: str | None = None
    text: str = ""
    code: str | None = None


async def calls_of(ledger: Ledger, turn: TurnId | None) -> tuple[CallReport, ...]:
    """Read the whole journal of the session, or the calls of one turn in it, oldest first."""
    found: dict[CallId, CallReport] = {}

    def take(record: Record) -> None:
        if record.type in _TYPES:
            event = decode(record.type, record.version, record.body, seq=record.seq)
            _take(found, event)

    await ledger.journal.load(take)
    return tuple(each for each in found.values() if turn in (None, each.turn))


def _take(found: dict[CallId, CallReport], event: Any) -> None:
    replace = msgspec.structs.replace
    match event:
        case CallsProposed() | ModelAnswered():
            for made in event.calls:
                found[made.call] = _made(event.turn, made)
        case CallAllowed(call=call, arguments=arguments):
            found[call] = replace(found[call], state="allowed", arguments=arguments_of(arguments))
        case ApprovalRequested(call=call, arguments=arguments):
            found[call] = replace(found[call], state="waiting", arguments=arguments_of(arguments))
        case (
            ToolStarted(call=call, arguments=arguments)
            | DelegateStarted(call=call, arguments=arguments)
        ):
            found[call] = replace(found[call], state="started", arguments=arguments_of(arguments))
        case CallFinished(call=call):
            found[call] = replace(
                found[call],
                state="finished",
                outcome=event.outcome,
                text=event.text,
                code=event.code,
            )
        case _:
            pass


def _made(turn: TurnId, made: CallMade) -> CallReport:
    return CallReport(
        call=made.call,
        id=made.provider_id,
        turn=turn,
        tool=made.tool,
        arguments=arguments_of(made.arguments),
        state="proposed",
    )
