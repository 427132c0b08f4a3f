"""
This process's fold of the home's journal: the existing sessions, the sealed ones, the keys.

Every refresh reads the records after the last one and verifies them. A key beyond the first is
trusted once a record under a trusted key names it, as over files.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from holdfast.adapters.files.home.layout import HOME_INSTANCE, HOME_SESSION
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.session.tail import Tail, broken, lines_from, missing
from holdfast.adapters.session_names import SessionNames
from holdfast.errors import NewerVersion, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring
from holdfast.journal.record import Record, read_unverified
from holdfast.journal.segment import REPAIRED, is_own
from holdfast.session.home.events import (
    HomeState,
    KeyRotated,
    SessionCreated,
    decode_home_event,
)

if TYPE_CHECKING:
    from holdfast.adapters.postgres.home.node_folder import NodeKeys
    from holdfast.adapters.postgres.store import PostgresStore

T = TypeVar("T")

_ROTATED = "key_rotated"


class PostgresRegistry:
    def __init__(self, journal: int, keys: "NodeKeys") -> None:
        self._keys = keys
        self.tail = Tail(
            journal, HOME_SESSION, HOME_INSTANCE, Keyring(keys, HOME_SESSION, HOME_INSTANCE), -1
        )
        self._guard = threading.RLock()
        self._position = self.tail.position.copy()  # up to which the state was folded
        self.state = HomeState()
        self._names = SessionNames()
        # A genuine record that this program can't read: nothing after it is ever folded (D8).
        self._newer: NewerVersion | None = None

    def refresh(self, wire: Wire) -> HomeState:
        """Fold the records that were added since. Raise Untrusted for the home's own journal."""
        with self._guard:
            if self._newer is not None:
                raise self._newer
            known = self.tail.head  # a lane of this process may have written past what is folded
            lines = self._lines_from_last(wire)
            first = next(lines, None)
            if first is None and self._position.head == known:
                return self.state
            position, records = self._position.copy(), []
            for line in itertools.chain(() if first is None else (first,), lines):
                record = position.feed(line)
                if record is None or (record.seq == known.seq and record.mac != known.mac):
                    at_seq = known.seq if record is not None else position.head.seq
                    raise broken(HOME_SESSION, at_seq, f"the record after {at_seq} does not verify")
                self._trust_key(record)
                records.append(record)
            if position.head.seq < known.seq:
                raise missing(HOME_SESSION, position.head.seq, known.seq)
            for record in records:
                self._fold(record)
            self._position = position
            self.tail.adopt(position, records)
            return self.state

    def _lines_from_last(self, wire: Wire) -> Iterator[bytes]:
        """
        The lines after the last one that was folded. It is read again, so that a home whose end was
        cut off is found by each process that knew it, at its next look.
        """
        head = self._position.head
        lines = lines_from(wire, self.tail.journal, max(1, head.seq))
        if head.seq:
            last = next(lines, None)
            if last is None:
                raise missing(HOME_SESSION, head.seq - 1, head.seq)
            stands = read_unverified(last)
            if stands is None or (stands.seq, stands.mac) != head:
                raise broken(HOME_SESSION, head.seq - 1, f"record {head.seq} is another one now")
        return lines

    def _fold(self, record: Record) -> None:
        if record.type != REPAIRED and not is_own(record):
            try:
                event = decode_home_event(record.type, record.version, record.body)
            except NewerVersion as exc:
                self._newer = exc
                raise
            self.state.evolve(event, at=record.at)
            if isinstance(event, SessionCreated):
                self._names.add(event.session)

    def _trust_key(self, record: Record) -> None:
        """Trust a key as soon as its record verifies: the next record may be sealed with it."""
        if record.type == _ROTATED:
            with contextlib.suppress(NewerVersion):  # the fold reports it
                event = decode_home_event(record.type, record.version, record.body)
                if isinstance(event, KeyRotated):
                    self._keys.trust(event.generation, event.key_id)

    def created(self, session: SessionId) -> SessionCreated | None:
        return self.state.sessions.get(session)

    def page(self, after: SessionId | None, limit: int | None) -> Sequence[SessionCreated]:
        """The existing sessions after that name, sorted. A page costs its own length."""
        sessions = self.state.sessions
        found = (sessions.get(name) for name in self._names.page(sessions, after, limit))
        return [created for created in found if created is not None]

    def is_over(self, session: SessionId, instance: InstanceId) -> bool:
        created = self.created(session)
        return session != HOME_SESSION and (created is None or created.instance != instance)


def with_new_keys(store: "PostgresStore", wire: Wire, work: Callable[[], T]) -> T:
    """
    Run work. If it needs a key that this process does not know, read the home, which may name the
    key by now, and run it again: other processes rotate keys and write under them.
    """
    known = len(store.keys)
    try:
        return work()
    except Refused as exc:
        if exc.code != "no_key":
            raise
        store.refresh(wire)
        if len(store.keys) == known:
            raise
    return work()
