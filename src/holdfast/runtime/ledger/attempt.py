"""
An attempt: one drive of a turn from claim to release, and its fence.

    held --release--> released --reacquire--> held      abort or dispose, from anywhere --> over

The journal port holds no lock when a call returns, so none is held here over a model, a tool, a
prompt or a summary. An attempt keeps three things: its position (the last folded record), its
claim, and the produced results that are not journalled yet. Reacquiring re-hashes and verifies
(`Check.FENCE`). Owned records are folded in; anything else is a takeover. A takeover is sticky, and
the produced results go to quarantine: never written on top of history that is not believed, never
lost.

Any task and any thread of the process may write through an attempt. Folding and deciding exclude
each other, so a decide sees one state.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from copy import copy
from enum import Enum
from typing import Any, Self

from holdfast.errors import Busy, Fenced, HoldfastError, InDoubt, InvariantBroken, Untrusted
from holdfast.ports.journal_store import (
    Appended,
    Check,
    Claim,
    Decide,
    Draft,
    Head,
    Journal,
    Record,
    Section,
)
from holdfast.runtime.cancellation import finish
from holdfast.secrecy import known

# Each try waits for the lock as long as the store allows, so this is half a minute, not a busy
# loop.
BUSY_TRIES = 3


class AttemptState(Enum):
    """The state of an attempt."""

    HELD = "held"
    """Between acquire or reacquire and release: the folded records were just verified."""

    RELEASED = "released"
    """A model, a tool, a prompt or a summary is at work; owned records may arrive meanwhile."""

    OVER = "over"
    """Aborted or disposed: the claim is released, nothing more is written."""


class WriteAs(Enum):
    """The right that a write is made with."""

    DRIVER = "driver"
    """With the claim's epoch, if there is a claim: fenced off once another process drives."""

    PARTICIPANT = "anyone"
    """A message, an answer, a cancel, a mirror: allowed whichever process drives."""


class Produced:
    """A result from outside that the journal does not have yet: a reply, a tool's outcome."""

    def __init__(self, kind: str, payload: bytes) -> None:
        self.kind = kind
        self.payload = payload


def nothing(_: Section) -> Sequence[Draft]:
    """Decide to write nothing: an append with it only catches up to the head."""
    return ()


