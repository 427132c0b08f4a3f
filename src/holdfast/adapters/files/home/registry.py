"""
The state of the home's journal that the store needs: the existing sessions, the sealed ones, and
the instances whose bytes may be removed.

The journal is read without a lock, up to the home's anchor, and folded step by step. Every append
checks it: a session that any process sealed, deleted or replaced by another instance is refused
from then on. Opening verifies every byte and parses the records that no snapshot covers; a snapshot
is a cache (D9).
"""

import contextlib
import threading
import time

from holdfast.adapters.files.paths import READ_ONLY, walk
from holdfast.adapters.files.session.catch_up import Damaged, believable, catch_up, fence_at
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.locks import FolderLock
from holdfast.adapters.files.session.reader import stream
from holdfast.adapters.session_names import SessionNames
from holdfast.errors import Busy, NewerVersion
from holdfast.ids import SessionId
from holdfast.journal.anchor import Anchor
from holdfast.journal.chain import KeyMissing
from holdfast.journal.fence import Fence
from holdfast.journal.record import Head, Record
from holdfast.journal.segment import REPAIRED, is_own
from holdfast.journal.verify import Damage
from holdfast.ports.journal_store import Check
from holdfast.ports.snapshots import Snapshot
from holdfast.session.home.events import (
    HomeState,
    SessionCreated,
    decode_home_event,
)
from holdfast.session.snapshots.home import decode_home_state, encode_home_state

SNAPSHOT_EVERY = 2000  # records; folding fewer takes no noticeable time
_PAUSES_SECONDS = (
    0.001,
    0.004,
    0.016,
    0.064,
    0.256,
)  # waits for a writer that was stopped while it wrote the home's slot
_SNAPSHOT_SHARE = (
    # and an eighth of all records, so that the cost of a new session does not grow with their
    # number
    8
)


class _AnotherPast(Exception):
    """This journal does not contain the record that a snapshot names."""


