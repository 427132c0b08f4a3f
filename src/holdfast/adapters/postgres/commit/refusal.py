"""The error for each answer of the server that did not keep an append."""

import logging
from typing import TYPE_CHECKING, Any

from holdfast.adapters.postgres.commit.append import Answer, FramedAppend
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.adapters.postgres.session.tail import (
    Tail,
    error_from_mark,
    instance_over,
    missing,
    taken_over,
)
from holdfast.errors import Busy, Fenced, HoldfastError, InDoubt

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

_log = logging.getLogger("holdfast.postgres")

AHEAD_MS = 10_000  # the node's clock may be that far ahead of the server's


def refusal(store: "PostgresStore", item: FramedAppend, answer: Answer) -> HoldfastError:
    """The error for a definite answer that kept nothing. In the lane."""
    tail = item.tail
    match answer.letter:
        case "f":
            return fenced(tail, item.epoch)
        case "x":
            return taken_over(tail.session, item.after.seq)
        case "c":
            return Busy(
                f"this node's clock is more than {AHEAD_MS // 1000} s ahead of the database's",
                code="clock_ahead_of_database",
                hint="set the clock, then try again",
            )
        case "g":
            return instance_over(tail)
        case "s":
            unsaid = "it was sealed, and not said why"
            found = _over_or_sealed(store, tail)
            return found or error_from_mark(tail.session, "broken", unsaid, None)
        case _:
            return Busy(f"{tail.session} is being written by others", hint="try again")


def unclaimed(store: "PostgresStore", tail: Tail, epoch: int) -> HoldfastError:
    """The error for an epoch of which this process holds no claim. In the lane."""
    return _over_or_sealed(store, tail) or fenced(tail, epoch)


def _over_or_sealed(store: "PostgresStore", tail: Tail) -> HoldfastError | None:
    """As the home's journal says it: an end comes before a seal, and both before a fence."""
    store.lane.read(store.refresh)
    if store.registry.is_over(tail.session, tail.instance):
        return instance_over(tail)
    mark = store.seal_mark(tail.session, tail.instance)
    if mark is None:
        return None
    return error_from_mark(tail.session, mark.code, mark.detail, mark.at_seq)


def fenced(tail: Tail, epoch: int) -> Fenced:
    return Fenced(f"epoch {epoch} does not drive {tail.session} any more")


def check_moved(item: FramedAppend, answer: Answer) -> None:
    """The head may only be ahead of ours, on our own chain, with an epoch that never falls."""
    session, seq = item.tail.session, answer.seq or 0
    if seq < item.after.seq or (answer.epoch or 0) < item.position.fence.epoch:
        raise missing(session, seq, item.after.seq)
    if seq == item.after.seq and answer.mac != item.after.mac:
        raise taken_over(session, seq)


def in_doubt(item: FramedAppend, why: str) -> InDoubt:
    return InDoubt(
        f"{len(item.lines)} records of {item.tail.session} may or may not be saved: {why}",
        hint="reopen the session",
    )


def unread(item: FramedAppend, exc: Exception) -> InDoubt:
    _log.error("%s: the server's answer can't be read", item.tail.session, exc_info=exc)
    return in_doubt(item, "the server's answer can't be read")


def not_lost(exc: BaseException) -> Any:
    return Busy(f"the connection was lost: {exc}; try again") if isinstance(exc, Lost) else exc