class Attempt:
    """Owns its journal handle and its claim. Both end with it, once, whatever happened."""

    def __init__(
        self,
        journal: Journal,
        fold: Callable[[Record], None],
        *,
        position: Head,
        claim: Claim | None,
    ) -> None:
        self._journal = journal
        self._fold = fold
        self._claim = claim
        # The last folded record. Moves only with durable records, under `_state`.
        self.position = position
        # Excludes folding from deciding. Taken inside the store's lock, never around it, and never
        # over an await.
        self._state = threading.Lock()
        # For the fields below. Held for a few assignments, so the event loop never waits for a
        # decide.
        self._guard = threading.Lock()
        self.phase = AttemptState.HELD
        # The head at release; None while held.
        self.fence: Head | None = None
        # The first Untrusted, Fenced or InDoubt: every later write raises it. Sticky.
        self.stopped: Untrusted | Fenced | InDoubt | None = None
        self._produced: list[Produced] = []
        self._quarantined: list[str] = []
        # Running writes, sync and async. Ending waits until there are none.
        self._writing = 0
        self._release_wanted = False
        self._end_wanted = False
        self._ending = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._idle_waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @classmethod
    async def acquire(
        cls,
        journal: Journal,
        fold: Callable[[Record], None],
        *,
        claim: Claim | None = None,
        after: int = 0,
    ) -> "Attempt":
        """
        Catch up to the head and hold; records up to `after` are folded already. Fails like every
        write if the session is sealed.
        """
        attempt = cls(journal, fold, position=Head(0, b""), claim=claim)
        try:
            attempt.position = await journal.load(fold, after=after)
            await attempt.write(nothing)
        except BaseException:
            await attempt.dispose()
            raise
        return attempt

    @property
    def epoch(self) -> int | None:
        return None if self._claim is None else self._claim.epoch

    async def is_at_head(self) -> bool:
        """
        Whether every acknowledged record is folded. Saves an append that would only catch up;
        verifies no bytes.

        The store's thread may move the journal's head at any time, before the records are folded
        here. So the position is compared last: a head that moved in between is then seen.
        """
        return (
            self.stopped is None
            and await self._journal.is_at_head()
            and self.position == self._journal.head
        )

    def produced(self, kind: str, payload: bytes) -> Produced:
        """
        Remember a result from outside (a JSON object, UTF-8), until a write that names it in
        `keeping` has journalled it.

        If that never happens, because of a takeover or an abort, it goes to quarantine.
        """
        item = Produced(kind, payload)
        with self._guard:
            self._produced.append(item)
        return item

    # Writing

    async def write(
        self,
        decide: Decide,
        *,
        keeping: Sequence[Produced] = (),
        check: Check = Check.SHORT,
        as_: WriteAs = WriteAs.DRIVER,
    ) -> Appended:
        """
        Make one owned write, held or released. Everything new is folded before it returns.

        `decide` is called with the lock held; its suffix holds the records that are not folded yet.
        With `Check.FENCE` this reacquires: all of the active segment is verified, and the attempt
        holds again. If the lock cannot be had then, try again, then raise `Busy`. The attempt stays
        released and nothing is lost; call it again.
        """

        def decide_on_one_state(section: Section) -> Sequence[Draft]:
            with self._state:
                if section.suffix:
                    folded = self.position.seq
                    unfolded = [record for record in section.suffix if record.seq > folded]
                    section = Section(suffix=unfolded, now=section.now)
                return decide(section)

        tries_left = BUSY_TRIES if check is Check.FENCE else 1
        while True:
            tries_left -= 1
            self._check_open()
            if self.stopped is not None:
                await self._quarantine_products(self.stopped)
                raise self.stopped
            driving = self._claim if as_ is WriteAs.DRIVER else None
            epoch = None if driving is None else driving.epoch
            with self._guard:
                self._writing += 1
            try:
                try:
                    done = await self._journal.append(
                        decide_on_one_state, since=self.position, epoch=epoch, check=check
                    )
                    self._move(done, keeping)
                finally:
                    self._end_write()
            except Busy as exc:
                if exc.code != Busy.default_code or tries_left == 0:
                    raise
            except (Untrusted, Fenced, InDoubt) as exc:
                stopped = self._stop(exc)
                await self._quarantine_products(stopped)
                raise stopped from exc
            else:
                if check is Check.FENCE and self.phase is AttemptState.RELEASED:
                    self._hold()
                return done
            finally:
                if self._end_wanted and not self._writing:
                    await self.abort()

    def reacquire(
        self,
        decide: Decide = nothing,
        *,
        keeping: Sequence[Produced] = (),
        as_: WriteAs = WriteAs.DRIVER,
    ) -> Coroutine[Any, Any, Appended]:
        """Verify all of the active segment and everything new, fold it, and write."""
        return self.write(decide, keeping=keeping, check=Check.FENCE, as_=as_)

    def _check_open(self) -> None:
        if self.phase is AttemptState.OVER or self._end_wanted:
            raise InvariantBroken(
                f"a write through an attempt on {self._journal.session} that is over"
            )

    def _end_write(self) -> None:
        """
        Count the write as ended. After the last running one, apply the requests made meanwhile, and
        wake the tasks that wait for idle.
        """
        with self._guard:
            self._writing -= 1
            if self._writing:
                return
            if self._release_wanted:
                self._let_go()
            for loop, idle in self._idle_waiters:
                # Its loop was closed: nothing waits there, and the write is complete.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(idle.set)
            self._idle_waiters.clear()

    def _move(self, done: Appended, keeping: Sequence[Produced]) -> None:
        """
        Fold the durable records. Writes may return in any order: each brings everything since its
        start, so nothing is missed.
        """
        with self._state:
            last: Record | None = None
            try:
                for record in done.suffix:
                    if record.seq > self.position.seq:
                        self._fold(record)
                        last = record
            finally:
                if last is not None:
                    self.position = Head(last.seq, last.mac)
            if done.head.seq > self.position.seq:
                self.position = done.head
        if keeping:
            with self._guard:
                self._produced = [item for item in self._produced if item not in keeping]

    # Release and hold

    def release_nowait(self) -> None:
        """Release for model I/O; during a write, right after it."""
        with self._guard:
            if self.phase is not AttemptState.HELD:
                return
            self._release_wanted = True
            if self._writing == 0:
                self._let_go()

    async def release(self) -> None:
        """Release for model I/O, once no write is running. The fence is the head at that time."""
        self.release_nowait()
        await self._wait_until_idle()

    def _let_go(self) -> None:
        self._release_wanted = False
        if self.phase is AttemptState.HELD:
            self.phase, self.fence = AttemptState.RELEASED, self.position

    def _hold(self) -> None:
        with self._guard:
            if self.phase is AttemptState.RELEASED:
                self.phase, self.fence = AttemptState.HELD, None

    # Driving

    async def try_claim(self) -> bool:
        """
        Become the session's driver, if there is none. Idempotent; never waits for another driver.
        """
        if self._claim is None:
            self._claim = await self._journal.claim()
        return self._claim is not None

    async def give_up(self) -> None:
        """
        Stop driving and continue as a participant. The caller checks again afterwards: a record may
        have come in between.
        """
        claim, self._claim = self._claim, None
        if claim is not None:
            await claim.release()

    # Stopping

    def _stop(self, exc: Untrusted | Fenced | InDoubt) -> Untrusted | Fenced | InDoubt:
        """
        Keep the first reason. It is a copy: a store may raise one error object in all callers of a
        failed commit.
        """
        with self._guard:
            if self.stopped is None:
                self.stopped = copy(exc)
            return self.stopped

    async def _quarantine_products(self, exc: Untrusted | Fenced | InDoubt) -> None:
        """
        After a takeover, move the produced results to quarantine, and add their places to the error
        that is about to be raised.
        """
        if not isinstance(exc, Untrusted):
            return
        try:
            await self._save_produced()
        except HoldfastError as failure:
            exc.add_note(f"what the attempt had produced could not be kept yet: {failure}")
        exc.quarantined = tuple(self._quarantined)

    async def _save_produced(self) -> None:
        """
        Move each produced result to quarantine, once, with known secrets hidden. A result that
        cannot be kept there stays in memory, and the next step tries again.
        """
        async with self._saving:
            while self._produced:
                item = self._produced[0]
                shown = known().hidden_json(item.payload)
                where = await self._journal.quarantine(item.kind, shown)
                self._quarantined.append(where)
                with self._guard:
                    self._produced = [each for each in self._produced if each is not item]

    # Ending

    def abort_nowait(self) -> None:
        """
        Allow no write after the running one, if any. Its end, or `dispose`, releases the claim.
        """
        self._end_wanted = True

    async def abort(self) -> None:
        """
        Release the claim, after running writes and releases. The handle stays readable. Idempotent.
        """
        self.abort_nowait()
        await finish(self._abort())

    async def dispose(self) -> None:
        """Abort, and close the handle. Idempotent; every step is tried, even if another fails."""
        self.abort_nowait()
        await finish(self._dispose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.dispose()

    async def _dispose(self) -> None:
        try:
            await self._abort()
        finally:
            await self._journal.close()

    async def _abort(self) -> None:
        await self._wait_until_idle()
        async with self._ending:
            if self.phase is AttemptState.OVER:
                return
            try:
                await self._save_produced()
                if self.stopped is None:
                    await self._journal.sync_anchor()
            finally:
                # From here on, the next claimer cannot tell a crash from a clean end.
                self.phase, self.fence = AttemptState.OVER, None
                if self._claim is not None:
                    await self._claim.release()

    async def _wait_until_idle(self) -> None:
        with self._guard:
            if not self._writing:
                return
            idle = asyncio.Event()
            self._idle_waiters.append((asyncio.get_running_loop(), idle))
        await idle.wait()