class FileRegistry:
    """One process's fold of the home's journal."""

    def __init__(self, files: SessionFiles, writer: str) -> None:
        self._files, self._writer = files, writer
        self._guard = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._fence = self._files.fence()
        self._seen = b""
        self.state = HomeState()
        # The last folded record, and the record that the known snapshot covers.
        self._last: Head | None = None
        self._kept_seq = 0
        # A genuine record that this program can't read (D8): nothing after it is ever folded.
        self._newer: NewerVersion | None = None
        self._names = SessionNames()

    def load(self, fence: Fence, kept: Snapshot | None) -> None:
        """
        Fold up to a fence behind which every byte was just verified. Records that `kept` covers are
        not parsed, if it is a snapshot of this very journal.
        """
        with self._guard:
            if kept is None or not self._starts_from(kept, fence):
                self.reset()
                stream(self._files, fence, self.fold, after=0)
            self._fence = fence.copy()

    def _starts_from(self, kept: Snapshot, fence: Fence) -> bool:
        state = decode_home_state(kept.data)
        if state is None:
            return False
        self.state, self._last, self._kept_seq = state, kept.head, kept.head.seq
        self._names = SessionNames()
        is_past = False

        def go_on(record: Record) -> None:
            nonlocal is_past
            if is_past:
                self.fold(record)
            elif (record.seq, record.mac) == kept.head:
                is_past = True
            else:
                raise _AnotherPast

        with contextlib.suppress(_AnotherPast):
            stream(self._files, fence, go_on, after=kept.head.seq - 1)
        return is_past

    def snapshot_if_due(self) -> Snapshot | None:
        """
        Return a snapshot if enough records came since the last one to make folding them again
        noticeable.
        """
        with self._guard:
            last = self._last
            if last is None or last.seq - self._kept_seq < max(
                SNAPSHOT_EVERY, self._kept_seq // _SNAPSHOT_SHARE
            ):
                return None
            self._kept_seq = last.seq
            return Snapshot(last, encode_home_state(self.state))

    def fold(self, record: Record) -> None:
        if record.type != REPAIRED:
            try:
                event = decode_home_event(record.type, record.version, record.body)
            except NewerVersion as exc:
                self._newer = exc
                raise
            self.state.evolve(event, at=record.at)
            if isinstance(event, SessionCreated):
                self._names.add(event.session)
        self._last = Head(record.seq, record.mac)

    def page(self, after: SessionId | None, limit: int | None) -> list[SessionCreated]:
        """
        Return the existing sessions after that name, sorted. Once they are sorted, the cost of a
        page does not depend on their number.
        """
        sessions = self.state.sessions
        found = (sessions.get(name) for name in self._names.page(sessions, after, limit))
        return [created for created in found if created is not None]

    def is_fresh(self) -> bool:
        """Return True if nothing was added since the last read. One small read; never waits."""
        raw = self._files.anchor.read_raw()
        return bool(raw) and raw == self._seen

    def refresh(self) -> None:
        """
        Fold the records added since the last read. Raise `Damaged` for the home's own journal.
        """
        raw = self._files.anchor.read_raw()
        if raw == self._seen and raw:
            return
        with self._guard:
            if self._newer is not None:
                raise self._newer
            try:
                self._read_to_anchor()
            except BaseException as exc:
                if not isinstance(exc, Damaged | KeyMissing | NewerVersion | Busy | OSError):
                    # Ctrl-C or no memory in between: records may have been read and not folded, so
                    # the next read starts from the beginning.
                    self.reset()
                raise
            # A cell that had to be settled is read again next time: only bytes that verify by
            # themselves are remembered.
            self._seen = raw if self._files.anchor.was_settled(raw) else b""

    def _settled_anchor(self) -> Anchor:
        """
        Return the home's head. Slots that do not verify together are judged and rewritten under the
        home's write lock.

        That lock is never waited for, because the caller may hold a session's lock. Its holder
        writes the slot, and a few more reads show the result.
        """
        files = self._files
        for pause in _PAUSES_SECONDS:
            anchor = files.anchor.read_slots_twice(files.keys).settled
            if anchor is not None:
                return anchor
            lock = files.try_acquire()
            if lock is not None:
                return self._settle(lock)
            time.sleep(pause)
        raise Busy(
            "the home's journal is being written; its last acknowledged record is not known yet",
            hint="try again",
        )

    def _settle(self, lock: FolderLock) -> Anchor:
        """Settle with the home's write lock held, and release it."""
        files, anchor = self._files, None
        try:
            anchor = believable(files.anchor.read_slots(files.keys), self._fence)
            fence = fence_at(files, lock.fd, anchor)
            return catch_up(
                files, lock.fd, fence, Check.SHORT, writer=self._writer, now=fence.at
            ).anchor
        except OSError as exc:
            if exc.errno not in READ_ONLY or anchor is None:
                raise
            return anchor
        finally:
            lock.release()

    def _read_to_anchor(self) -> None:
        files, fence = self._files, self._fence
        anchor = self._settled_anchor()
        if anchor.seq <= fence.seq:
            return
        with walk(files.home, *files.parts) as folder:
            while fence.seq < anchor.seq:
                is_last = fence.number == anchor.segment
                length = anchor.length if is_last else files.claimed_length(folder, fence.number)
                fed = fence.feed(
                    files.read_segment(folder, fence.number, length, start=fence.offset)
                )
                for record in fed.records:
                    if not is_own(record):
                        self.fold(record)
                if is_last or length is None or fence.offset != length:
                    break
                fence.enter_next()
        if (fence.seq, fence.mac) != (anchor.seq, anchor.mac):
            raise Damaged(
                Damage(
                    "broken",
                    f"after record {fence.seq} the line does not verify",
                    fence.seq,
                    fence.number,
                    fence.offset,
                )
            )
