"""Seal a session durably, once its records do not verify or are missing. All of it in the lane."""

import contextlib
from typing import TYPE_CHECKING

from holdfast.adapters.files.home.layout import HOME_SESSION
from holdfast.adapters.postgres.home.registry import with_new_keys
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.adapters.postgres.session.stream import load
from holdfast.adapters.postgres.session.tail import Tail, instance_over, mark_of
from holdfast.errors import HoldfastError, Refused, Untrusted
from holdfast.journal.record import Record
from holdfast.session.home.events import SessionSealed

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore


def check_not_over(store: "PostgresStore", tail: Tail) -> None:
    """Raise if the instance has ended. In the lane."""
    store.lane.read(store.refresh)
    if store.registry.is_over(tail.session, tail.instance):
        raise instance_over(tail)


def seal_genuine(store: "PostgresStore", tail: Tail, error: Untrusted) -> None:
    """Seal for a reader who found that genuine records contradict each other. In the lane."""
    check_not_over(store, tail)
    if store.seal_mark(tail.session, tail.instance) is None:
        seal_now(store, tail, error)


def read_or_seal(store: "PostgresStore", wire: Wire, tail: Tail, seq: int) -> list[Record]:
    """Return the verified records after `seq`, up to the tail's head. In the lane."""

    def read() -> list[Record]:
        found: list[Record] = []
        load(wire, tail, found.append, after=seq)
        return found

    try:
        found = with_new_keys(store, wire, read)
    except Untrusted as exc:
        raise seal_now(store, tail, exc) from exc
    return [record for record in found if record.seq <= tail.head.seq]


def seal_now(store: "PostgresStore", tail: Tail, error: Untrusted) -> HoldfastError:
    """
    Seal the session durably and return the error for the caller. In the lane.

    The flag in the head comes first: it stops every writer at once. A crash before the home's
    record leaves a flag without a reason, and the next open records that.
    """
    if tail.session == HOME_SESSION:
        store.home_mark = store.home_mark or mark_of(error)
        with contextlib.suppress(HoldfastError, Lost):
            store.lane.wire().rows("select hf.seal_journal(%s)", (tail.journal,))
        return error
    try:
        check_not_over(store, tail)
    except Refused as over:
        return over
    with contextlib.suppress(Lost):
        store.lane.wire().rows("select hf.seal_journal(%s)", (tail.journal,))
    sealed = SessionSealed(
        session=tail.session,
        instance=tail.instance,
        code=error.code,
        detail=error.message,
        at_seq=error.at_seq,
    )
    with contextlib.suppress(HoldfastError):
        store.commits.append(lambda state: None if tail.session in state.sealed else sealed)
    return error
