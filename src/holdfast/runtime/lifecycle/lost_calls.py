"""
Calls that began past the damage of a session that goes on without their records: told in words,
since nothing there can be folded.

Only what somebody with the key wrote is told. That nothing is told does not say that nothing began:
what stood right behind the damage can't be believed.
"""

import contextlib

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import CallId
from holdfast.ports.journal_store import Journal, Record
from holdfast.session.codec import decode
from holdfast.session.events import CallFinished, JobSubmitted, ToolStarted

_TOLD_MAX = 20
_ARGUMENTS_CHARS_MAX = 500  # what is told is one record of the new life, and goes to the model
_TYPES = frozenset({"tool_started", "call_finished", "job_submitted"})


async def lost_calls(journal: Journal, *, after: int) -> tuple[str, ...]:
    """
    One line for each that is not known to have ended, by its record or in quarantine. Jobs are not
    among them: their own folders tell of them.
    """
    started: dict[CallId, tuple[int, ToolStarted]] = {}
    for record in await journal.beyond(after):
        match _event(record):
            case ToolStarted() as event:
                started[event.call] = record.seq, event
            case CallFinished(call=call) | JobSubmitted(call=call):
                started.pop(call, None)
            case _:
                pass
    for where in await journal.quarantined() if started else ():
        with contextlib.suppress(HoldfastError):  # what is not ours to read ended nothing
            started.pop(_ended(*await journal.read_quarantined(where)), None)
    told = [_in_words(seq, event) for seq, event in started.values()]
    return (
        *told[:_TOLD_MAX],
        *([f"{len(told) - _TOLD_MAX} more calls had begun"] if len(told) > _TOLD_MAX else []),
    )


class _Outcome(msgspec.Struct):
    call: CallId = CallId("")


def _ended(kind: str, data: bytes) -> CallId:
    """Whose outcome it is that could not be journalled any more; nobody's, if it is none."""
    try:
        return (
            msgspec.json.decode(data, type=_Outcome).call if kind == "tool_outcome" else CallId("")
        )
    except (ValueError, RecursionError):
        return CallId("")


def _event(record: Record) -> object:
    try:
        return (
            decode(record.type, record.version, record.body, seq=record.seq)
            if record.type in _TYPES
            else None
        )
    except HoldfastError:
        return None  # of a newer program, or not what it says it is: nothing is told of it


def _in_words(seq: int, event: ToolStarted) -> str:
    arguments = (
        event.arguments
        if len(event.arguments) <= _ARGUMENTS_CHARS_MAX
        else f"{event.arguments[:_ARGUMENTS_CHARS_MAX]}..."
    )
    return f"In doubt: {event.tool} {arguments} had begun (record {seq}, past the damage). It may or may not have happened; check before trying again."
