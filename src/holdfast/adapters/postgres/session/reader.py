"""
Read a journal: open it, hand over its records, verify it. Every line is verified here before it
counts, and damage seals the session through the lane.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.adapters.files.home.layout import HOME_INSTANCE, HOME_SESSION
from holdfast.adapters.postgres.home.seals import seal_now
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.session.head import head_row, verify_to_head
from holdfast.adapters.postgres.session.journal import PostgresJournal
from holdfast.adapters.postgres.session.stream import load
from holdfast.adapters.postgres.session.tail import (
    Tail,
    broken,
    instance_over,
    mark_of,
    missing,
)
from holdfast.adapters.postgres.session.verification import verify_rows
from holdfast.errors import Refused, Untrusted
from holdfast.ids import SessionId
from holdfast.journal.chain import Keyring
from holdfast.journal.record import Head, Record
from holdfast.journal.verify import Verdict

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore


def open_session(store: "PostgresStore", wire: Wire, session: SessionId) -> PostgresJournal:
    store.refresh(wire)
    created = store.registry.created(session)
    if created is None:
        raise Refused(
            f"there is no session {session}",
            code="unknown",
            hint="`holdfast sessions list` names them",
        )
    keys = Keyring(store.keys, session, created.instance)
    tail = Tail(0, session, created.instance, keys, created.slot)
    # The anchor first: another process of this node moves it with every append.
    reading = store.anchors.read_slots(tail)
    row = head_row(wire, session, created.instance)
    if row is None:
        damage: Untrusted | None = missing(session, 0, 1)
    else:
        tail.journal = row.journal
        damage = verify_to_head(wire, tail, row, first_mac=created.first_mac, reading=reading)
        if damage is None and row.ended:  # only the home's journal ends an instance
            damage = broken(session, tail.head.seq, "its head says that it is over, and it is not")
        with store.tails_guard:
            known = store.tails.get(row.journal)
            if damage is None and known is not None:
                known.adopt(tail.position, ())
                known.epoch = max(known.epoch, tail.epoch)
                tail = known
            else:
                store.tails[row.journal] = tail
    mark = store.seal_mark(session, created.instance)
    if mark is None and (damage is not None or (row is not None and row.sealed)):
        error = damage or broken(session, tail.head.seq, "it was sealed, and not said why")
        sealed_by = store.lane.call(lambda _: seal_now(store, tail, error)).result()
        if isinstance(sealed_by, Refused):
            raise sealed_by  # it was deleted or replaced meanwhile
        mark = store.seal_mark(session, created.instance) or mark_of(error)
    if mark is None:
        store.anchor([tail])
    return PostgresJournal(store, tail, tail.head, mark)


def load_for(
    store: "PostgresStore",
    wire: Wire,
    handle: PostgresJournal,
    fold: Callable[[Record], None],
    *,
    after: int,
) -> Head:
    tail = handle.tail
    if tail.session != HOME_SESSION:
        store.refresh(wire)
    if handle.sealed is not None:
        with contextlib.suppress(Untrusted):
            load(wire, tail, fold, after=after)
        return handle.head
    try:
        position = load(wire, tail, fold, after=after)
    except Untrusted as exc:
        if store.registry.is_over(tail.session, tail.instance):
            raise instance_over(tail) from exc
        error = exc
        found = store.lane.call(lambda _: seal_now(store, tail, error)).result()
        handle.spend(found)
        raise found from exc
    tail.adopt(position, ())
    return position.head


def verify_session(store: "PostgresStore", wire: Wire, session: SessionId) -> Verdict:
    if session == HOME_SESSION:
        tail, instance, first_mac = store.registry.tail, HOME_INSTANCE, None
    else:
        store.refresh(wire)
        created = store.registry.created(session)
        if created is None:
            raise Refused(f"there is no session {session}", code="unknown")
        instance, first_mac = created.instance, created.first_mac
        keys = Keyring(store.keys, session, instance)
        tail = Tail(0, session, instance, keys, created.slot)
    reading = store.anchors.read_slots(tail)  # before the head, which may move on
    return verify_rows(
        wire,
        tail,
        head_row(wire, session, instance),
        sealed=store.seal_mark(session, instance) is not None,
        first_mac=first_mac,
        reading=reading,
    )
