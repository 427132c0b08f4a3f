"""
The facade: every verb of an open home. The library, the commands and the gateway call these, and
nothing behind them.

A verb appends the request, durably, and then makes sure that a process drives: this one if it can,
else another. It returns when its turn has ended or paused. Nothing here decides anything about a
turn; that is `session/`. Nothing here keeps state that the journal does not have.

    Service             turns: create, send, answer, cancel, drive_above, resume, compact, mirror,
                        rename, would_supersede, is_repeat, owing, owing_heads, drive_all
                        lists: approvals, approvals_json, approval, sessions, show, turn, doubts,
                        search, follow, patience, quarantined, read_quarantined
                        authority: grants, revoke, explain, accept_clock
    Service.jobs        list, show, follow, cancel, running
    Service.reminders   set, list, show, cancel
    Service.loops       turns of external loops: begin, take_up, ready, calls, items
    Service.memory      list, items, show, forget
    Service.lifecycle   unseal, lost_calls, fork, delete, export, import, restore, prune
    Service.servers     list, show, pin, unpin
    Service.decisions   who decided about which call, and its result
    Service.live        for a process that stays: due times, notices, open sessions, readers
    Service.home        the home's own journal: tokens, grants, the accepted clock

Verbs that commit and drive are implemented in `verbs/` and `external_loop/`, the rooms in
`rooms/`.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

import msgspec

from holdfast.ids import ApprovalId, GrantId, SessionId, TurnId, session_id
from holdfast.ports.journal_store import Check, Record
from holdfast.runtime.context import World
from holdfast.runtime.drive.compactor import CompactionReport, Compactor
from holdfast.runtime.drive.driver import Until
from holdfast.runtime.drive.turn import turn_standing
from holdfast.runtime.redaction import refuse_secrets
from holdfast.runtime.reports import prompt_list, session_list
from holdfast.runtime.reports.builder import unknown_outcomes
from holdfast.runtime.reports.explain import NEVER_BEGUN, Explanation, explain
from holdfast.runtime.reports.grants import GrantReport, grant_reports
from holdfast.runtime.reports.lock_budget import LockWaitBudget
from holdfast.runtime.reports.types import (
    AnswerReport,
    ApprovalReport,
    SessionReport,
    TurnReport,
)
from holdfast.runtime.rooms.decisions import DecisionVerbs
from holdfast.runtime.rooms.jobs import JobVerbs
from holdfast.runtime.rooms.lifecycle import LifecycleVerbs
from holdfast.runtime.rooms.live import LiveVerbs
from holdfast.runtime.rooms.loops import LoopVerbs
from holdfast.runtime.rooms.memory import MemoryVerbs
from holdfast.runtime.rooms.reminders import ReminderVerbs
from holdfast.runtime.rooms.servers import ServerVerbs
from holdfast.runtime.runtime import runtime_of
from holdfast.runtime.streams.follow import follow_session
from holdfast.runtime.verbs.accept import Incoming, ensure_session, written_as_json
from holdfast.runtime.verbs.answer import answer
from holdfast.runtime.verbs.cancel import cancel, drive_above
from holdfast.runtime.verbs.resume import drive_all, owing, owing_heads, resume
from holdfast.runtime.verbs.send import send, was_accepted, would_supersede
from holdfast.secrecy import forget, learn
from holdfast.session.authority.context import MessageSource, Workspace
from holdfast.session.authority.policy import Way
from holdfast.session.commands import (
    AnswerApproval,
    Cancel,
    MarkDelivery,
    QueueDelivery,
    RenameSession,
)
from holdfast.session.decide.lifecycle import delivery_id
from holdfast.session.evolve.fold import initial

if TYPE_CHECKING:
    from holdfast.runtime.ledger.home_authority import ClockReport
    from holdfast.runtime.reports.search import SearchReport


class Service:
    """One per open home. An async context manager: leaving it stops its drives gracefully."""

    def __init__(self, world: World) -> None:
        self.runtime = runtime_of(world, self.drive_all)
        self.home = self.runtime.home
        self.jobs = JobVerbs(self.runtime)
        self.memory = MemoryVerbs(self.runtime)
        self.lifecycle = LifecycleVerbs(self.runtime)
        self.live = LiveVerbs(self.runtime)
        self.decisions = DecisionVerbs(self.runtime)
        self.servers = ServerVerbs(self.runtime)
        self.loops = LoopVerbs(self.runtime)
        self.reminders = ReminderVerbs(self.runtime)
        self._stack = AsyncExitStack()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    async def __aenter__(self) -> Self:
        # Closed from the last to the first; each is closed even if another fails.
        runtime, world, stack = self.runtime, self.runtime.world, self._stack
        learn(self, world.secrets)
        stack.callback(forget, self)
        stack.push_async_callback(world.store.close)
        for each in (world.memory, world.search, world.index):
            if each is not None:
                stack.callback(each.close)
        stack.push_async_callback(runtime.home.close)
        stack.push_async_callback(runtime.sessions.close)
        if world.servers is not None:
            stack.push_async_callback(world.servers.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        self._tasks = (
            group.create_task(self._listen()),
            group.create_task(runtime.job_keeper.run(group)),
            group.create_task(runtime.announcer.run()),
        )
        if world.servers is not None and world.servers.names():
            await runtime.pins.refresh()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.runtime.job_keeper.leave(at_once=exc[0] is not None)
        for task in self._tasks:
            task.cancel()
        await self._stack.aclose()

    async def _listen(self) -> None:
        """Wake the tasks that wait on a session in this process, on notices from any process."""
        runtime = self.runtime
        async with runtime.world.notifier.listen() as notices:
            async for session in notices:
                if (ledger := runtime.sessions.get(session)) is not None:
                    ledger.notice()
                if session in runtime.job_keeper.watched:
                    runtime.job_keeper.watch(session)  # the record may be a cancel

    # --- turns

    async def create(self, session: str, *, by: str) -> None:
        """
        Create a session of that name if it does not exist, so that it can be followed before its
        first message.
        """
        refuse_secrets(self.runtime.world, session, by, what="name")
        await ensure_session(self.runtime.world, session_id(session), by=by)

    async def send(self, session: str, incoming: Incoming, *, wait: bool = True) -> TurnReport:
        """Accept a message, durably, and drive its turn to its end or a pause."""
        return await send(self.runtime, session_id(session), incoming, wait=wait)

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
            consent=self.runtime.world.policy().consent,
        )
        return await answer(self.runtime, command, wait=wait)

    async def cancel(
        self, session: str, *, by: str, turn: TurnId | None = None, may_all: bool = False
    ) -> tuple[TurnReport, ...]:
        """
        Cancel turns, durably. A driver in another process sees it at the next notice, within a
        second at most.
        """
        command = Cancel(by=by, turn=turn, may_all=may_all)
        return await cancel(self.runtime, session_id(session), command)

    async def drive_above(self, session: str) -> None:
        """After a delegate was cancelled, resume its parents. See `verbs/cancel.py`."""
        await drive_above(self.runtime, session_id(session))

    async def resume(
        self, session: str, *, by: str, model: str | None = None, since: int | None = None
    ) -> TurnReport:
        """
        Drive the owed work until nothing is owed. A turn that ended after record `since` is
        reported even if nothing is owed any more.
        """
        return await resume(self.runtime, session_id(session), by=by, model=model, since=since)

    async def owing_heads(self, patience: LockWaitBudget | None = None) -> Mapping[SessionId, int]:
        """
        Return `owing`, each with its last record. Resuming one session may end turns of another,
        which then still reports them.
        """
        return await owing_heads(self.runtime, patience)

    async def would_supersede(
        self, session: str, *, source: MessageSource | None, keys: tuple[str, ...] = ()
    ) -> tuple[ApprovalId, ...]:
        """
        Return the prompts that a message from this source would close. Nothing is written. A
        message with one of these dedup keys that was accepted before closes none.
        """
        return await would_supersede(
            self.runtime, session_id(session), Incoming(text="-", source=source, aliases=keys)
        )

    async def is_repeat(
        self, session: str, *, source: MessageSource | None, keys: tuple[str, ...]
    ) -> bool:
        """Return whether a message with one of these dedup keys was accepted from this source."""
        return await was_accepted(
            self.runtime, session_id(session), Incoming(text="-", source=source, aliases=keys)
        )

    # --- a process that stays

    async def owing(self, patience: LockWaitBudget | None = None) -> Sequence[SessionId]:
        """
        Return the sessions in which a driver could do something now, from the index. Sessions that
        are behind their journal are opened, and jobs are checked.
        """
        return await owing(self.runtime, patience)

    async def drive_all(self, session: SessionId, *, until: Until | None = None) -> None:
        """
        For a process that stays: close expired prompts, then drive until nothing is owed that this
        process can do, or `until` holds.
        """
        await drive_all(self.runtime, session, until)

    # --- one commit, and nothing driven

    async def rename(self, session: str, title: str, *, by: str, may_all: bool = False) -> str:
        """
        Give a conversation another title, durably, and return it. An empty title: the first message
        gives it.
        """
        refuse_secrets(self.runtime.world, title, by, what="title")
        command = RenameSession(title=title, by=by, may_all=may_all)
        async with self.runtime.sessions.use(session_id(session)) as ledger:
            return (await ledger.commit(command, check=Check.FENCE)).of(command)

    async def compact(self, session: str) -> CompactionReport:
        """
        Summarise all but the last turns in the view. The journal keeps everything; nothing is
        driven.
        """
        async with self.runtime.sessions.use(session_id(session)) as ledger:
            await ledger.commit(check=Check.FENCE)
            return await Compactor(
                self.runtime.world, ledger, self.runtime.feed, ledger.commit
            ).now()

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
        async with self.runtime.sessions.use(session_id(session)) as ledger:
            name = delivery_id(ledger.state, turn, channel, part)
            await ledger.commit(
                QueueDelivery(turn=turn, channel=channel, part=part, kind=kind, text=text),
                MarkDelivery(delivery=name, became="sent"),
                MarkDelivery(delivery=name, became="confirmed", detail=receipt),
            )
            return name

    # --- looking

    def patience(self) -> LockWaitBudget:
        """
        The lock budget of one list: how long it waits for writers in all. Afterwards it names the
        sessions that could not be read.
        """
        return LockWaitBudget(self.runtime.world.store)

    async def approvals(
        self,
        *,
        for_: str | None = None,
        everything: bool = False,
        patience: LockWaitBudget | None = None,
    ) -> tuple[ApprovalReport, ...]:
        await self.runtime.home.refresh_if_readable()
        return await prompt_list.approvals(
            self.runtime.world,
            self.runtime.sessions,
            for_=for_,
            everything=everything,
            patience=patience,
        )

    async def approvals_json(self, *, patience: LockWaitBudget | None = None) -> msgspec.Raw:
        """
        All open prompts, as one JSON array of ApprovalReports: for callers that only pass it on.
        """
        await self.runtime.home.refresh_if_readable()
        return await prompt_list.approvals_json(
            self.runtime.world, self.runtime.sessions, patience=patience
        )

    async def approval(self, approval: ApprovalId) -> ApprovalReport:
        return await prompt_list.approval(self.runtime.world, self.runtime.sessions, approval)

    async def show(self, session: str) -> SessionReport:
        return await session_list.show_session(self.runtime, session_id(session))

    async def quarantined(self, session: str) -> tuple[str, ...]:
        """The places of what could not be journalled, oldest first."""
        async with self.runtime.sessions.use(session_id(session)) as ledger:
            return tuple(await ledger.journal.quarantined())

    async def read_quarantined(self, session: str, place: str) -> tuple[str, bytes]:
        """The kind and the bytes of one item; refused if it was not written with our key."""
        async with self.runtime.sessions.use(session_id(session)) as ledger:
            return await ledger.journal.read_quarantined(place)

    async def doubts(self, report: TurnReport) -> tuple[str, ...]:
        """Describe for the person the calls of this turn whose outcome is unknown."""
        if report.turn is None or report.outcome == "sealed":
            return ()
        async with self.runtime.sessions.use(session_id(report.session)) as ledger:
            return unknown_outcomes(ledger, report.turn)

    async def turn(self, session: str, turn: TurnId) -> TurnReport:
        async with self.runtime.sessions.use(session_id(session)) as ledger:
            await ledger.catch_up()
            return await turn_standing(self.runtime, ledger, turn)

    async def sessions(
        self,
        *,
        after: SessionId | None = None,
        limit: int | None = None,
        sees: session_list.Sees | None = None,
        reads_all: session_list.Sees | None = None,
    ) -> tuple[session_list.SessionLine, ...]:
        sealed = await self.runtime.world.store.seals()
        await self.runtime.home.refresh_if_readable()
        return await session_list.sessions(
            self.runtime.world,
            self.runtime.sessions,
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
        return follow_session(
            self.runtime.sessions, self.runtime.feed, session_id(session), after=after
        )

    async def explain(
        self,
        session: str,
        tool: str,
        arguments: bytes | None = None,
        *,
        source: MessageSource,
        workspace: Workspace | None = None,
    ) -> Explanation:
        """
        Return which rule would decide such a call, on which line, and whom it would ask. A session
        that does not exist is judged as it would begin, and is not created.
        """
        name = session_id(session)
        if await self.runtime.world.store.current(name) is None:
            state = initial(name, NEVER_BEGUN)
        else:
            async with self.runtime.sessions.use(name) as ledger:
                await ledger.catch_up()
                state = ledger.state
        return explain(
            self.runtime.world,
            state,
            tool,
            arguments,
            source=source,
            workspace=workspace,
            grants=await self.home.grants_of(source.person, state),
        )

    async def grants(self) -> tuple[GrantReport, ...]:
        return await grant_reports(self.runtime)

    async def accept_clock(self, *, by: str) -> "ClockReport | None":
        """Accept the clock as right, at an operator's request. None if nothing disputes it."""
        from holdfast.runtime.ledger.home_authority import accept_clock

        return await accept_clock(self.home, self.live.clock_ms(), by=by)

    async def revoke(self, grant: GrantId, *, by: str, may_all: bool = False) -> None:
        await self.home.revoke(grant, by=by, may_all=may_all)

    async def search(
        self, text: str, *, person: str | None, limit: int = 20, after: str | None = None
    ) -> "SearchReport":
        """Find pieces of conversation that hold all the words. See `reports/search.py`."""
        from holdfast.runtime.reports.search import search

        return await search(self.runtime, text, person=person, limit=limit, after=after)
