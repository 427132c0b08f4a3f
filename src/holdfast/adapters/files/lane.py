"""
The lane: where appends to one session in this process queue up, and how those that wait together are committed together.

Whoever finds the lane idle leads: it takes the write lock, brings every waiting handle up to the head, lets each decide in turn, writes and
syncs once, and wakes them all. Followers wait; no lock is held when a call returns. Asynchronous callers lead in a thread of the store's pool.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from holdfast.adapters.files.catch_up import Damaged, catch_up
from holdfast.adapters.files.commit import Batch
from holdfast.adapters.files.keys import no_key
from holdfast.adapters.files.locks import FolderLock
from holdfast.adapters.files.paths import disk_refused
from holdfast.adapters.files.session_files import SessionFiles
from holdfast.errors import Fenced, HoldfastError, InDoubt, InvariantBroken, NotSaved, Untrusted
from holdfast.journal.anchor import Anchor
from holdfast.journal.chain import KeyMissing
from holdfast.journal.record import Head, Record
from holdfast.journal.verify import Damage
from holdfast.ports.journal_store import Appended, Check, Decide, Section

if TYPE_CHECKING:
    from holdfast.adapters.files.journal import FileJournal

_TOGETHER_MAX = 256  # appends in one commit; bounds how long the first waits for the last's decision

deciding = threading.local()


def _nobody_waits() -> None:
    pass


class Request:
    """One append on its way. Filled in by whoever leads."""

    def __init__(self, journal: "FileJournal", decide: Decide, *, since: Head, epoch: int | None, check: Check) -> None:
        self.journal, self.decide, self.since, self.epoch, self.check = journal, decide, since, epoch, check
        self.result: Appended | None = None
        self.error: BaseException | None = None
        self.wake: Callable[[], None] = _nobody_waits
        self.done = False
        # The caller's view of the commit: what was there before it, and how many of the commit's records come with it.
        self.before: list[Record] = []
        self.upto = 0

    def outcome(self) -> Appended:
        if self.error is not None:
            raise self.error
        if self.result is None:
            raise InvariantBroken("an append ended without an outcome")
        return self.result


class LaneHost(Protocol):
    """What a lane needs of its store."""

    writer: str

    def now_ms(self) -> int: ...
    def check_alive(self, journal: "FileJournal") -> None:
        """Raise if the session is sealed, deleted, replaced by another life, or the home can't be written."""
        ...

    def seal(self, journal: "FileJournal", error: Untrusted) -> None: ...
    def is_lost(self, generation: int) -> bool:
        """Is this a key that we should have?"""
        ...

    def run(self, work: Callable[[], None]) -> None:
        """In a thread of the pool, where it may wait."""
        ...

    def run_quick(self, work: Callable[[], None]) -> None:
        """In one of the few threads that commit: it waits for the disk only."""
        ...


