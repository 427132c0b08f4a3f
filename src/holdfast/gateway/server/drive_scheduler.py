"""
The serving process's drives: one task for each session that owes work, none for the others.

A notice wakes a session. Notices are hints, so the scheduler scans for owed work at the start,
every 30 seconds, and when the next prompt expires. One timer serves the reminders of all sessions.
It waits for the earliest one and is set again when an earlier one is created. After a stop request,
a drive ends at its next quiet point: at once if only a model call is open (the call is repeated
later), within bounds if a tool is running.
"""

import asyncio
import contextlib
import logging

from holdfast.errors import HoldfastError, Untrusted
from holdfast.gateway.workers.share import ALL, Share
from holdfast.ids import SessionId
from holdfast.runtime.service import Service
from holdfast.session.state import SessionState

RESCAN_SECONDS = 30.0
DRIVES_MAX = 256  # sessions driven at once; the others wait
_log = logging.getLogger("holdfast.gateway.server.drive_scheduler")


class DriveScheduler:
    def __init__(self, service: Service, share: Share = ALL) -> None:
        self._service = service
        self._share = share
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}
        self._again: set[SessionId] = set()
        self._group: asyncio.TaskGroup | None = None
        self._room = asyncio.Semaphore(DRIVES_MAX)
        self._next_expiry: int | None = None
        self.next_reminder: int | None = None  # the reminder that the timer waits for
        # Reminders due up to this time have been handed to drives. The scan finds them again if a
        # drive fails.
        self._reminded_until = 0
        self._sooner = asyncio.Event()
        self._scan_wanted = False
        self._missing: dict[
            SessionId, str
        ] = {}  # the last warning logged for each session that waits for an agent, model or tool
        self.is_stopping = False
        self._hurry = asyncio.Event()
        self.rescans = 0

    @property
    def running(self) -> int:
        return len(self._tasks)

    def wake(self, session: SessionId) -> None:
        """
        Check this session for owed work, now or when its present drive ends. Another worker's
        session is left to that worker: the notice of the commit wakes it too.
        """
        if self.is_stopping or self._group is None or not self._share.has(session):
            return
        if session in self._tasks:
            self._again.add(session)
        else:
            self._tasks[session] = self._group.create_task(
                self._drive(session), name=f"drive {session}"
            )

    async def run(self) -> None:
        """Scan for owed work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                while True:
                    began = self._service.live.now_ms()
                    await self._wake_owing()
                    self._next_expiry = await self._earliest()
                    self._reminded_until = (
                        began  # a reminder may come due during the scan, so look for it again
                    )
                    self.next_reminder = await self._service.live.next_reminder(after=began)
                    await self._until_due()
            finally:
                self._group = None

    async def _wake_owing(self) -> None:
        """
        Wake each session that owes work.

        A failed scan (a held lock, a disk error) is logged and repeated with the next one. It loses
        nothing.
        """
        try:
            await (
                self._service.home.check_clock()
            )  # an idle server notes the time too, so a home in use is never far behind the clock
        except (HoldfastError, OSError) as exc:
            _log.warning("the clock could not be compared with the home's journal: %s", exc)
        try:
            for session in await self._service.owing():
                self.wake(session)
            self.rescans += 1
        except (HoldfastError, OSError) as exc:
            _log.warning("what is owed could not be looked for: %s", exc)

    async def _earliest(self) -> int | None:
        """Return when the next prompt expires. Those already expired have been handed to drives."""
        return await self._service.live.next_expiry(after=self._service.live.now_ms())

    async def _until_due(self) -> None:
        """
        Wait until the next scan is due or a prompt expires. A drive that leaves an earlier expiry
        behind sets `_sooner`.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + RESCAN_SECONDS
        while (left := ends - loop.time()) > 0:
            if self._scan_wanted:
                self._scan_wanted = False
                return
            now = self._service.live.now_ms()
            if self.next_reminder is not None and self.next_reminder <= now:
                await self._wake_due(now)
            for due in (self._next_expiry, self.next_reminder):
                left = left if due is None else min(left, (due - now) / 1000)
            if left <= 0:
                return
            self._sooner.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._sooner.wait()

    def scan_now(self) -> None:
        """Scan for owed work at once: a chat that was away answers again."""
        self._scan_wanted = True
        self._sooner.set()

    async def _wake_due(self, now: int) -> None:
        """
        Wake sessions whose reminder came due since the last check, and set the timer to the next
        one.
        """
        live = self._service.live
        for session in await live.reminding(after=self._reminded_until, until=now):
            self.wake(session)
        self._reminded_until = max(now, self._reminded_until)
        self.next_reminder = await live.next_reminder(after=self._reminded_until)

    async def _note_due(self, session: SessionId) -> None:
        """Shorten the wait if a drive left an earlier expiry or reminder than the awaited one."""
        row = await self._service.live.row(session)
        if row is None:
            return
        # This drive did not close an expired prompt: another process drives, or the disk failed.
        # Leave it to the next scan; otherwise we would check without a pause.
        to_come = row.expires_at is not None and row.expires_at > self._service.live.now_ms()
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
            # A reminder that is already due since the last check is found by looking back to that
            # check.
            self.next_reminder = row.remind_at
            self._sooner.set()

    async def _drive(self, session: SessionId) -> None:
        try:
            async with self._room:
                while True:
                    self._again.discard(session)
                    await self._service.drive_all(session, until=self._until)
                    self._log_missing_part(session)
                    if self.is_stopping or session not in self._again:
                        return
        except Untrusted as exc:
            _log.error(
                "%s is sealed: %s", session, exc.message
            )  # the journal records the damage; a trace adds nothing
        except HoldfastError as exc:
            _log.warning("%s was not driven on (%s): %s", session, exc.code, exc.message)
        except (
            OSError
        ) as exc:  # a session that can't be read must not stop the drives of the others
            _log.warning("%s was not driven on: %s", session, exc)
        finally:
            self._tasks.pop(session, None)
            await self._note_due(session)

    def _log_missing_part(self, session: SessionId) -> None:
        """
        Log once why a turn can't be driven here: its model, agent or tool is missing. The scan
        meets it every 30 seconds.
        """
        missing = self._service.live.why_cannot_drive(session)
        if missing is None:
            self._missing.pop(session, None)
        elif self._missing.get(session) != missing.name:
            self._missing[session] = missing.name
            _log.warning("%s can't run here: %s", session, missing.name)

    def _until(self, _: SessionState) -> bool:
        return self.is_stopping

    async def stop(self, grace_seconds: float) -> None:
        """Start no new drive. Return when every drive has ended or was cancelled."""
        self.is_stopping = True
        for session, task in list(self._tasks.items()):
            if not self._service.live.hurry(session):
                task.cancel()
        await self._wait_for_drives(grace_seconds)
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()))

    async def _wait_for_drives(self, grace_seconds: float) -> None:
        """Wait until the drives have ended, their time is over, or `hasten` was called."""
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
        """Stop waiting. Running calls are cut off and are in doubt."""
        self._hurry.set()
