"""
The lane: where appends to one session in this process queue up, and how those that wait together
are committed together.

Whoever finds the lane idle leads: it takes the write lock, brings every waiting handle up to the
head, lets each decide in turn, writes and syncs once, and wakes them all. Followers wait; no lock
is held when a call returns. Asynchronous callers lead in a thread of the store's pool.
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
    """One append on its way. Filled in by whoever leads."""

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
        # The caller's view of the commit: what was there before it, and how many of the commit's
        # records come with it.
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
    def check_alive(self, journal: "FileJournal", *, at_once: bool = False) -> bool:
        """
        Raise if the session is sealed, deleted, replaced by another life, or the home can't be
        written.

        `at_once`: False when the home's journal would have to be read on first.
        """
        ...

    def seal(self, journal: "FileJournal", error: Untrusted) -> None: ...
    def is_lost(self, generation: int) -> bool:
        """Is this a key that we should have?"""
        ...

    def run(self, work: Callable[[], None]) -> None:
        """In a thread of the pool, where it may wait. Busy: there is none, and nothing happens."""
        ...

    def sync(self, commit: Syncable) -> bool:
        """
        In the thread that writes and acknowledges for everybody. False: there is none, and nothing
        happens.
        """
        ...

    def run_quick(self, work: Callable[[], None]) -> None:
        """
        In one of the few threads that commit: it waits for the disk only. Busy: there is none, and
        nothing happens.
        """
        ...


class PendingAppend:
    """An append of an asynchronous caller, decided and waiting for the disk. See `Syncable`."""

    __slots__ = ("_alone", "_lane", "_request", "_taken")

    def __init__(self, lane: "AppendQueue", request: Request, alone: FastAppend) -> None:
        self._lane, self._request, self._alone = lane, request, alone
        self._taken = threading.Lock()

    def withdraw(self) -> bool:
        """False: too late, it is being written."""
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
        """In a thread that may wait: it takes more than one write, and perhaps a seal."""

        def work() -> None:
            self._alone.mend(failure)
            self._alone.acknowledge()

        def complete() -> None:
            self._lane.complete(self._request, self._alone.lock, work)

        try:
            self._lane.host.run(complete)
        except Busy:
            complete()  # no other thread is to be had, and the lock is held


class AppendQueue:
    def __init__(self, files: SessionFiles, host: LaneHost) -> None:
        self.files = files
        self.host = host
        self._guard = threading.Lock()
        self._queue: deque[Request] = deque()
        self._led = False
        self._idle = threading.Condition(self._guard)
        self._is_awaited = 0
        # The claim this process holds on the session, if any; compared in every driver's append.
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
            except (
                BaseException
            ):  # Ctrl-C between two steps: every error of a commit is the request's
                self.files.release_if_ours()
                raise
            finally:
                # The caller has its answer; what came meanwhile is led by the pool. No call where
                # Ctrl-C could come before the lane is free.
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
        """With the guard held."""
        self._led = False
        if self._is_awaited:
            self._idle.notify_all()

    def append_soon(self, request: Request) -> None:
        """
        `request.wake` is called when it is done. Decided here and now if nothing is in the way; a
        thread of the pool waits for the disk.
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
                    alone = soon = None  # from the beginning, in another thread
        except BaseException:
            # Once in line it is seen through, whatever interrupts its caller: by the thread it was
            # given to, or else from the beginning.
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
        """None: it takes the long way, in another thread, and meets there whatever it met here."""
        lock = None if keeps_too_many() else self._try_lock()
        if lock is None:
            return None
        alone: FastAppend | None = None
        try:
            alone = FastAppend.begin(self, request, lock, at_once=True)
        except Exception:  # noqa: BLE001  told by whoever meets it again
            return None
        finally:
            if alone is None:
                lock.release()
        return alone

    def take_over(self, lock: FolderLock) -> None:
        """
        This thread goes on with the request that was begun: it leads, so it is the first in line.
        """
        with self._guard:
            self._queue.popleft()
        lock.hand_over()

    def complete(self, request: Request, lock: FolderLock, work: Callable[[], None]) -> None:
        """The last step of an append that was begun here; then others lead."""
        self._end([request], lock, work)
        request.done = True
        request.wake()
        with self._guard:
            if not self._queue:
                return self._rest()
        return self._hand_on(self.host.run_quick, self._lead_at_once)

    def wait_until_idle(self) -> None:
        """Everything that was begun has an outcome."""
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
        Without waiting. Whoever then takes it the long way meets the same trouble, and tells those
        who wait.
        """
        try:
            return self.files.try_acquire()
        except (OSError, HoldfastError):
            return None

    def _hand_on(self, run: Callable[[Callable[[], None]], None], lead: Callable[[], None]) -> None:
        """
        Have another thread lead. Where there is none to be had nobody would: whoever waits is told,
        and nothing of theirs was written.
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
        In one of the few threads that commit for everybody: a lock that would have to be waited for
        is waited for elsewhere.
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
        """Every request has an outcome afterwards, and the lock, given or taken, is free."""
        try:
            lock = lock or self.files.acquire()
        except BaseException as exc:  # noqa: BLE001  handed to every caller, unchanged
            self._fail(requests, exc)
        else:
            self._end(requests, lock, partial(self._commit_locked, lock, requests))

    def _end(self, requests: list[Request], lock: FolderLock, work: Callable[[], None]) -> None:
        """Do this with the lock held, let go of it, and tell every request what came of it."""
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
        After a commit that succeeded, in another thread; where there is none, after the next one.
        """
        if self.files.reserve.is_spent:
            with suppress(Busy):
                self.host.run(self.files.reserve.refill_if_spent)

    def _fail(self, requests: list[Request], error: BaseException) -> None:
        if isinstance(error, OSError):
            error = disk_refused(self.files.session, error)
        doubt = error if isinstance(error, InDoubt) else None
        if not isinstance(error, HoldfastError | OSError):
            # Ctrl-C or no memory in the thread that commits: how far its fence was moved nobody
            # knows, and it must accuse no one of the difference.
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
        The lock is free again: the mark goes to the home's journal, whose lock must never be waited
        for under a session's.
        """
        journal = requests[0].journal
        untrusted = (
            error
            if isinstance(error, Untrusted)
            else journal.untrusted(error.damage, while_open=True)
        )
        # Before sealing: whatever that meets, every append has its outcome and every handle is
        # spent.
        for request in requests:
            request.journal.spend(untrusted)
            request.result, request.error = None, untrusted
        try:
            self.host.seal(journal, untrusted)
        except Exception as exc:  # noqa: BLE001  the damage is reported; the next process that opens the session seals it
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
        """A spent handle fails its own append, and nobody else's."""
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
        except Exception as exc:  # noqa: BLE001  a caller's own refusal: delivered to it once the commit it was decided in is known
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
                f"{self.files.session}: epoch {request.epoch} does not drive it any more (it is {anchor.epoch})",
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
        # When others' records follow in the same commit, this caller's head is its own last one.
        last = Head(ours[-1].seq, ours[-1].mac) if ours else before
        head = first.fence.head if request.upto == len(batch.records) else last
        request.result = Appended(head, (*request.before, *ours))
