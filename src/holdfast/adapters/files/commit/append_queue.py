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
from typing import TYPE_CHECKING

from holdfast.adapters.files.commit.commit import Commit, deciding
from holdfast.adapters.files.commit.queued_append import CommitHost, QueuedAppend
from holdfast.adapters.files.home.keys import no_key
from holdfast.adapters.files.paths import disk_refused
from holdfast.adapters.files.session.catch_up import Damaged
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.files.session.locks import FolderLock, keeps_too_many
from holdfast.errors import Busy, HoldfastError, InDoubt, InvariantBroken, Untrusted
from holdfast.journal.chain import KeyMissing
from holdfast.journal.verify import Damage
from holdfast.ports.journal_store import Appended

if TYPE_CHECKING:
    from holdfast.adapters.files.session.journal import FileJournal

# Appends in one commit: bounds how long the first waits for the last one's decision.
_TOGETHER_MAX = 256


class PendingCommit:
    """A commit that was begun in another thread, decided and waiting for the disk: `Syncable`."""

    __slots__ = ("_commit", "_queue", "_request", "_taken")

    def __init__(self, queue: "AppendQueue", request: QueuedAppend, commit: Commit) -> None:
        self._queue, self._request, self._commit = queue, request, commit
        self._taken = threading.Lock()

    def withdraw(self) -> bool:
        """Return False if it is too late: another thread is already writing it."""
        return self._taken.acquire(blocking=False)

    def write(self) -> int | None:
        if not self._taken.acquire(blocking=False):
            return None
        self._queue.take_over(self._commit.lock)
        try:
            return self._commit.write()
        except OSError as exc:
            failure = exc
            self._settle_where_it_may_wait(lambda: self._commit.settle(failure))
        except Damaged as exc:
            damaged = exc
            self._settle_where_it_may_wait(lambda: _raise(damaged))
        return None

    def end(self, failure: OSError | None) -> None:
        if failure is None and self._commit.has_landed():
            self._settle(lambda: self._commit.settle(None))
        else:
            self._settle_where_it_may_wait(lambda: self._commit.settle(failure))

    def _settle(self, work: Callable[[], None]) -> None:
        self._queue.complete(self._request, self._commit.lock, work)

    def _settle_where_it_may_wait(self, work: Callable[[], None]) -> None:
        """A repair takes several writes, and perhaps a seal."""
        try:
            self._queue.host.run(lambda: self._settle(work))
        except Busy:
            self._settle(work)  # no other thread is available, and the lock is held


def _raise(error: Exception) -> None:
    raise error


class AppendQueue:
    def __init__(self, files: SessionFiles, host: CommitHost) -> None:
        self.files = files
        self.host = host
        self._guard = threading.Lock()
        self._queue: deque[QueuedAppend] = deque()
        self._led = False
        self._idle = threading.Condition(self._guard)
        self._is_awaited = 0
        # The handle that has committed last, while it is in use. The leader sets it, with the write
        # lock held.
        self.newest: Callable[[], FileJournal | None] = lambda: None
        # The claim that this process holds on the session, if any. Every append of a driver
        # compares it.
        self.claimed_epoch: Callable[[], int | None] = lambda: None

    def append_now(self, request: QueuedAppend) -> Appended:
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

    def append_soon(self, request: QueuedAppend) -> None:
        """
        Start an append; `request.wake` is called when it is done.

        A request that leads is decided in this thread, if nothing has to be waited for. There are
        three cases:

        1. It was decided here, and has records. Another thread writes, syncs and acknowledges.
        2. It was decided here, and nothing is to be written. It ends here.
        3. It could not be decided here: the lock is held, something must be read first, or no
           thread can be had for case 1. A commit thread starts from the beginning.
        """
        if not self._enqueue(request):
            return
        pending: PendingCommit | None = None
        try:
            commit = self._begin_here(request)
            if commit is not None and commit.owes_a_sync:
                pending = PendingCommit(self, request, commit)
                if not self.host.sync(pending):
                    self.files.release_if_ours()
                    commit = pending = None
        except BaseException:
            # A queued request is completed even if its caller is interrupted: by the thread that
            # already has it, or else by a new leader.
            if pending is None or pending.withdraw():
                self.files.release_if_ours()
                self._hand_on(self.host.run_quick, self._lead_at_once)
            raise
        if commit is None:  # case 3
            self._hand_on(self.host.run_quick, self._lead_at_once)
        elif pending is None:  # case 2
            self.take_over(commit.lock)
            self.complete(request, commit.lock, commit.complete)

    def _begin_here(self, request: QueuedAppend) -> Commit | None:
        """
        Return None to commit in another thread instead; an error met here is met and reported
        there.
        """
        lock = None if keeps_too_many() else self._try_lock()
        if lock is None:
            return None
        commit, has_begun = Commit(self, [request], lock), False
        try:
            has_begun = commit.begin(at_once=True)
        except Exception:  # noqa: BLE001  the other thread meets and reports it
            return None
        finally:
            if not has_begun:
                lock.release()
        return commit if has_begun else None

    def take_over(self, lock: FolderLock) -> None:
        """
        Continue a begun request in this thread. The request leads, so it is the first in the queue.
        """
        with self._guard:
            self._queue.popleft()
        lock.hand_over()

    def complete(self, request: QueuedAppend, lock: FolderLock, work: Callable[[], None]) -> None:
        """
        Finish an append that was begun here, then let another thread lead. The queue is idle before
        the caller wakes, so that the caller's next append leads again.
        """
        self._end([request], lock, work)
        request.done = True
        with self._guard:
            others = bool(self._queue)
            if not others:
                self._rest()
        request.wake()
        if others:
            self._hand_on(self.host.run_quick, self._lead_at_once)

    def wait_until_idle(self) -> None:
        """Wait until every append that was begun has an outcome."""
        with self._guard:
            self._is_awaited += 1
            while self._led:
                self._idle.wait()
            self._is_awaited -= 1

    def _enqueue(self, request: QueuedAppend) -> bool:
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

    def _commit(self, requests: list[QueuedAppend], lock: FolderLock | None) -> None:
        """Give every request an outcome. The lock, given or taken here, is free afterwards."""
        try:
            lock = lock or self.files.acquire()
        except BaseException as exc:  # noqa: BLE001  handed to every caller, unchanged
            self._fail(requests, exc)
        else:
            commit = Commit(self, requests, lock)

            def work() -> None:
                commit.begin(at_once=False)
                commit.complete()

            self._end(requests, lock, work)

    def _end(
        self, requests: list[QueuedAppend], lock: FolderLock, work: Callable[[], None]
    ) -> None:
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

    def _fail(self, requests: list[QueuedAppend], error: BaseException) -> None:
        if isinstance(error, OSError):
            error = disk_refused(self.files.session, error)
        doubt = error if isinstance(error, InDoubt) else None
        if not isinstance(error, HoldfastError | OSError):
            # Ctrl-C or no memory in the committing thread: its fence may have moved by any
            # distance. The next append must not report that difference as a takeover, so the handle
            # is in doubt.
            doubt = InDoubt(
                f"{self.files.session}: a commit was interrupted",
                hint="open the session again: its journal shows whether it was written",
            )
            self.files.release_if_ours()
        for request in requests:
            request.fail(error)
            if doubt is not None:
                request.journal.spend(doubt)

    def _seal(self, requests: list[QueuedAppend], error: Damaged | Untrusted) -> None:
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
            request.fail(untrusted)
        try:
            self.host.seal(journal, untrusted)
        except Exception as exc:  # noqa: BLE001  reported; the next opener seals
            untrusted.add_note(f"the seal could not be recorded: {exc}")
