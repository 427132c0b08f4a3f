"""One append on its way, and the parts of the store that its commit uses."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from holdfast.adapters.files.commit.sync_thread import Syncable
from holdfast.errors import HoldfastError, InvariantBroken, Untrusted
from holdfast.journal.record import Head, Record
from holdfast.ports.journal_store import Appended, Check, Decide

if TYPE_CHECKING:
    from holdfast.adapters.files.session.journal import FileJournal


def _nobody_waits() -> None:
    pass


class QueuedAppend:
    """One append on its way. The leader of the queue fills it in."""

    __slots__ = (
        "before",
        "check",
        "decide",
        "done",
        "epoch",
        "error",
        "is_settled",
        "journal",
        "result",
        "since",
        "upto",
        "wake",
    )

    def __init__(
        self,
        journal: "FileJournal",
        decide: Decide,
        *,
        since: Head,
        epoch: int | None,
        check: Check,
    ) -> None:
        self.journal, self.decide, self.since = journal, decide, since
        self.epoch, self.check = epoch, check
        self.result: Appended | None = None
        self.error: BaseException | None = None
        self.wake: Callable[[], None] = _nobody_waits
        self.done = False
        # The caller's view of the commit: the records before it, and the number of the commit's
        # records that belong to this caller's result.
        self.before: list[Record] = []
        # Until it has decided, no commit covers it.
        self.upto = sys.maxsize
        # True once every record that the outcome rests on is durable. A later failure of the same
        # commit does not change the outcome any more.
        self.is_settled = False

    def is_usable(self) -> bool:
        """Return False if the handle is spent, which fails its own append only."""
        try:
            self.journal.check_usable()
        except HoldfastError as exc:
            self.error, self.is_settled = exc, True
            return False
        return True

    def fail(self, error: BaseException) -> None:
        """Record the failure of the commit, unless the outcome is durable already."""
        if not self.is_settled:
            self.result, self.error = None, error

    def outcome(self) -> Appended:
        if self.error is not None:
            raise self.error
        if self.result is None:
            raise InvariantBroken("an append ended without an outcome")
        return self.result


class CommitHost(Protocol):
    """The parts of the store that append queues and commits use."""

    writer: str

    def now_ms(self) -> int: ...
    def check_alive(self, journal: "FileJournal", *, at_once: bool = False) -> bool:
        """
        Raise if the session is sealed, deleted or replaced by another instance, or if the home
        can't be written.

        With `at_once`, return False if the home's journal would have to be read first.
        """
        ...

    def seal(self, journal: "FileJournal", error: Untrusted) -> None: ...
    def is_lost(self, generation: int) -> bool:
        """Return True if this key should exist in the home."""
        ...

    def run(self, work: Callable[[], None]) -> None:
        """
        Run `work` in a pool thread, where it may wait. Raise Busy if no thread is available; `work`
        then does not run.
        """
        ...

    def run_quick(self, work: Callable[[], None]) -> None:
        """
        Run `work` in one of the few commit threads, where it may wait for the disk only. Raise Busy
        if no thread is available; `work` then does not run.
        """
        ...

    def sync(self, commit: Syncable) -> bool:
        """
        Give the commit to the thread that writes and acknowledges for all sessions. Return False if
        that thread can't be started; the commit then does not run.
        """
        ...