class Lane:
    def __init__(self, files: SessionFiles, host: LaneHost) -> None:
        self.files = files
        self._host = host
        self._guard = threading.Lock()
        self._queue: deque[Request] = deque()
        self._led = False
        self._idle = threading.Condition(self._guard)
        # The claim this process holds on the session, if any; compared in every driver's append.
        self.claimed_epoch: Callable[[], int | None] = lambda: None

    def append_now(self, request: Request) -> Appended:
        if getattr(deciding, "now", False):
            raise InvariantBroken("an append inside the decision of another one would wait for itself")
        if self._enqueue(request):
            self._lead(request)
        else:
            request_done = threading.Event()
            request.wake = request_done.set
            if not request.done:
                request_done.wait()
        return request.outcome()

    def append_soon(self, request: Request) -> None:
        """`request.wake` is called when it is done, from another thread."""
        if self._enqueue(request):
            self._host.run_quick(self._lead_at_once)

    def wait_until_idle(self) -> None:
        """Everything that was begun has an outcome."""
        with self._guard:
            while self._led:
                self._idle.wait()

    def _enqueue(self, request: Request) -> bool:
        with self._guard:
            self._queue.append(request)
            leads, self._led = not self._led, True
            return leads

    def _lead_at_once(self) -> None:
        """In one of the few threads that commit for everybody: a lock that would have to be waited for is waited for elsewhere."""
        try:
            lock = self.files.try_acquire()
        except (OSError, HoldfastError):
            lock = None  # whoever takes it the long way meets the same, and tells those who wait
        if lock is None:
            self._host.run(self._lead)
        else:
            self._lead(lock=lock)

    def _lead(self, own: Request | None = None, lock: FolderLock | None = None) -> None:
        while True:
            with self._guard:
                if not self._queue:
                    self._led = False
                    self._idle.notify_all()
                    return
                if own is not None and own.done:
                    break
                requests = [self._queue.popleft() for _ in range(min(len(self._queue), _TOGETHER_MAX))]
            self._commit(requests, lock)
            lock = None
            for request in requests:
                request.done = True
                request.wake()
        # A synchronous caller has its answer; what came meanwhile is led by the pool.
        self._host.run(self._lead)

    def _commit(self, requests: list[Request], lock: FolderLock | None) -> None:
        """Every request has an outcome afterwards, and the lock, given or taken, is free."""
        try:
            lock = lock or self.files.acquire()
            try:
                self._commit_locked(lock.fd, requests)
            finally:
                self.files.rest()
                lock.release()
        except (Damaged, Untrusted) as exc:
            self._seal(requests, exc)
        except KeyMissing as exc:
            if self._host.is_lost(exc.generation):
                self._fail(requests, no_key(str(exc)))
            else:
                self._seal(requests, Damaged(Damage("broken", f"a segment names a key that never was ({exc})", requests[0].journal.head.seq, 1, 0)))
        except BaseException as exc:  # noqa: BLE001  handed to every caller, unchanged
            self._fail(requests, exc)

    def _fail(self, requests: list[Request], error: BaseException) -> None:
        if isinstance(error, OSError):
            error = disk_refused(self.files.session, error)
        for request in requests:
            request.result, request.error = None, error
            if isinstance(error, InDoubt):
                request.journal.spend(error)

    def _seal(self, requests: list[Request], error: Damaged | Untrusted) -> None:
        """The lock is free again: the mark goes to the home's journal, whose lock must never be waited for under a session's."""
        journal = requests[0].journal
        untrusted = error if isinstance(error, Untrusted) else journal.untrusted(error.damage, while_open=True)
        try:
            self._host.seal(journal, untrusted)
        except HoldfastError as exc:
            untrusted.add_note(f"the seal could not be recorded: {exc}")
        for request in requests:
            request.journal.spend(untrusted)
            request.result, request.error = None, untrusted

    def _commit_locked(self, folder: int, requests: list[Request]) -> None:
        self._host.check_alive(requests[0].journal)
        now = self._host.now_ms()
        anchor: Anchor | None = None
        for request in requests:
            request.journal.check_usable()
            caught = catch_up(self.files, folder, request.journal.fence, request.check, writer=self._host.writer, now=now)
            if caught.records:
                request.journal.remember(caught.records)
            anchor = caught.anchor
        if anchor is None:
            return
        first = requests[0].journal
        batch = Batch(self.files, folder, first.fence, anchor, writer=self._host.writer, now=now)
        for request in requests:
            self._decide(batch, request, anchor)
        before = first.fence.head
        batch.flush()
        for request in requests:
            self._acknowledge(batch, request, first, before)

    def _decide(self, batch: Batch, request: Request, anchor: Anchor) -> None:
        deciding.now = True
        try:
            self._check_epoch(request, anchor)
            request.before = request.journal.records_after(request.since)
            suffix = (*request.before, *batch.records)
            batch.add(list(request.decide(Section(suffix, batch.now))), request.epoch)
        except (NotSaved, InDoubt, Damaged):
            raise
        except Exception as exc:  # noqa: BLE001  a caller's own refusal: delivered to it once the commit it was decided in is known
            request.error = disk_refused(self.files.session, exc) if isinstance(exc, OSError) else exc
        finally:
            deciding.now = False
        request.upto = len(batch.records)

    def _check_epoch(self, request: Request, anchor: Anchor) -> None:
        if request.epoch is None:
            return
        if request.epoch != self.claimed_epoch() or request.epoch < anchor.epoch:
            raise Fenced(
                f"{self.files.session}: epoch {request.epoch} does not drive it any more (it is {anchor.epoch})",
                hint="stop this driver; another one goes on",
            )

    def _acknowledge(self, batch: Batch, request: Request, first: "FileJournal", before: Head) -> None:
        journal = request.journal
        if journal is not first and journal.fence.seq < first.fence.seq:
            journal.fence = first.fence.copy()
        journal.remember(batch.records)
        if request.error is not None:
            return
        ours = batch.records[: request.upto]
        # When others' records follow in the same commit, this caller's head is its own last one.
        last = Head(ours[-1].seq, ours[-1].mac) if ours else before
        head = first.fence.head if request.upto == len(batch.records) else last
        request.result = Appended(head, (*request.before, *ours))
