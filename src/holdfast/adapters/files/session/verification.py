"""
`verify` for files: check every record of every segment of one instance and return the verdict.
Nothing changes, not even the seal.

Closed segments never change, so they are walked without a lock. For the last segment the write lock
is taken; otherwise a peer's half-written batch could be judged.
"""

import contextlib
from collections.abc import Callable
from functools import partial

from holdfast.adapters.files.paths import walk as walk_folders
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.errors import Busy, NewerVersion, Refused
from holdfast.ids import SessionId
from holdfast.journal.anchor import CellReading
from holdfast.journal.chain import KeyMissing
from holdfast.journal.verify import SegmentBytes, Verdict, unread, walk


def unreadable(session: SessionId, why: str) -> Verdict:
    return unread(why).of(session, sealed=False)


def verify_files(
    files: SessionFiles,
    *,
    sealed: bool,
    first_mac: str | None,
    is_lost: Callable[[int], bool],
    wait_seconds: float | None = None,
) -> Verdict:
    def read_anchor() -> CellReading:
        found = files.anchor.read_slots(files.keys)
        if found.anchor is None and found.missing is not None and is_lost(found.missing.generation):
            raise found.missing  # any other key never existed, and the slot is not ours
        return found

    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(walk_folders(files.home, *files.parts))
            if not files.keys.newest:
                return unread("no key to verify it with").of(files.session, sealed=sealed)
            found = walk(
                files.fence(),
                _Segments(files, folder, stack, wait_seconds).found,
                read_anchor,
                first_mac=first_mac,
                closing=lambda number: files.verified_closing(folder, number),
                is_lost=is_lost,
            )
    except FileNotFoundError:
        found = unread("its folder is missing", "cut_short")
    except (KeyMissing, NewerVersion, Refused, Busy, OSError) as exc:
        found = unread(str(exc))
    return found.of(files.session, sealed=sealed)


class _Segments:
    """The segments of one walk. The last one is read under the write lock, which `stack` holds."""

    def __init__(
        self,
        files: SessionFiles,
        folder: int,
        stack: contextlib.ExitStack,
        wait_seconds: float | None,
    ) -> None:
        self._files, self._folder, self._stack = files, folder, stack
        self._wait_seconds = wait_seconds
        self._locked = False
        self.found: list[SegmentBytes] = []
        self._find_more()

    def _find_more(self) -> None:
        last = self.found[-1].number if self.found else 0
        self.found.extend(
            SegmentBytes(number, self._files.name(number), partial(self._read, number))
            for number in self._files.numbers(self._folder)
            if number > last
        )

    def _read(self, number: int, offset: int) -> bytes:
        if number == self.found[-1].number and not self._locked:
            self._stack.enter_context(self._files.locked(self._wait_seconds))
            self._locked = True
            # A peer may have added segments since the listing. With the lock held, nobody can add
            # more.
            self._find_more()
        return self._files.read_segment(self._folder, number)[offset:]
