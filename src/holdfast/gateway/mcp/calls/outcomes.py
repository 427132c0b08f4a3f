"""
The outcome of a call that a client asks for later, by the id of its prompt or of the call itself.

Only the person who asked for the call finds it, with any of their clients whose tokens read in the
same reader set. For everybody else it does not exist.
"""

from typing import NamedTuple

import msgspec

from holdfast.gateway.mcp.clients import is_session_of
from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import CallId, SessionId, TurnId
from holdfast.ports.journal_store import Record
from holdfast.runtime.external_loop.blobs import unpack
from holdfast.runtime.external_loop.gate import Gate, GateState
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.service import Service
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.restore import restore
from holdfast.session.codec import decode
from holdfast.session.events import (
    ApprovalRequested,
    CallFinished,
    CallsProposed,
    InputAccepted,
    ToolStarted,
)

_TYPES = ("input_accepted", "calls_proposed", "approval_requested", "tool_started", "call_finished")


class KeptCall(msgspec.Struct, kw_only=True):
    """The records of one call."""

    turn: TurnId
    owner: tuple[str | None, str | None]  # the person, and the reader set of the request
    tool: str = ""
    call: str = ""
    approvals: tuple[str, ...] = ()
    is_started: bool = False
    finished: CallFinished | None = None


class FoundCall(NamedTuple):
    session: SessionId
    turn: TurnId
    gate: Gate


async def find_outcome(service: Service, bearer: Bearer, name: str) -> FoundCall | None:
    """Find a call of this token's person and reader set by id, with its gate as it stands."""
    owner = (bearer.person, bearer.boundary)
    for session, _, _ in await service.live.heads():
        if not is_session_of(session, bearer):
            continue
        async with service.live.use(session) as ledger:
            await ledger.catch_up_if_behind()
            for kept in (await _kept(ledger)).values():
                if kept.owner == owner and name in (kept.call, *kept.approvals):
                    return FoundCall(session, kept.turn, await _gate(ledger, kept))
    return None


async def outcome_of_turn(service: Service, session: SessionId, turn: TurnId) -> Gate:
    async with service.live.use(session) as ledger:
        return await _gate(ledger, (await _kept(ledger))[turn])


async def _kept(ledger: Ledger) -> dict[TurnId, KeptCall]:
    found: dict[TurnId, KeptCall] = {}

    def take(record: Record) -> None:
        if record.type not in _TYPES:
            return
        event = decode(record.type, record.version, record.body, seq=record.seq)
        match event:
            case InputAccepted(turn=turn):
                found[turn] = KeptCall(turn=turn, owner=_owner(ledger, event))
            case CallsProposed(turn=turn, calls=calls) if calls and turn in found:
                found[turn].tool, found[turn].call = calls[0].tool, calls[0].call
            case ApprovalRequested(turn=turn, approval=approval) if turn in found:
                found[turn].approvals = (*found[turn].approvals, approval)
            case ToolStarted(turn=turn) if turn in found:
                found[turn].is_started = True
            case CallFinished(turn=turn) if turn in found:
                found[turn].finished = event
            case _:
                pass

    await ledger.journal.load(take)
    return found


def _owner(ledger: Ledger, event: InputAccepted) -> tuple[str | None, str | None]:
    context = restore(event.context, session=ledger.session, instance=ledger.instance)
    return context.requester, context.boundary if isinstance(context, TurnContext) else None


async def _gate(ledger: Ledger, kept: KeptCall) -> Gate:
    call, finished = CallId(kept.call), kept.finished
    if finished is None:
        state: GateState = "started" if kept.is_started else "waiting"
        return Gate(call=call, id=None, tool=kept.tool, state=state)
    return Gate(
        call=call,
        id=None,
        tool=kept.tool,
        state="closed",
        outcome=finished.outcome,
        text=finished.text,
        code=finished.code,
        result=None if finished.result is None else await unpack(ledger, finished.result),
    )
