"""
The end of one journal, as this process knows it: shared by all handles on the journal.

The lane moves it, and so does a reader that verified further. Records that were read or written
lately are kept, so that a caller a little behind needs no second read.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.adapters.files.home.layout import HOME_SESSION
from holdfast.adapters.postgres.commit.binary import BIGINT, BYTEA, bigint, bigint_of
from holdfast.adapters.postgres.server import PreparedStatement, Wire
from holdfast.adapters.postgres.session.position import Position
from holdfast.adapters.recent_records import RecentRecords
from holdfast.errors import BrokenChain, CutShort, Refused, Takeover, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring
from holdfast.journal.record import Head, Record
from holdfast.journal.segment import is_own
from holdfast.limits import KIB
from holdfast.ports.journal_store import SealMark

_RECENT_MAX = 256  # records that one journal's handles remember together
_RECENT_BYTES_MAX = 512 * KIB
_PAGE_ROWS = 64  # a record is at most 1 MiB, so a page is bounded


class Tail:
    def __init__(
        self, journal: int, session: SessionId, instance: InstanceId, keys: Keyring, slot: int
    ) -> None:
        self.journal, self.session, self.instance = journal, session, instance
        self.keys, self.slot = keys, slot
        self.guard = threading.RLock()
        self.position = Position(keys, session, instance)
        self.epoch = 0  # the head's: that of the newest claim
        self._recent = RecentRecords(records_max=_RECENT_MAX, bytes_max=_RECENT_BYTES_MAX)

    @property
    def head(self) -> Head:
        return self.position.head

    def adopt(self, position: Position, records: Sequence[Record]) -> None:
        """Move to a position that is durable and verified. Never moves back."""
        with self.guard:
            known_seq = self.position.fence.seq
            if position.fence.seq <= known_seq and known_seq:
                return
            self.position = position
            self.epoch = max(self.epoch, position.fence.epoch)
            if not records:
                self._recent.clear()  # else it would end before the position
            self._recent.add(records)

    def feed(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """
        Verify stored lines, each with its seq, and move over them. Another thread of this process
        may have moved over the first of them since they were read.
        """
        with self.guard:
            position, records = self.position.copy(), []
            for seq, line in rows:
                if seq <= position.head.seq:
                    continue
                record = position.feed(line)
                if record is None:
                    raise taken_over(self.session, position.head.seq)
                records.append(record)
            self.adopt(position, records)

    def catch_up(self, wire: Wire, upto: int) -> None:
        """Read and verify every record up to `upto`, which the head's row names."""
        while self.head.seq < upto:
            rows = wire.rows(
                "select seq, line from hf.record where journal = %s and seq > %s "
                "order by seq limit %s",
                (self.journal, self.head.seq, _PAGE_ROWS),
            )
            if not rows and self.head.seq < upto:
                raise missing(self.session, self.head.seq, upto)
            self.feed(rows)

    def records_after(self, since: Head, read: Callable[[int], list[Record]]) -> list[Record]:
        """Return the callers' records after `since`. `read` reads what is not remembered."""
        with self.guard:  # the position and what is remembered move together
            head = self.head
            recent = self._recent.since(since.seq) if since.seq < head.seq else []
        if since.seq > head.seq:
            raise Refused(
                f"{self.session}: record {since.seq} is not there yet (the head is {head.seq})",
                code="unknown_head",
            )
        if since.seq == head.seq:
            self._check_same(since, head.mac)
            return []
        if recent and recent[0].seq == since.seq:
            self._check_same(since, recent[0].mac)
            return [each for each in recent[1:] if not is_own(each)]
        return read(since.seq)

    def _check_same(self, since: Head, mac: bytes) -> None:
        if since.mac != mac:
            raise Refused(
                f"{self.session}: the given record {since.seq} is not this journal's",
                code="unknown_head",
                hint="reopen it",
            )


_LINES = PreparedStatement(
    "holdfast_lines",
    "select line, seq from hf.record where journal = $1 and seq >= $2 "
    "and seq <= coalesce($3, seq) order by seq limit $4",
    (BIGINT, BIGINT, BIGINT, BIGINT),
)


def lines_from(wire: Wire, journal: int, first: int, upto: int | None = None) -> Iterator[bytes]:
    """Yield the stored lines from record `first` on, page by page."""
    while True:
        rows = wire.ask_rows(
            _LINES, (bigint(journal), bigint(first), bigint(upto), bigint(_PAGE_ROWS))
        )
        for line, _ in rows:
            yield line or b""
        if len(rows) < _PAGE_ROWS:
            return
        first = (bigint_of(rows[-1][1]) or 0) + 1


_IS_HEAD = PreparedStatement(
    "holdfast_is_head",
    "select 1 from hf.head where journal = $1 and seq = $2 and mac = $3 "
    "and not sealed and not ended",
    (BIGINT, BIGINT, BYTEA),
)


def is_head(wire: Wire, tail: Tail, head: Head) -> bool:
    """Whether the journal still ends with this record, and is neither sealed nor over."""
    return bool(wire.ask_rows(_IS_HEAD, (bigint(tail.journal), bigint(head.seq), head.mac)))


def way_on(session: SessionId) -> str:
    if session == HOME_SESSION:
        return (
            "look at it with `holdfast verify`, then restore a backup of the database; or, knowing "
            "what happened, let the schema's owner set sealed = false for _home in the table head"
        )
    return (
        f"look at it with `holdfast verify {session}`, then decide with "
        f"`holdfast sessions unseal {session}`"
    )


def taken_over(session: SessionId, at_seq: int) -> Takeover:
    return Takeover(
        f"{session}: the record after {at_seq} was not written with our key",
        at_seq=at_seq,
        hint=f"nothing was written; {way_on(session)}",
    )


def broken(session: SessionId, at_seq: int, detail: str) -> BrokenChain:
    return BrokenChain(
        f"{session}: {detail}", at_seq=at_seq, hint=f"nothing was written; {way_on(session)}"
    )


def missing(session: SessionId, at_seq: int, acknowledged: int) -> CutShort:
    return CutShort(
        f"{session} ends with record {at_seq}; record {acknowledged} was acknowledged",
        at_seq=at_seq,
        hint=f"nothing was written; {way_on(session)}",
    )


def error_from_mark(session: SessionId, code: str, detail: str, at_seq: int | None) -> Untrusted:
    kind = {"takeover": Takeover, "broken": BrokenChain, "cut_short": CutShort}.get(code, Untrusted)
    return kind(f"{session} is sealed: {detail}", at_seq=at_seq, code=code, hint=way_on(session))


def instance_over(tail: Tail) -> Refused:
    return Refused(
        f"this instance of {tail.session} is over: it was deleted, restored or unsealed",
        code="unknown",
        hint="open it again",
    )


def mark_of(error: Untrusted) -> SealMark:
    return SealMark(error.code, error.message, error.at_seq)
