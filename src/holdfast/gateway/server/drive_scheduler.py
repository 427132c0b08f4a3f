"""
Who drives when the gateway serves: one task for each session in which something is owed, and none
for all the others.

Notices wake a session; they are hints, so everything owed is looked for at the start and every 30
seconds, and at the moment the next prompt runs out. One timer stands for every reminder of every
session: it waits for the earliest, and is set anew when an earlier one is set. Told to stop, a
drive ends at its next quiet point: at once when only a model is out (its call is repeated later),
within bounds when a tool runs.
"""

import asyncio
import contextlib
import logging

from holdfast.errors import HoldfastError, Untrusted
from holdfast.ids import SessionId
from holdfast.runtime.drive.drivability import why_cannot_drive
from holdfast.runtime.service import Service
from holdfast.session.state import CallStatus, SessionState

RESCAN_SECONDS = 30.0
DRIVES_MAX = 256  # sessions driven at once; the others wait their turn
_log = logging.getLogger("holdfast.gateway.server.drive_scheduler")


class DriveScheduler:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}
        self._again: set[SessionId] = set()
        self._group: asyncio.TaskGroup | None = None
        self._room = asyncio.Semaphore(DRIVES_MAX)
        self._next_expiry: int | None = None
        self.next_reminder: int | None = None  # what the one timer waits for
        # Up to when reminders have been looked for. What was due before is in somebody's hands, and
        # is looked for again with the rest.
        self._reminded_until = 0
        self._sooner = asyncio.Event()
        self._lacking: dict[
            SessionId, str
        ] = {}  # what was said last of sessions that wait for something that is not here
        self.is_stopping = False
        self._hurry = asyncio.Event()
        self.rescans = 0

    @property
    def running(self) -> int:
        return len(self._tasks)

    def wake(self, session: SessionId) -> None:
        """See what is owed in this session, now or when its present drive ends."""
        if self.is_stopping or self._group is None:
            return
        if session in self._tasks:
            self._again.add(session)
        else:
            self._tasks[session] = self._group.create_task(
                self._drive(session), name=f"drive {session}"
            )

    async def run(self) -> None:
        """Look for what is owed, for ever; until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                while True:
                    began = self._service.world.now_ms()
                    await self._wake_owing()
                    self._next_expiry = self._earliest()
                    self._reminded_until = (
                        began  # what came due while we looked is looked for again
                    )
                    self.next_reminder = self._service.world.index.next_reminder(after=began)
                    await self._until_due()
            finally:
                self._group = None

    async def _wake_owing(self) -> None:
        """
        A look that fails (a lock that is held, a disk that refuses) is said, and made again with
        the next scan: nothing it would find is lost.
        """
        try:
            await (
                self._service.home.check_clock()
            )  # an idle server notes the time too: a home that is in use is never far behind it
        except (HoldfastError, OSError) as exc:
            _log.warning("the clock could not be compared with the home's journal: %s", exc)
        try:
            for session in await self._service.owing():
                self.wake(session)
            self.rescans += 1
        except (HoldfastError, OSError) as exc:
            _log.warning("what is owed could not be looked for: %s", exc)

    def _earliest(self) -> int | None:
        """
        When the first prompt to come runs out. Those past their time are in somebody's hands
        already.
        """
        return self._service.world.index.next_expiry(after=self._service.world.now_ms())

    async def _until_due(self) -> None:
        """
        Until the next scan is due, or a prompt runs out. A drive that leaves an earlier one behind
        says so.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + RESCAN_SECONDS
        while (left := ends - loop.time()) > 0:
            now = self._service.world.now_ms()
            if self.next_reminder is not None and self.next_reminder <= now:
                self._wake_due(now)
            for due in (self._next_expiry, self.next_reminder):
                left = left if due is None else min(left, (due - now) / 1000)
            if left <= 0:
                return
            self._sooner.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._sooner.wait()

    def look_again(self) -> None:
        """Now, instead of when the timer says: a clock may have been set."""
        self._sooner.set()

    def _wake_due(self, now: int) -> None:
        """
        Sessions whose reminder came due since the last look; the timer then waits for the next one.
        """
        index = self._service.world.index
        for session in index.reminding(after=self._reminded_until, until=now):
            self.wake(session)
        self._reminded_until = max(now, self._reminded_until)
        self.next_reminder = index.next_reminder(after=self._reminded_until)

    def _note_due(self, session: SessionId) -> None:
        """
        A drive may leave an earlier expiry or reminder behind than the one that is waited for.
        """
        row = self._service.world.index.get(session)
        if row is None:
            return
        # One past its time was not closed by this drive: somebody else drives, or the disk refuses.
        # It waits for the next scan, or we would look without a pause.
        to_come = row.expires_at is not None and row.expires_at > self._service.world.now_ms()
        if (
            row.expires_at is not None
            and to_come
            and (self._next_expiry is None or row.expires_at < self._next_expiry)
        ):
            self._next_expiry = row.expires_at
            self._sooner.set()
        if row.remind_at is not None and (
            self.next_reminder is None or row.remind_at < self.next_reminder
        ):
            # One that is due since the last look already is found by looking back to it.
            self.next_reminder = row.remind_at
            self._sooner.set()

    async def _drive(self, session: SessionId) -> None:
        try:
            async with self._room:
                while True:
                    self._again.discard(session)
                    await self._service.drive_all(session, until=self._until)
                    self._say_what_is_lacking(session)
                    if self.is_stopping or session not in self._again:
                        return
        except Untrusted as exc:
            _log.error(
                "%s is sealed: %s", session, exc.message
            )  # what happened is in the journal; a trace adds nothing
        except HoldfastError as exc:
            _log.warning("%s was not driven on (%s): %s", session, exc.code, exc.message)
        except (
            OSError
        ) as exc:  # what could not be read of one session is no reason to leave the others
            _log.warning("%s was not driven on: %s", session, exc)
        finally:
            self._tasks.pop(session, None)
            self._note_due(session)

    def _say_what_is_lacking(self, session: SessionId) -> None:
        """
        Of a turn that waits for a model, an agent or a tool that is not here: once, since it is
        looked at every half minute.
        """
        ledger = self._service.shelf.get(session)
        lacking = (
            why_cannot_drive(self._service.world, ledger.state) if ledger is not None else None
        )
        if lacking is None:
            self._lacking.pop(session, None)
        elif self._lacking.get(session) != lacking:
            self._lacking[session] = lacking
            _log.warning("%s can't be driven on here: %s", session, lacking)

    def _until(self, _: SessionState) -> bool:
        return self.is_stopping

    async def stop(self, grace_seconds: float) -> None:
        """Nothing new is begun. Returns when every drive has ended: by itself, or cut off."""
        self.is_stopping = True
        for session, task in list(self._tasks.items()):
            ledger = self._service.shelf.get(session)
            if ledger is None or not _has_started(ledger.state):
                task.cancel()
            else:
                ledger.poke()
        await self._wait_for_drives(grace_seconds)
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()))

    async def _wait_for_drives(self, grace_seconds: float) -> None:
        """Until they have ended, their time is over, or somebody is in a hurry."""
        async with asyncio.TaskGroup() as group:
            hurry = group.create_task(self._hurry.wait())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    while self._tasks and not hurry.done():
                        await asyncio.wait(
                            {hurry, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED
                        )
            hurry.cancel()

    def hasten(self) -> None:
        """Wait for nobody any more: what runs is cut off, and is in doubt."""
        self._hurry.set()


def _has_started(state: SessionState) -> bool:
    return any(
        call.status is CallStatus.STARTED for turn in state.turns.values() for call in turn.calls
    )
