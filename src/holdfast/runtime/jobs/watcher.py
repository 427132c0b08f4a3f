"""
Watch jobs: one task for all of them, however many sessions they belong to.

The journal is the truth about a job. The observed end of its process (or of the task that hosts it)
is recorded there once, with its report. Any process may record it first, and `decide` makes it
exactly once. A job that no process watches runs on: `serve`, `resume` and `jobs` find it later.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import InstanceId, JobId, SessionId
from holdfast.ports.jobs import JobSeen
from holdfast.ports.journal_store import Check
from holdfast.ports.tools import Prepared, ProcessFacts, ServerTask, ToolReturned
from holdfast.runtime.cancellation import finish, wait_for
from holdfast.runtime.context import World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.ledger.outputs import keep_if_possible
from holdfast.runtime.streams.feed import CallOutput, Feed
from holdfast.session.authority.context import TurnContext
from holdfast.session.commands import EndJob
from holdfast.session.state import Job

# Descriptors report a death at once. This is for systems without them, and for anything else that
# is missed.
LOOK_AGAIN_SECONDS = 5.0
# A supervisor takes two seconds to end a job on request; one that takes longer is ended itself.
ENDING_SECONDS = 6.0

# Jobs that are tasks of this process, hosted by any of its services. A job that names this process
# and is not in this set is lost.
_HOSTED: set[JobId] = set()
_log = logging.getLogger("holdfast.jobs")


class ObservedEnd(NamedTuple):
    """An ended job, with its whole output if that is more than the model sees."""

    command: EndJob
    full: bytes | None = None


def hosted_here() -> int:
    """Count the jobs that are tasks of this process."""
    return len(_HOSTED)


def running_jobs(ledger: Ledger) -> tuple[Job, ...]:
    return tuple(job for job in ledger.state.jobs.values() if job.ended is None)


class JobKeeper:
    """One per service. `run` is its one task; jobs that are tasks of this program run beside it."""

    def __init__(
        self,
        world: World,
        opened: OpenSessions,
        feed: Feed,
        drive: Callable[[SessionId], Awaitable[None]],
    ) -> None:
        self._world = world
        self._opened = opened
        self._feed = feed
        self._drive = drive
        self._group: asyncio.TaskGroup | None = None
        self._hosted: dict[JobId, asyncio.Task[None]] = {}
        # Descriptors that report a supervisor's death, by job.
        self._deaths: dict[JobId, int] = {}
        self._asked: dict[JobId, float] = {}
        # When a server may be asked for a task again.
        self._next_ask: dict[JobId, float] = {}
        self.watched: set[SessionId] = set()
        self._due: set[SessionId] = set()
        self._wake = asyncio.Event()
        self._is_leaving = False
        # Whether the work that a job's end leaves owed is driven here at once: for a program that
        # stays, without another driver.
        self.drives = False
        world.on_job = self.let_go

    # --- notifications from other parts

    def let_go(self, session: SessionId, job: JobId, task: Prepared | None) -> None:
        """Watch a job that this process has started; with a Prepared, run it here."""
        if task is not None and self._group is not None:
            _HOSTED.add(job)
            hosted = self._hosted[job] = self._group.create_task(
                self._host(session, job, task), name=f"{session} {job}"
            )
            # A task that is cancelled before its first step never reaches its own cleanup; without
            # this, the job would count as running for as long as this process runs.
            hosted.add_done_callback(lambda _: self._let_be(job))
        self.watch(session)

    def watch(self, session: SessionId) -> None:
        """Check this session's jobs, now and until none runs."""
        self.watched.add(session)
        self._due.add(session)
        self._wake.set()

    # --- the one task

    async def run(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        try:
            while True:
                self._wake.clear()
                due, self._due = self._due, set()
                for session in sorted(due):
                    await self._look_at(session)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_SECONDS if self.watched else None):
                        await self._wake.wait()
                        continue
                self._due |= self.watched
        finally:
            for job in list(self._deaths):
                self._forget(job)

    async def _look_at(self, session: SessionId) -> None:
        try:
            async with self._opened.use(session) as ledger:
                if ledger.only_read is not None or ledger.journal.sealed is not None:
                    self.watched.discard(session)
                    return
                await ledger.catch_up_if_behind()
                ended = await self.settle(ledger)
                running = running_jobs(ledger)
        except HoldfastError as exc:  # busy, sealed or in doubt: the job's result stays where it is
            if exc.code == "unknown":  # the session was deleted, and its jobs with it
                self.watched.discard(session)
            else:
                _log.warning(
                    "%s: its jobs could not be looked at (%s): %s", session, exc.code, exc.message
                )
            return
        for job in running:
            self._listen_for_death(session, job)
        if not running:
            self.watched.discard(session)
        if ended and self.drives and self._group is not None and not self._is_leaving:
            self._group.create_task(self._driven(session), name=f"drive {session} after a job")

    async def _driven(self, session: SessionId) -> None:
        """
        A task that already drives this session stops at its own turn, so the job's report must be
        driven here.
        """
        try:
            async with self._opened.use(session) as ledger:
                watch = ledger.watch()
                try:
                    await self._drive(session)
                    while ledger.driving and self.drives:
                        await wait_for(watch)
                        watch.clear()
                        await self._drive(session)
                finally:
                    ledger.unwatch(watch)
        except HoldfastError as exc:
            _log.warning(
                "%s was not driven on after a job (%s): %s", session, exc.code, exc.message
            )

    def _listen_for_death(self, session: SessionId, job: Job) -> None:
        if job.host != "process" or job.job in self._deaths or self._world.jobs is None:
            return
        fd = self._world.jobs.death_of(ProcessFacts(**job.process))
        if fd is None:
            return
        self._deaths[job.job] = fd
        asyncio.get_running_loop().add_reader(fd, self._died, session, job.job)

    def _died(self, session: SessionId, job: JobId) -> None:
        self._forget(job)
        self.watch(session)

    def _forget(self, job: JobId) -> None:
        fd = self._deaths.pop(job, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    # --- looking at a session's jobs

    async def settle(self, ledger: Ledger) -> int:
        """
        Record the end of every ended job, and stop the cancelled ones. Return how many have ended.
        """
        ended = 0
        for job in running_jobs(ledger):
            found = (
                await self._found_at_server(ledger.session, job)
                if job.host == "server"
                else await self._found(job, ledger.instance)
            )
            if found is not None:
                ended += await self._end(ledger, job, found)
        return ended

    async def _found(self, job: Job, instance: InstanceId) -> ObservedEnd | None:
        process, place = ProcessFacts(**job.process), self._world.jobs
        if place is None:
            return None
        if job.host == "task":
            return self._found_task(job, process)
        seen = await place.inspect(job.job, process, instance=instance, secrets=self._world.secrets)
        if seen.state == "running":
            if job.cancelled_by is not None:
                await self._stop(job, process)
            return None
        # Every process that left the group and still carries the call's name ends with it.
        await place.end(job.call, process)
        return self._end_of(job, seen)

    async def _found_at_server(self, session: SessionId, job: Job) -> ObservedEnd | None:
        """Ask the server that made a task for it. A task that outlives its bound is in doubt."""
        servers = self._world.servers
        if servers is None:
            return None
        task = msgspec.convert(job.process, ServerTask)
        is_late = self._world.now_ms() >= job.submitted_at + job.seconds_max * 1000
        is_unasked = job.job not in self._asked
        stop = is_unasked and (is_late or job.cancelled_by is not None)
        now = asyncio.get_running_loop().time()
        if not stop and now < self._next_ask.get(job.job, now):
            return None
        if stop:
            self._asked[job.job] = now
        self._next_ask[job.job] = now + task.poll_seconds
        seen = await servers.task(task, stop=stop)
        if seen.state != "running":
            return self._end_of(job, seen)
        if is_late:
            return ObservedEnd(
                in_doubt(job, "it ran out of time, and its server was asked to stop")
            )
        asyncio.get_running_loop().call_later(task.poll_seconds, self._look_again, session)
        return None

    def _look_again(self, session: SessionId) -> None:
        if session in self.watched:
            self.watch(session)

    def _found_task(self, job: Job, process: ProcessFacts) -> ObservedEnd | None:
        if job.job in _HOSTED:
            if job.cancelled_by is not None and (task := self._hosted.get(job.job)) is not None:
                task.cancel()
            return None
        place = self._world.jobs
        if place is None or (place.is_alive(process) and process != place.own_process()):
            return None  # another program hosts it, and is alive
        return ObservedEnd(in_doubt(job, "the program that ran it is gone"))

    @staticmethod
    def _end_of(job: Job, seen: JobSeen) -> ObservedEnd:
        if seen.returned is None:
            return ObservedEnd(in_doubt(job, seen.why))
        if seen.was_asked:
            return ObservedEnd(stopped(job, seen.returned), seen.returned.full)
        return ObservedEnd(ended_as(job, seen.returned), seen.returned.full)

    async def _stop(self, job: Job, process: ProcessFacts) -> None:
        """
        Ask once. A supervisor that does not end is ended itself, and the next check finds it gone.
        """
        place, now = self._world.jobs, asyncio.get_running_loop().time()
        if place is None:
            return
        asked = self._asked.setdefault(job.job, now)
        if asked == now:
            await place.ask_to_end(process)
            asyncio.get_running_loop().call_later(ENDING_SECONDS, self._wake_all)
        elif now - asked >= ENDING_SECONDS:
            await place.end(job.call, process)
            self._wake_all()

    def _wake_all(self) -> None:
        self._due |= self.watched
        self._wake.set()

    async def _end(self, ledger: Ledger, job: Job, found: ObservedEnd) -> int:
        """
        Commit point. Crash before it: the job's result stays in its folder for the next check.
        Crash after it: the journal has the result, and the folder may be removed.
        """
        command = found.command
        if found.full is not None:
            output, text = await keep_if_possible(ledger, found.full, command.text)
            command = msgspec.structs.replace(command, output=output, text=text)
        produced = ledger.attempt.produced("tool_outcome", msgspec.json.encode(command))
        outcome = await ledger.commit(command, check=Check.FENCE, keeping=[produced])
        self._asked.pop(job.job, None)
        self._next_ask.pop(job.job, None)
        self._forget(job.job)
        if self._world.jobs is not None and job.host == "process":
            await self._world.jobs.clear(job.job)
        return int(outcome.of(command) == "ended")

    # --- jobs that are tasks of this program

    async def _host(self, session: SessionId, job: JobId, prepared: Prepared) -> None:
        returned: ToolReturned | None = None
        is_cancelled = False
        try:
            async with self._opened.use(session) as ledger:
                record = ledger.state.jobs.get(job)
                if (
                    record is None
                    or record.ended is not None
                    or not isinstance(record.context, TurnContext)
                ):
                    await prepared.abandon()
                    return
                try:
                    with CallOutput(self._feed, session, record.turn, record.call) as output:
                        returned = await prepared.go(
                            timeout_seconds=record.seconds_max, on_output=output.hear
                        )
                except asyncio.CancelledError:
                    is_cancelled = True
                if not self._is_leaving:
                    await finish(self._record_task(ledger, record, returned))
        except HoldfastError as exc:
            _log.warning(
                "%s: the end of %s could not be recorded (%s): %s",
                session,
                job,
                exc.code,
                exc.message,
            )
        finally:
            self._let_be(job)
        if is_cancelled and self._is_leaving:
            raise asyncio.CancelledError
        self.watch(session)

    def _let_be(self, job: JobId) -> None:
        _HOSTED.discard(job)
        self._hosted.pop(job, None)

    async def _record_task(self, ledger: Ledger, job: Job, returned: ToolReturned | None) -> None:
        ended = await self._end(
            ledger,
            job,
            (
                ObservedEnd(stopped(job, None))
                if returned is None
                else ObservedEnd(ended_as(job, returned), returned.full)
            ),
        )
        if ended and self.drives and self._group is not None:
            self._group.create_task(
                self._driven(ledger.session), name=f"drive {ledger.session} after a job"
            )

    # --- leaving

    def leave(self, *, at_once: bool) -> None:
        """
        Stop driving. Processes run on by themselves. Tasks are awaited; with `at_once` they are cut
        off, and are in doubt.
        """
        self.drives = False
        if at_once:
            self._is_leaving = True
            for task in self._hosted.values():
                task.cancel()


def ended_as(job: Job, returned: ToolReturned) -> EndJob:
    if returned.outcome == "cancelled":
        return stopped(job, returned)
    code = "timed_out" if returned.outcome == "timed_out" else None
    return EndJob(job=job.job, outcome=returned.outcome, text=returned.text, code=code)


def in_doubt(job: Job, why: str) -> EndJob:
    again = (
        "check before trying again"
        if job.contract == "once"
        else f"{job.tool} says that calling it again is safe"
    )
    return EndJob(
        job=job.job,
        outcome="in_doubt",
        text=f"In doubt: {why}. It may or may not have happened; {again}.",
        code="in_doubt",
    )


def stopped(job: Job, returned: ToolReturned | None) -> EndJob:
    """Stopped by Holdfast: part of it may have happened (T6)."""
    said = f"\n{returned.text}" if returned is not None and returned.text else ""
    text = (
        "In doubt: it was stopped while it ran. Part of it may have happened; check before trying"
        f" again.{said}"
    )
    return EndJob(job=job.job, outcome="in_doubt", text=text, code="stopped")
