"""
Calls that began past the damage of a session that continues without their records. They are
described in words, since nothing there can be folded.

Only records written with the key count. An empty result does not prove that nothing began: the
record right behind the damage cannot be believed.
"""

import contextlib

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import CallId
from holdfast.ports.journal_store import Journal, Record
from holdfast.session.codec import decode
from holdfast.session.events import CallFinished, JobSubmitted, ToolStarted

_LINES_MAX = 20
# All descriptions are one record of the new instance, and go to the model.
_ARGUMENTS_CHARS_MAX = 500
_TYPES = frozenset({"tool_started", "call_finished", "job_submitted"})


async def lost_calls(journal: Journal, *, after: int) -> tuple[str, ...]:
    """
    Return one line for each call without a known end, in a record or in quarantine. Jobs are
    excluded: their own folders describe them.
    """
    started: dict[CallId, tuple[int, ToolStarted]] = {}
    for record in await journal.authentic_after(after):
        match _event(record):
            case ToolStarted() as event:
                started[event.call] = record.seq, event
            case CallFinished(call=call) | JobSubmitted(call=call):
                started.pop(call, None)
            case _:
                pass
    for where in await journal.quarantined() if started else ():
        with contextlib.suppress(HoldfastError):  # an item that we cannot read ends no call
            started.pop(_ended(*await journal.read_quarantined(where)), None)
    lines = [_in_words(seq, event) for seq, event in started.values()]
    return (
        *lines[:_LINES_MAX],
        *([f"{len(lines) - _LINES_MAX} more calls had begun"] if len(lines) > _LINES_MAX else []),
    )


class _Outcome(msgspec.Struct):
    call: CallId = CallId("")


def _ended(kind: str, data: bytes) -> CallId:
    """The call of a quarantined outcome; empty if the item is not an outcome."""
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
        return None  # from a newer program, or malformed: it is left out


def _in_words(seq: int, event: ToolStarted) -> str:
    arguments = (
        event.arguments
        if len(event.arguments) <= _ARGUMENTS_CHARS_MAX
        else f"{event.arguments[:_ARGUMENTS_CHARS_MAX]}..."
    )
    return (
        f"In doubt: {event.tool} {arguments} had begun (record {seq}, past the damage). It may or"
        " may not have happened; check before trying again."
    )
