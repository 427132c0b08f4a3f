"""
What the home's journal adds up to, as far as the store needs it: which sessions live, which are sealed, whose bytes may be removed.

Read without a lock, up to the home's anchor, a little more each time. Looked at in every append: a session that was sealed, deleted or
given another life by anyone is refused from then on.
"""

import threading
from bisect import bisect_right

from holdfast.adapters.files.catch_up import Damaged
from holdfast.adapters.files.paths import walk
from holdfast.adapters.files.session_files import SessionFiles
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import KeyMissing
from holdfast.journal.fence import Fence
from holdfast.journal.record import Record
from holdfast.journal.segment import REPAIRED, is_own
from holdfast.journal.verify import Damage
from holdfast.session.home_events import HomeState, SessionCreated, SessionDeleted, decode_home_event


class Registry:
    """One process's fold of the home's journal."""

    def __init__(self, files: SessionFiles, fence: Fence) -> None:
        self._files = files
        self._fence = fence
        self._guard = threading.Lock()
        self._seen = b""
        self.state = HomeState()
        # Every life whose bytes are kept, the present one included; a deleted session has none.
        self.lives: dict[SessionId, set[InstanceId]] = {}
        # The living, sorted; None when one came or went since the last list.
        self._names: list[SessionId] | None = None

    def fold(self, record: Record) -> None:
        if record.type == REPAIRED:
            return
        event = decode_home_event(record.type, record.version, record.body)
        self.state.evolve(event, at=record.at)
        match event:
            case SessionCreated(session=session, instance=instance):
                self.lives.setdefault(session, set()).add(instance)
                self._names = None
            case SessionDeleted(session=session):
                self.lives.pop(session, None)
                self._names = None
            case _:
                pass

    def page(self, after: SessionId | None, limit: int | None) -> list[SessionCreated]:
        """The living after that name, sorted. What a page costs does not depend on how many there are, once they are sorted."""
        names, sessions = self._names, self.state.sessions
        if names is None:
            names = sorted(sessions)
            self._names = names
        start = bisect_right(names, after) if after is not None else 0
        return [sessions[name] for name in names[start : None if limit is None else start + limit] if name in sessions]

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
            try:
                self._read_to_anchor()
            except BaseException as exc:
                if not isinstance(exc, Damaged | KeyMissing | OSError):
                    # Ctrl-C or no memory in the middle of it: records may have been read and not folded, so the next look begins anew.
                    self._forget()
                raise
            self._seen = raw

    def _forget(self) -> None:
        self._fence, self._seen, self._names = self._files.fence(), b"", None
        self.state, self.lives = HomeState(), {}

    def _read_to_anchor(self) -> None:
        files, fence = self._files, self._fence
        anchor = files.anchor.read(files.keys)
        if anchor is None:
            files.anchor.refresh()
            anchor = files.anchor.read(files.keys)
        if anchor is None:
            raise Damaged(Damage("cut_short", "its anchor is missing or does not verify", fence.seq, fence.number, fence.offset))
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
            raise Damaged(Damage("broken", f"after record {fence.seq} the line does not verify", fence.seq, fence.number, fence.offset))
