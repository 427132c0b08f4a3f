"""
The verbs: send, answer, cancel, resume, follow, list. The library, the commands and the gateway all
call them.

A verb appends the request, durably, and then makes sure that a process drives: this one if it can,
else another. It returns when its turn has ended or paused. Nothing here decides anything about a
turn; that is `session/`. Nothing here keeps state that the journal does not have. Verbs that drive
are implemented in `verbs/` and `external_loop.py`. Verbs that are one commit or one read are
implemented here.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Self

import msgspec

from holdfast.errors import HoldfastError, Refused
from holdfast.ids import ApprovalId, GrantId, ReminderId, SessionId, TurnId, session_id
from holdfast.ports.journal_store import Check, Record
from holdfast.runtime import reminders as reminding
from holdfast.runtime.context import World
from holdfast.runtime.delegates.delegation import Delegation
from holdfast.runtime.drive.compactor import CompactionReport, Compactor
from holdfast.runtime.drive.driver import Until
from holdfast.runtime.drive.outbox import owed_by
from holdfast.runtime.drive.turn import TurnRunner
from holdfast.runtime.external_loop import ExternalTurn, ExternalTurns
from holdfast.runtime.jobs.watcher import JobKeeper
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.ledger.timekeeper import HomeTime
from holdfast.runtime.redaction import refuse_secrets
from holdfast.runtime.reports import listing
from holdfast.runtime.reports.builder import session_report, turn_report, unknown_outcomes
from holdfast.runtime.reports.grants import GrantReport, grant_report
from holdfast.runtime.reports.index_writer import IndexWriter, note, write_sealed_row
from holdfast.runtime.reports.lock_budget import LockWaitBudget
from holdfast.runtime.reports.types import (
    AnswerReport,
    ApprovalReport,
    ReminderReport,
    SessionReport,
    TurnReport,
)
from holdfast.runtime.streams.feed import Feed
from holdfast.runtime.streams.follow import follow_session
from holdfast.runtime.verbs.accept import (
    Incoming,
    accepting,
    ensure_session,
    refuse_unfit,
    written_as_json,
)
from holdfast.runtime.verbs.answer import Answering
from holdfast.runtime.verbs.resume import Resuming
from holdfast.runtime.verbs.send import Sending
from holdfast.secrecy import forget, learn
from holdfast.session.authority.context import MessageSource, Workspace
from holdfast.session.authority.policy import Way
from holdfast.session.commands import (
    AnswerApproval,
    Cancel,
    CancelReminder,
    Expire,
    MarkDelivery,
    QueueDelivery,
)
from holdfast.session.decide.lifecycle import delivery_id
from holdfast.session.events import InputKind


class Service:
    """One per open home. An async context manager: leaving it stops its drives gracefully."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.feed = Feed()
        self.home = HomeLedger(world.store, world.clock)
        self.time = HomeTime(self.home, world.clock)
        world.check_clock = self.home.check_clock
        world.now_ms = self.time.now_ms
        self.shelf = OpenSessions(
            world.store,
            time=self.time,
            also=lambda before, events: owed_by(world.channels, before, events),
            on_sealed=lambda session, instance: write_sealed_row(world, session, instance),
        )
        self.delegation = Delegation(world, self.shelf)
        self.jobs = JobKeeper(world, self.shelf, self.feed, self.drive_all)
        self.noting = IndexWriter(world)
        drives = self._drives = TurnRunner(
            world, self.shelf, self.home, self.feed, self.delegation, self.noting
        )
        self._sending = Sending(world, self.shelf, self.delegation, drives)
        self._answering = Answering(
            world, self.shelf, self.home, self.time, self.delegation, drives
        )
        self._resuming = Resuming(
            world, self.shelf, self.home, self.time, self.delegation, self.jobs, drives
        )
        self._foreign = ExternalTurns(world, self.shelf, self.home, drives)
        self._stack = AsyncExitStack()
        self._listener: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # Closed from the last to the first; each is closed even if another fails.
        world, stack = self.world, self._stack
        learn(self, world.secrets)
        stack.callback(forget, self)
        stack.push_async_callback(world.store.close)
        for each in (world.memory, world.search, world.index):
            if each is not None:
                stack.callback(each.close)
        stack.push_async_callback(self.home.close)
        stack.push_async_callback(self.shelf.close)
        stack.callback(self.noting.settle)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        self._listener = group.create_task(self._listen())
        self._keeper = group.create_task(self.jobs.run(group))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.jobs.leave(at_once=exc[0] is not None)
        for task in (self._listener, self._keeper):
            if task is not None:
                task.cancel()
        await self._stack.aclose()

    async def _listen(self) -> None:
        """Wake the tasks that wait on a session in this process, on notices from any process."""
        async with self.world.notifier.listen() as notices:
            async for session in notices:
                if (ledger := self.shelf.get(session)) is not None:
                    ledger.notice()
                self.jobs.notice(session)

    # --- turns

    async def create(self, session: str, *, by: str) -> None:
        """
        Create a session of that name if it does not exist, so that it can be followed before its
        first message.
        """
        refuse_secrets(self.world, session, by, what="name")
        await ensure_session(self.world, session_id(session), by=by)

    async def send(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        model: str | None = None,
        dedup: str | None = None,
        workspace: Workspace | None = None,
        default_workspace: Workspace | None = None,
        kind: InputKind = "message",
        wait: bool = True,
    ) -> TurnReport:
        """Accept a message, durably, and drive its turn to its end or a pause."""
        incoming = Incoming(
            text=text,
            source=source,
            agent=agent,
            model=model,
            dedup=dedup,
            workspace=workspace,
            default_workspace=default_workspace,
            kind=kind,
        )
        return await self._sending.send(session_id(session), incoming, wait=wait)

    async def answer(
        self,
        approval: ApprovalId,
        option: str,
        *,
        by: str,
        digest: str | None = None,
        reason: str | None = None,
        arguments: Any = None,
        answer_id: str | None = None,
        asserted_by: str | None = None,
        way: Way = "script",
        wait: bool = True,
    ) -> AnswerReport:
        """
        Record an answer, durably, and drive the turn on. A refusal is raised; the prompt stays as
        it was.

        `way` is how the answer came; a program that calls this is a script.
        """
        command = AnswerApproval(
            approval=approval,
            option=option,
            by=by,
            answer_id=answer_id or "r-" + secrets.token_hex(16),
            digest=digest,
            reason=reason,
            arguments=written_as_json(arguments) if arguments is not None else None,
            asserted_by=asserted_by,
            way=way,
            consent=self.world.policy().consent,
        )
        return await self._answering.answer(command, wait=wait)

    async def cancel(
        self, session: str, *, by: str, turn: TurnId | None = None, may_all: bool = False
    ) -> tuple[TurnReport, ...]:
        """
        Cancel turns, durably. A driver in another process sees it at the next notice, within a
        second at most.
        """
        async with self.shelf.use(session_id(session)) as ledger:
            cancel = Cancel(by=by, turn=turn, may_all=may_all)
            outcome = await ledger.commit(Expire(), cancel, check=Check.FENCE)
            self.world.notifier.notify(ledger.session)
            cancelled = outcome.of(cancel) or ()
            await self.delegation.stop_unwanted_below(ledger)
            await self.delegation.report(ledger)
            note(self.world, ledger)
            return tuple([await turn_report(ledger, each) for each in cancelled])

    async def drive_above(self, session: str) -> None:
        """
        After a delegate was cancelled, resume its parents. Errors while resuming do not undo the
        cancel; the rest stays owed, and any process may resume it.
        """
        async with self.shelf.use(session_id(session)) as ledger:
            with suppress(HoldfastError):
                await self._drives.drive_up(ledger)

    async def resume(
        self, session: str, *, by: str, model: str | None = None, since: int | None = None
    ) -> TurnReport:
        """
        Drive the owed work until nothing is owed. A turn that ended after record `since` is
        reported even if nothing is owed any more.
        """
        return await self._resuming.resume(session_id(session), by=by, model=model, since=since)

    async def owing_heads(self, patience: LockWaitBudget | None = None) -> Mapping[SessionId, int]:
        """
        Return `owing`, each with its last record. Resuming one session may end turns of another,
        which then still reports them.
        """
        return await self._resuming.owing_heads(patience)

    def foreign_turn(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        workspace: Workspace | None = None,
    ) -> AbstractAsyncContextManager[ExternalTurn]:
        """Begin a turn that the caller's own loop drives. Left without an end, it fails."""
        return self._foreign.begin(
            session_id(session),
            Incoming(text=text, source=source, agent=agent, workspace=workspace),
        )

    def foreign_turn_again(
        self, session: str, turn: TurnId
    ) -> AbstractAsyncContextManager[ExternalTurn]:
        """Resume a parked turn of such a loop in another loop."""
        return self._foreign.again(session_id(session), turn)

    # --- serving

    async def owing(self, patience: LockWaitBudget | None = None) -> Sequence[SessionId]:
        """
        Return the sessions in which a driver could do something now, from the index. Sessions that
        are behind their journal are opened, and jobs are checked.
        """
        return await self._resuming.owing(patience)

    async def drive_all(self, session: SessionId, *, until: Until | None = None) -> None:
        """
        For a process that stays: close expired prompts, then drive until nothing is owed that this
        process can do, or `until` holds.
        """
        await self._resuming.drive_all(session, until)

    # --- one commit, and nothing driven

    async def compact(self, session: str) -> CompactionReport:
        """
        Summarise all but the last turns in the view. The journal keeps everything; nothing is
        driven.
        """
        async with self.shelf.use(session_id(session)) as ledger:
            await ledger.commit(check=Check.FENCE)
            report = await Compactor(self.world, ledger, self.feed, ledger.commit).now()
            note(self.world, ledger)
            self.world.notifier.notify(ledger.session)
            return report

    async def mirror(
        self,
        session: str,
        turn: TurnId,
        *,
        channel: str,
        part: str,
        text: str,
        receipt: str = "",
        kind: str = "reply",
    ) -> str:
        """
        Record that a channel has shown something of a turn by itself: an owned write, also while
        the turn runs. Return the delivery's id.

        There is one id per (turn, channel, part). The same part again records nothing, and the
        outbox never sends it.
        """
        async with self.shelf.use(session_id(session)) as ledger:
            name = delivery_id(ledger.state, turn, channel, part)
            await ledger.commit(
                QueueDelivery(turn=turn, channel=channel, part=part, kind=kind, text=text),
                MarkDelivery(delivery=name, became="sent"),
                MarkDelivery(delivery=name, became="confirmed", detail=receipt),
            )
            self.world.notifier.notify(ledger.session)
            return name

    # --- reminders

    async def remind(
        self,
        session: str,
        wanted: reminding.Wanted,
        *,
        source: MessageSource,
        agent: str | None = None,
        model: str | None = None,
        workspace: Workspace | None = None,
        default_workspace: Workspace | None = None,
    ) -> ReminderReport:
        """
        Set a reminder for the source's person, durably, and notify the process that serves this
        home.
        """
        name = session_id(session)
        incoming = Incoming(
            text=wanted.text,
            source=source,
            agent=agent,
            model=model,
            workspace=workspace,
            default_workspace=default_workspace,
            kind="reminder",
        )
        refuse_unfit(self.world, name, incoming)
        when = reminding.when_of(self.world, wanted)
        await ensure_session(self.world, name, by=incoming.sender)
        async with self.shelf.use(name) as ledger:
            await ledger.refresh()
            kept = accepting(self.world, ledger.state, incoming)
            report = await reminding.set_by_source(
                self.world,
                ledger,
                wanted,
                when,
                source=source,
                agent=kept.agent,
                model=kept.model,
                workspace=kept.workspace,
            )
            await self._changed(ledger)
            return report

    async def reminders(
        self, *, patience: LockWaitBudget | None = None
    ) -> tuple[ReminderReport, ...]:
        """Return the active reminders of all sessions, the next one first."""
        return await listing.reminders(self.world, self.shelf, patience=patience)

    async def reminder(self, reminder: str) -> ReminderReport:
        found = next((each for each in await self.reminders() if each.id == reminder), None)
        if found is None:
            raise Refused(
                f"there is no reminder {reminder}",
                code="unknown",
                hint="`holdfast reminders list` shows those that stand",
            )
        return found

    async def cancel_reminder(
        self, reminder: str, *, by: str, may_all: bool = False
    ) -> ReminderReport:
        """Cancel a reminder, durably: it never fires again, in any process."""
        found = await self.reminder(reminder)
        async with self.shelf.use(found.session) as ledger:
            await ledger.commit(
                CancelReminder(reminder=ReminderId(reminder), by=by, may_all=may_all),
                check=Check.FENCE,
            )
            await self._changed(ledger)
        return found

    async def _changed(self, ledger: Ledger) -> None:
        """
        After an append: sync the anchor, update the index and notify waiting processes of the next
        reminder.
        """
        await ledger.journal.sync_anchor()
        note(self.world, ledger)
        self.world.notifier.notify(ledger.session)

    # --- looking

    def patience(self) -> LockWaitBudget:
        """
        The lock budget of one list: how long it waits for writers in all. Afterwards it names the
        sessions that could not be read.
        """
        return LockWaitBudget(self.world.store)

    async def approvals(
        self,
        *,
        for_: str | None = None,
        everything: bool = False,
        patience: LockWaitBudget | None = None,
    ) -> tuple[ApprovalReport, ...]:
        await self.time.look()
        return await listing.approvals(
            self.world, self.shelf, for_=for_, everything=everything, patience=patience
        )

    async def approvals_json(self, *, patience: LockWaitBudget | None = None) -> msgspec.Raw:
        """
        All open prompts, as one JSON array of ApprovalReports: for callers that only pass it on.
        """
        await self.time.look()
        return await listing.approvals_json(self.world, self.shelf, patience=patience)

    async def approval(self, approval: ApprovalId) -> ApprovalReport:
        return await listing.approval(self.world, self.shelf, approval)

    async def show(self, session: str) -> SessionReport:
        async with self.shelf.use(session_id(session)) as ledger:
            return await session_report(ledger, now=self.world.clock.now_ms())

    async def doubts(self, report: TurnReport) -> tuple[str, ...]:
        """Describe for the person the calls of this turn whose outcome is unknown."""
        if report.turn is None or report.outcome == "sealed":
            return ()
        async with self.shelf.use(session_id(report.session)) as ledger:
            return unknown_outcomes(ledger, report.turn)

    async def turn(self, session: str, turn: TurnId) -> TurnReport:
        async with self.shelf.use(session_id(session)) as ledger:
            await ledger.refresh()
            return await self.delegation.standing(ledger, turn)

    async def sessions(
        self,
        *,
        after: SessionId | None = None,
        limit: int | None = None,
        sees: listing.Sees | None = None,
        reads_all: listing.Sees | None = None,
    ) -> tuple[listing.SessionLine, ...]:
        sealed = await self.world.store.seals()
        await self.time.look()
        return await listing.sessions(
            self.world,
            self.shelf,
            sealed=sealed,
            after=after,
            limit=limit,
            sees=sees,
            reads_all=reads_all,
        )

    def follow(self, session: str, *, after: int | None = None) -> AsyncIterator[Record | Any]:
        """
        Yield records as they are stored, and pieces of text and output as they come, without end.
        """
        return follow_session(self.shelf, self.feed, session_id(session), after=after)

    async def grants(self) -> tuple[GrantReport, ...]:
        state = await self.home.refresh()
        policy, now = self.world.policy(), self.home.moment(self.world.clock.now_ms()).now
        reports = (
            grant_report(grant, state.granted_at.get(name, 0), policy, now=now)
            for name, grant in sorted(state.grants.items())
        )
        return tuple(each for each in reports if each is not None)

    async def revoke(self, grant: GrantId, *, by: str, may_all: bool = False) -> None:
        await self.home.revoke(grant, by=by, may_all=may_all)
