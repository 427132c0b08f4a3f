"""
Queue the appends of one process to one session, and commit waiting appends together.

The first request in an idle queue leads. The leader takes the write lock, brings every waiting
handle to the head, lets each request decide in turn, writes and syncs once, and wakes all callers.
The other callers wait. No lock is held when a call returns. An asynchronous caller leads in a
thread of the store's pool.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.adapters.files.commit.commit import Batch
from holdfast.adapters.files.commit.fast_append import FastAppend, deciding
from holdfast.adapters.files.commit.sync_thread import Syncable
from holdfast.adapters.files.home.keys import no_key
from holdfast.adapters.files.paths import disk_refused
from holdfast.adapters.files.session.catch_up import Damaged, catch_up
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.locks import FolderLock, keeps_too_many
from holdfast.errors import (
    Busy,
    Fenced,
    HoldfastError,
    InDoubt,
    InvariantBroken,
    NotSaved,
    Untrusted,
)
from holdfast.journal.anchor import Anchor
from holdfast.journal.chain import KeyMissing
from holdfast.journal.record import Head, Record
from holdfast.journal.verify import Damage
from holdfast.ports.journal_store import Appended, Check, Decide, Section

if TYPE_CHECKING:
    from holdfast.adapters.files.session.journal import FileJournal

_TOGETHER_MAX = (
    256  # appends in one commit; bounds how long the first waits for the last's decision
)


def _nobody_waits() -> None:
    pass


class Request:
    """One append on its way. The leader fills it in."""

    __slots__ = (
        "before",
        "check",
        "decide",
        "done",
        "epoch",
        "error",
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
        self.journal, self.decide, self.since, self.epoch, self.check = (
            journal,
            decide,
            since,
            epoch,
            check,
        )
        self.result: Appended | None = None
        self.error: BaseException | None = None
        self.wake: Callable[[], None] = _nobody_waits
        self.done = False
        # The caller's view of the commit: the records before it, and the number of the commit's
        # records that belong to this caller's result.
        self.before: list[Record] = []
        self.upto = 0

    def outcome(self) -> Appended:
        if self.error is not None:
            raise self.error
        if self.result is None:
            raise InvariantBroken("an append ended without an outcome")
        return self.result


class LaneHost(Protocol):
    """The parts of the store that an append queue uses."""

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

    def sync(self, commit: Syncable) -> bool:
        """
        Give the commit to the thread that writes and acknowledges for all sessions. Return False if
        that thread can't be started; the commit then does not run.
        """
        ...

    def run_quick(self, work: Callable[[], None]) -> None:
        """
        Run `work` in one of the few commit threads, where it may wait for the disk only. Raise Busy
        if no thread is available; `work` then does not run.
        """
        ...


class PendingAppend:
    """An append of an asynchronous caller, decided and waiting for the disk. See `Syncable`."""

    __slots__ = ("_alone", "_lane", "_request", "_taken")

    def __init__(self, lane: "AppendQueue", request: Request, alone: FastAppend) -> None:
        self._lane, self._request, self._alone = lane, request, alone
        self._taken = threading.Lock()

    def withdraw(self) -> bool:
        """Return False if it is too late: another thread is already writing it."""
        return self._taken.acquire(blocking=False)

    def write(self) -> int | None:
        if not self._taken.acquire(blocking=False):
            return None
        self._lane.take_over(self._alone.lock)
        try:
            if self._alone.write():
                return self._alone.fd
            failure = None
        except OSError as exc:
            failure = exc
        self._mend(failure)
        return None

    def end(self, failure: OSError | None) -> None:
        if failure is None and self._alone.has_landed():
            self._lane.complete(self._request, self._alone.lock, self._alone.acknowledge)
        else:
            self._mend(failure)

    def _mend(self, failure: OSError | None) -> None:
        """Repair in a thread that may wait: a repair takes several writes, and perhaps a seal."""

        def work() -> None:
            self._alone.mend(failure)
            self._alone.acknowledge()

        def complete() -> None:
            self._lane.complete(self._request, self._alone.lock, work)

        try:
            self._lane.host.run(complete)
        except Busy:
            complete()  # no other thread is available, and the lock is held


class AppendQueue:
    def __init__(self, files: SessionFiles, host: LaneHost) -> None:
        self.files = files
        self.host = host
        self._guard = threading.Lock()
        self._queue: deque[Request] = deque()
        self._led = False
        self._idle = threading.Condition(self._guard)
        self._is_awaited = 0
        # The claim that this process holds on the session, if any. Every append of a driver
        # compares it.
        self.claimed_epoch: Callable[[], int | None] = lambda: None

    def append_now(self, request: Request) -> Appended:
        if deciding.now:
            raise InvariantBroken(
                "an append inside the decision of another one would wait for itself"
            )
        with self._guard:
            leads, self._led = not self._led, True
            if not leads:
                self._queue.append(request)
        if leads:
            try:
                self._commit([request], self._try_lock())
            except BaseException:  # Ctrl-C between two steps; all other errors go to the request
                self.files.release_if_ours()
                raise
            finally:
                # The caller has its result. A pool thread leads the requests that came meanwhile.
                # Nothing is called here in which Ctrl-C could arrive before the queue is free.
                with self._guard:
                    self._led = others = bool(self._queue)
                    if self._is_awaited and not others:
                        self._idle.notify_all()
                if others:
                    self._hand_on(self.host.run, self._lead)
        else:
            request_done = threading.Event()
            request.wake = request_done.set
            if not request.done:
                request_done.wait()
        return request.outcome()

    def _rest(self) -> None:
        """Mark the queue as idle. The caller holds the guard."""
        self._led = False
        if self._is_awaited:
            self._idle.notify_all()

    def append_soon(self, request: Request) -> None:
        """
        Start an append; `request.wake` is called when it is done.

        Decide it in this thread if no lock has to be waited for. Another thread waits for the disk.
        """
        if not self._enqueue(request):
            return
        soon: PendingAppend | None = None
        try:
            alone = self._begin_here(request)
            if alone is not None and alone.owes_a_sync:
                soon = PendingAppend(self, request, alone)
                if not self.host.sync(soon):
                    self.files.release_if_ours()
                    alone = soon = None  # start again in another thread
        except BaseException:
            # A queued request is completed even if its caller is interrupted: by the thread that
            # already has it, or else by a new leader.
            if soon is None or soon.withdraw():
                self.files.release_if_ours()
                self._hand_on(self.host.run_quick, self._lead_at_once)
            raise
        if alone is None:
            self._hand_on(self.host.run_quick, self._lead_at_once)
        elif soon is None:
            self.take_over(alone.lock)
            self.complete(request, alone.lock, alone.acknowledge)

    def _begin_here(self, request: Request) -> FastAppend | None:
        """
        Return None to commit in another thread instead; an error met here is met and reported
        there.
        """
        lock = None if keeps_too_many() else self._try_lock()
        if lock is None:
            return None
        alone: FastAppend | None = None
        try:
            alone = FastAppend.begin(self, request, lock, at_once=True)
        except Exception:  # noqa: BLE001  the other thread meets and reports it
            return None
        finally:
            if alone is None:
                lock.release()
        return alone

    def take_over(self, lock: FolderLock) -> None:
        """
        Continue a begun request in this thread. The request leads, so it is the first in the queue.
        """
        with self._guard:
            self._queue.popleft()
        lock.hand_over()

    def complete(self, request: Request, lock: FolderLock, work: Callable[[], None]) -> None:
        """Finish an append that was begun here, then let another thread lead."""
        self._end([request], lock, work)
        request.done = True
        request.wake()
        with self._guard:
            if not self._queue:
                return self._rest()
        return self._hand_on(self.host.run_quick, self._lead_at_once)

    def wait_until_idle(self) -> None:
        """Wait until every append that was begun has an outcome."""
        with self._guard:
            self._is_awaited += 1
            while self._led:
                self._idle.wait()
            self._is_awaited -= 1

    def _enqueue(self, request: Request) -> bool:
        with self._guard:
            self._queue.append(request)
            leads, self._led = not self._led, True
            return leads

    def _try_lock(self) -> FolderLock | None:
        """
        Try the lock without waiting. After an error here, the thread that waits for the lock meets
        the same error and reports it to the waiting callers.
        """
        try:
            return self.files.try_acquire()
        except (OSError, HoldfastError):
            return None

    def _hand_on(self, run: Callable[[Callable[[], None]], None], lead: Callable[[], None]) -> None:
        """
        Hand leadership to another thread. If no thread can be started, fail every queued append
        with Busy; nothing was written.
        """
        try:
            run(lead)
        except Busy as exc:
            with self._guard:
                waiting = list(self._queue)
                self._queue.clear()
                self._rest()
            self._fail(waiting, exc)
            for request in waiting:
                request.done = True
                request.wake()

    def _lead_at_once(self) -> None:
        """
        Lead in one of the few commit threads. If the lock is not free, wait for it in another
        thread.
        """
        lock = self._try_lock()
        if lock is None:
            self._hand_on(self.host.run, self._lead)
        else:
            self._lead(lock)

    def _lead(self, lock: FolderLock | None = None) -> None:
        while True:
            with self._guard:
                if not self._queue:
                    return self._rest()
                requests = [
                    self._queue.popleft() for _ in range(min(len(self._queue), _TOGETHER_MAX))
                ]
            self._commit(requests, lock)
            lock = None
            for request in requests:
                request.done = True
                request.wake()

    def _commit(self, requests: list[Request], lock: FolderLock | None) -> None:
        """Give every request an outcome. The lock, given or taken here, is free afterwards."""
        try:
            lock = lock or self.files.acquire()
        except BaseException as exc:  # noqa: BLE001  handed to every caller, unchanged
            self._fail(requests, exc)
        else:
            self._end(requests, lock, partial(self._commit_locked, lock, requests))

    def _end(self, requests: list[Request], lock: FolderLock, work: Callable[[], None]) -> None:
        """Do the work with the lock held, release the lock, and give every request its outcome."""
        try:
            try:
                work()
                self.files.rest()
            finally:
                lock.release()
        except (Damaged, Untrusted) as exc:
            self._seal(requests, exc)
        except KeyMissing as exc:
            if self.host.is_lost(exc.generation):
                self._fail(requests, no_key(str(exc)))
            else:
                self._seal(
                    requests,
                    Damaged(
                        Damage(
                            "broken",
                            f"a segment names a key that never was ({exc})",
                            requests[0].journal.head.seq,
                            1,
                            0,
                        )
                    ),
                )
        except BaseException as exc:  # noqa: BLE001  handed to every caller, unchanged
            self._fail(requests, exc)
        else:
            self._refill_reserve()

    def _refill_reserve(self) -> None:
        """
        Refill the reserve after a successful commit, in another thread. If no thread is available,
        the next commit tries again.
        """
        if self.files.reserve.is_spent:
            with suppress(Busy):
                self.host.run(self.files.reserve.refill_if_spent)

    def _fail(self, requests: list[Request], error: BaseException) -> None:
        if isinstance(error, OSError):
            error = disk_refused(self.files.session, error)
        doubt = error if isinstance(error, InDoubt) else None
        if not isinstance(error, HoldfastError | OSError):
            # Ctrl-C or no memory in the committing thread: its fence may have moved by any
            # distance. The next append must not report that difference as a takeover, so the handle
            # is in doubt.
            doubt = InDoubt(
                f"{self.files.session}: a commit was interrupted",
                hint="reopen: what is found then is the truth",
            )
            self.files.release_if_ours()
        for request in requests:
            request.result, request.error = None, error
            if doubt is not None:
                request.journal.spend(doubt)

    def _seal(self, requests: list[Request], error: Damaged | Untrusted) -> None:
        """
        Record the seal after the lock is released. The seal mark goes to the home's journal, and
        nobody may wait for the home's lock while holding a session's lock.
        """
        journal = requests[0].journal
        untrusted = (
            error
            if isinstance(error, Untrusted)
            else journal.untrusted(error.damage, while_open=True)
        )
        # First give every append its outcome and spend every handle: sealing may fail.
        for request in requests:
            request.journal.spend(untrusted)
            request.result, request.error = None, untrusted
        try:
            self.host.seal(journal, untrusted)
        except Exception as exc:  # noqa: BLE001  reported; the next opener seals
            untrusted.add_note(f"the seal could not be recorded: {exc}")

    def _commit_locked(self, lock: FolderLock, requests: list[Request]) -> None:
        if len(requests) == 1:
            alone = FastAppend.begin(self, requests[0], lock, at_once=False)
            if alone is not None:
                return alone.complete()
        return self._commit_together(lock.fd, requests)

    def _commit_together(self, folder: int, requests: list[Request]) -> None:
        requests = [request for request in requests if self._is_usable(request)]
        if not requests:
            return
        self.host.check_alive(requests[0].journal)
        now = self.host.now_ms()
        anchor: Anchor | None = None
        for request in requests:
            caught = catch_up(
                self.files,
                folder,
                request.journal.fence,
                request.check,
                writer=self.host.writer,
                now=now,
            )
            if caught.records:
                request.journal.remember(caught.records)
            anchor = caught.anchor
        if anchor is None:
            raise InvariantBroken("a journal was caught up with, and has no anchor")
        first = requests[0].journal
        batch = Batch(self.files, folder, first.fence, anchor, writer=self.host.writer, now=now)
        for request in requests:
            self._decide(batch, request, anchor)
        before = first.fence.head
        batch.flush()
        for request in requests:
            self._acknowledge(batch, request, first, before)

    def _is_usable(self, request: Request) -> bool:
        """A spent handle fails its own append only."""
        try:
            request.journal.check_usable()
        except HoldfastError as exc:
            request.error = exc
            return False
        return True

    def _decide(self, batch: Batch, request: Request, anchor: Anchor) -> None:
        deciding.now = True
        try:
            self.check_epoch(request, anchor)
            request.before = request.journal.records_after(request.since)
            suffix = (*request.before, *batch.records)
            batch.add(list(request.decide(Section(suffix, batch.now))), request.epoch)
        except (NotSaved, InDoubt, Damaged):
            raise
        except Exception as exc:  # noqa: BLE001  a refusal, delivered after this commit
            self.refused(request, exc)
        finally:
            deciding.now = False
        request.upto = len(batch.records)

    def refused(self, request: Request, error: Exception) -> None:
        request.error = (
            disk_refused(self.files.session, error) if isinstance(error, OSError) else error
        )

    def check_epoch(self, request: Request, anchor: Anchor) -> None:
        if request.epoch is None:
            return
        if request.epoch != self.claimed_epoch() or request.epoch < anchor.epoch:
            raise Fenced(
                f"{self.files.session}: epoch {request.epoch} does not drive it any more (it is "
                f"{anchor.epoch})",
                hint="stop this driver; another one goes on",
            )

    def _acknowledge(
        self, batch: Batch, request: Request, first: "FileJournal", before: Head
    ) -> None:
        journal = request.journal
        if journal is not first and journal.fence.seq < first.fence.seq:
            journal.fence = first.fence.copy()
        journal.remember(batch.records)
        if request.error is not None:
            return
        ours = batch.records[: request.upto]
        # If records of other callers follow in the same commit, this caller's head is its own last
        # record.
        last = Head(ours[-1].seq, ours[-1].mac) if ours else before
        head = first.fence.head if request.upto == len(batch.records) else last
        request.result = Appended(head, (*request.before, *ours))
