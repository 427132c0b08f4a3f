"""
What the home's journal adds up to, as far as the store needs it: which sessions live, which are
sealed, whose bytes may be removed.

Read without a lock, up to the home's anchor, a little more each time. Looked at in every append: a
session that was sealed, deleted or given another life by anyone is refused from then on. An opening
verifies every byte and parses what no snapshot covers; a snapshot is a cache (D9).
"""

import contextlib
import threading
import time
from bisect import bisect_right

from holdfast.adapters.files.paths import READ_ONLY, walk
from holdfast.adapters.files.session.catch_up import Damaged, believable, catch_up, fence_at
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.locks import FolderLock
from holdfast.adapters.files.session.reader import stream
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
    SessionDeleted,
    decode_home_event,
)
from holdfast.session.snapshots.home import decode_home_state, encode_home_state

SNAPSHOT_EVERY = 2000  # records: folding fewer takes less time than anyone notices
_PAUSES_SECONDS = (
    0.001,
    0.004,
    0.016,
    0.064,
    0.256,
)  # for a writer that was stopped in mid write of the home's slot
_SNAPSHOT_SHARE = (
    8  # and an eighth of all: so that what a birth costs does not grow with how many there were
)


class _AnotherPast(Exception):
    """The record that a snapshot says it stands for is not in this journal."""


class Registry:
    """One process's fold of the home's journal."""

    def __init__(self, files: SessionFiles, writer: str) -> None:
        self._files, self._writer = files, writer
        self._guard = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Know of nothing."""
        self._fence = self._files.fence()
        self._seen = b""
        self.state = HomeState()
        # The last record folded; and the one that the snapshot we know of stands for.
        self._last: Head | None = None
        self._kept_seq = 0
        # A genuine record that this program can't read (D8): nothing behind it is folded, however
        # often somebody looks.
        self._newer: NewerVersion | None = None
        # The living, sorted; None when one came or went since the last list.
        self._names: list[SessionId] | None = None

    def load(self, fence: Fence, kept: Snapshot | None) -> None:
        """
        Fold up to a fence behind which every byte was verified just now. What `kept` covers is not
        parsed, if it is of this very journal.
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
        self.state, self._last, self._kept_seq, self._names = state, kept.head, kept.head.seq, None
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
        What is worth keeping, once enough came since the last one that folding it again would be
        felt.
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
            if isinstance(event, SessionCreated | SessionDeleted):
                self._names = None
        self._last = Head(record.seq, record.mac)

    def page(self, after: SessionId | None, limit: int | None) -> list[SessionCreated]:
        """
        The living after that name, sorted. What a page costs does not depend on how many there are,
        once they are sorted.
        """
        names, sessions = self._names, self.state.sessions
        if names is None:
            names = sorted(sessions)
            self._names = names
        start = bisect_right(names, after) if after is not None else 0
        return [
            sessions[name]
            for name in names[start : None if limit is None else start + limit]
            if name in sessions
        ]

    def is_fresh(self) -> bool:
        """Nothing was added since the last look. One small read; waits for nobody."""
        raw = self._files.anchor.read_raw()
        return bool(raw) and raw == self._seen

    def refresh(self) -> None:
        """Fold what was added since the last look. Raises `Damaged` for the home's own journal."""
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
                    # Ctrl-C or no memory in the middle of it: records may have been read and not
                    # folded, so the next look begins anew.
                    self.reset()
                raise
            # A cell that had to be settled is looked at again: only bytes that say all by
            # themselves are known by themselves.
            self._seen = raw if self._files.anchor.was_settled(raw) else b""

    def _settled_anchor(self) -> Anchor:
        """
        The home's head. Slots that do not verify together are judged and written again under the
        home's write lock.

        That lock is never waited for, since the caller may hold a session's: whoever has it writes
        the slot, and a few more looks show that.
        """
        files = self._files
        for pause in _PAUSES_SECONDS:
            anchor = files.anchor.look_twice(files.keys).settled
            if anchor is not None:
                return anchor
            lock = files.try_locked()
            if lock is not None:
                return self._settle(lock)
            time.sleep(pause)
        raise Busy(
            "the home's journal is being written; what was acknowledged last is not known yet",
            hint="try again",
        )

    def _settle(self, lock: FolderLock) -> Anchor:
        """With the home's write lock, which is released afterwards."""
        files, anchor = self._files, None
        try:
            anchor = believable(files.anchor.look(files.keys), self._fence)
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
                data = files.read_segment(folder, fence.number, length)
                fed = fence.feed(data[fence.offset :])
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
