"""
Delegates: sessions that a call of another session started. This file creates them, stops unwanted
ones, and reports their ends.

Two journals cannot be written at once. So each step is durable in one before it is made in the
other, and is owed there until it is done:

    delegate_started   in the parent, with the name and instance of the session to be created; a
                       crash here leaves its creation owed (`BearDelegate`)
    session_born       in the delegate, with its one input under the narrowed context; a crash here
                       leaves the work that any session owes
    turn_ended         in the delegate; a crash here leaves a report owed (`ReportToParent`)
    call_finished      in the parent, decided under its lock: the first report is taken, every
                       other is dropped
    delegate_reported  in the delegate: nothing is owed any more

A delegate does nothing on its own authority. Before a drive, a start and an answer it is compared
with its call in the parent's journal: exactly that call must still wait for it, and its authority
must be one that the call's turn could give.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

import msgspec

from holdfast import limits
from holdfast.errors import InvariantBroken, Refused, Untrusted
from holdfast.ids import (
    DELEGATE_CHANNEL,
    ApprovalId,
    CallId,
    SessionId,
    TurnId,
    delegate_of_tool,
    delegate_session,
)
from holdfast.ports.journal_store import Check, Draft
from holdfast.runtime.context import World
from holdfast.runtime.drive.binding import is_delegate, turn_tools
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.lifecycle.new_instance import new_instance
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.index_writer import note
from holdfast.runtime.reports.types import ApprovalReport, TurnReport, approval_report
from holdfast.session.authority.context import LostContext, TurnContext, narrowed
from holdfast.session.authority.plan import ToolDefinition
from holdfast.session.codec import encode
from holdfast.session.commands import AcceptInput, Cancel, MarkReported, NewDelegate, ReportDelegate
from holdfast.session.decide import commit as deciding
from holdfast.session.decide.inputs import DELEGATE_HINT
from holdfast.session.events import CallOutcome, DelegateOf, SessionBorn
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.react import FIRST_TURN, is_wanted, owes_report
from holdfast.session.state import Delegate, SessionState, Turn
from holdfast.session.turn_ids import find_turn


class _Task(msgspec.Struct):
    task: str


class Delegation:
    """One per open home; it keeps no state."""

    def __init__(self, world: World, shelf: OpenSessions) -> None:
        self._world = world
        self._shelf = shelf

    # --- starting

    def new(self, turn: Turn, call: CallId, definition: ToolDefinition) -> NewDelegate:
        """
        The values that a start would journal. The session's name follows from the call. Its
        instance is created here, and the first durable start keeps it.
        """
        agent = delegate_of_tool(definition.name)
        tools = tuple(
            sorted(
                name
                for name, tool in turn_tools(self._world, turn).items()
                if not is_delegate(tool)
            )
        )
        return NewDelegate(
            agent=agent,
            session=delegate_session(call),
            instance=new_instance(self._world.random_bytes),
            tools=tools,
        )

    async def bear(self, ledger: Ledger, turn_id: TurnId, call_id: CallId) -> None:
        """
        Make sure that the delegate's session exists, with its task. After a crash the same session
        is found, and not created twice.
        """
        turn, call = ledger.state.turns.get(turn_id), ledger.state.open_call(turn_id, call_id)
        if (
            turn is None
            or call is None
            or call.delegate is None
            or not is_wanted(ledger.state, call.delegate)
        ):
            return
        child = call.delegate
        living = await self._world.store.current(child.session)
        if living is None:
            await self._bear(
                ledger.state,
                turn,
                child,
                task=msgspec.json.decode(call.arguments or "{}", type=_Task).task,
            )
        elif living != child.instance:
            await self._lost(ledger, child)
        self._world.notifier.notify(child.session)

    async def _bear(self, state: SessionState, turn: Turn, child: Delegate, *, task: str) -> None:
        """
        Commit point: the session and its input are created together. Crash before it: nothing
        exists. Crash after it: the session owes its turn.
        """
        agent = self._world.agent(child.agent)
        parent = self._parent_of(state, turn, child)
        born = SessionBorn(
            session=child.session,
            instance=child.instance,
            origin="delegate",
            by=turn.context.requester or "nobody",
            from_session=state.session,
            from_instance=state.instance,
            parent=parent,
        )
        accept = AcceptInput(
            text=task,
            source=None,
            agent=agent.name,
            model=self._world.model(agent.model).name,
            policy=self._world.policy(),
            kind="delegate",
            context=handed_down(turn, child),
        )
        begun = evolve(initial(child.session, child.instance), born, seq=1, at=0)
        committed = deciding.commit(begun, [accept], now=self._world.clock.now_ms())
        if committed.refusal is not None:
            raise committed.refusal
        drafts = [Draft(*encode(event)) for event in (born, *committed.events)]
        try:
            journal = await self._world.store.create(
                child.session, child.instance, drafts, origin="delegate", by=born.by
            )
        except Refused as exc:
            if exc.code != "exists":
                raise
        else:
            await journal.close()

    def _parent_of(self, state: SessionState, turn: Turn, child: Delegate) -> DelegateOf:
        above = state.parent.path if state.parent is not None else (turn.agent,)
        budget = self._world.policy().prompts_per_turn_max
        left = budget if state.parent is None else min(budget, state.parent.prompts_max)
        return DelegateOf(
            session=state.session,
            instance=state.instance,
            turn=turn.turn,
            call=child.call,
            path=(*above, child.agent),
            tools=child.tools,
            prompts_max=max(0, left - turn.prompts),
            doubts=tuple(key for key, _ in state.in_doubt.items()),
        )

    # --- whether to go on

    async def unwanted(self, state: SessionState) -> str | None:
        """
        The name under which a delegate must stop. None while it may continue, and for every session
        that is not a delegate.

        Read from its parent's journal, and from that one's parent's: a cancel anywhere above
        applies here at once, with or without a notice.
        """
        parent = state.parent
        if parent is None:
            return None
        if await self._world.store.current(parent.session) != parent.instance:
            return "holdfast: the session it worked for has ended its life"
        async with self._shelf.use(parent.session) as above:
            if above.journal.sealed is not None:
                return "holdfast: the session it worked for is sealed"
            await above.look()
            turn, call = (
                above.state.turns.get(parent.turn),
                above.state.open_call(parent.turn, parent.call),
            )
            if turn is not None and turn.cancelled_by is not None:
                return turn.cancelled_by
            child = call.delegate if call is not None else None
            if (
                turn is None
                or child is None
                or (child.session, child.instance) != (state.session, state.instance)
            ):
                return "holdfast: no call waits for it"
            if not is_wanted(above.state, child):
                return "holdfast: the request it worked for was replaced"
            if not _is_what_was_handed_down(state, turn, child):
                return "holdfast: it has another authority than it was handed"
            return await self.unwanted(above.state)

    async def stop_if_unwanted(self, ledger: Ledger) -> bool:
        """Cancel a delegate that must not continue, durably. Return whether it must stop."""
        by = await self.unwanted(ledger.state)
        if by is None:
            return False
        await self._cancel(ledger, by)
        return True

    async def _cancel(self, ledger: Ledger, by: str) -> None:
        await ledger.commit(Cancel(by=by, turn=FIRST_TURN, may_all=True), check=Check.FENCE)
        self._world.notifier.notify(ledger.session)

    # --- stopping

    async def stop_unwanted_below(self, ledger: Ledger) -> None:
        """
        Stop every delegate of this session that no call waits for any more, and their delegates.
        """
        for child in tuple(ledger.state.delegates.values()):
            if not is_wanted(ledger.state, child):
                await self.stop(ledger, child.call)

    async def stop(self, ledger: Ledger, call: CallId) -> None:
        """
        Cancel a delegate and everything it started. If nothing runs in it, it ends and is reported
        at once; otherwise its driver does that.
        """
        child = ledger.state.delegates.get(call)
        if child is None:
            return
        if await self._world.store.current(child.session) != child.instance:
            await self._lost(ledger, child)
            return
        turn = ledger.state.turns.get(child.turn)
        by = turn.cancelled_by if turn is not None else None
        async with self._shelf.use(child.session) as below:
            if below.journal.sealed is not None:
                await self._lost(ledger, child)
                return
            await self._cancel(below, by or "holdfast: the request it worked for is over")
            await self.stop_unwanted_below(below)
            await self.report(below)
            note(self._world, below)

    async def stop_orphans(self, children: Iterable[Delegate]) -> None:
        """
        Stop the delegates of an ended instance: no call waits for them, and this process is here to
        cancel them.
        """
        for child in children:
            if await self._world.store.current(child.session) == child.instance:
                async with self._shelf.use(child.session) as below:
                    if below.journal.sealed is None and await self.stop_if_unwanted(below):
                        await self.stop_unwanted_below(below)
                        await self.report(below)

    async def settle_lost(self, ledger: Ledger) -> None:
        """
        Finish calls whose delegates can never report: deleted, sealed, or replaced by another
        instance. Each gets an unknown outcome.
        """
        for child in tuple(ledger.state.delegates.values()):
            if await self._is_lost(child):
                await self._lost(ledger, child)

    async def _is_lost(self, child: Delegate) -> bool:
        living = await self._world.store.current(child.session)
        if living is None:
            return child.born
        if living != child.instance:
            return True
        async with self._shelf.use(child.session) as below:
            return below.journal.sealed is not None

    async def _lost(self, ledger: Ledger, child: Delegate) -> None:
        if child.born or await self._world.store.current(child.session) is not None:
            outcome: CallOutcome = "in_doubt"
            text = f"In doubt: nobody can say any more how far {child.agent} came. Check before trying again."
        else:
            outcome, text = "error", f"{child.agent} had not begun."
        report = ReportDelegate(
            call=child.call,
            session=child.session,
            instance=child.instance,
            ended="lost",
            outcome=outcome,
            text=text,
            code="delegate_lost",
        )
        await ledger.commit(report, check=Check.FENCE)
        self._world.notifier.notify(ledger.session)

    # --- reporting

    async def report(self, ledger: Ledger) -> None:
        """
        Report the delegate's end to the parent, once, and record that the parent has it.

        A crash between the two reports again, and the parent drops that. A parent that is sealed or
        in another instance takes nothing: nothing waits there.
        """
        state, parent = ledger.state, ledger.state.parent
        if parent is None or not owes_report(state):
            return
        became: Literal["reported", "dropped"] | None = "dropped"
        if await self._world.store.current(parent.session) == parent.instance:
            with suppress(Untrusted):
                async with self._shelf.use(parent.session) as above:
                    if above.journal.sealed is None:
                        became = await self._report_to(above, ledger)
        await ledger.commit(MarkReported(became="reported" if became == "reported" else "dropped"))

    async def _report_to(
        self, above: Ledger, ledger: Ledger
    ) -> Literal["reported", "dropped"] | None:
        report = await turn_report(ledger, FIRST_TURN)
        command = await self._result(above, ledger.state, report)
        outcome = await above.commit(command, check=Check.FENCE)
        note(self._world, above)
        self._world.notifier.notify(above.session)
        return outcome.of(command)

    async def _result(
        self, above: Ledger, state: SessionState, report: TurnReport
    ) -> ReportDelegate:
        parent = state.parent
        if parent is None:
            raise InvariantBroken(f"{state.session} is no delegate's session")
        doubts = tuple(key for key, _ in state.in_doubt.items() if key not in parent.doubts)
        outcome, text = _told(report, parent.path[-1], len(doubts))
        data, output = text.encode(), None
        if len(data) > limits.TOOL_OUTPUT_VIEW_BYTES:
            output = await above.journal.keep_output(data)
            text = (
                data[: limits.TOOL_OUTPUT_VIEW_BYTES].decode(errors="ignore")
                + f"\n[shortened; all of it is in {state.session}]"
            )
        return ReportDelegate(
            call=parent.call,
            session=state.session,
            instance=state.instance,
            ended=report.outcome,
            outcome=outcome,
            text=text,
            code=report.error.code if report.error is not None else None,
            output=output,
            prompts=sum(1 for _ in state.settled.items())
            + sum(each.prompts for _, each in state.delegates_ended.items()),
            doubts=doubts,
            usage=state.usage,
        )

    # --- prompts below

    async def prompts_below(self, turn: Turn) -> tuple[ApprovalReport, ...]:
        """The open prompts of a turn's delegates, and of their delegates."""
        found: list[ApprovalReport] = []
        for call in turn.delegated:
            child = call.delegate
            if child is None or await self._world.store.current(child.session) != child.instance:
                continue
            async with self._shelf.use(child.session) as below:
                if below.journal.sealed is not None or below.only_read is not None:
                    continue
                await below.look()
                for each in below.state.turns.values():
                    found += [
                        approval_report(below.session, below.instance, each, asked)
                        for asked in each.open_approvals
                    ]
                    found += await self.prompts_below(each)
        return tuple(found)

    async def asked_below(self, state: SessionState) -> dict[TurnId, tuple[ApprovalId, ...]]:
        """For each turn that waits for delegates, the prompts that it waits for there."""
        parked = [turn for turn in state.turns.values() if turn.delegated]
        return {
            turn.turn: tuple(each.id for each in await self.prompts_below(turn)) for turn in parked
        }

    async def standing(self, ledger: Ledger, turn: TurnId | None) -> TurnReport:
        """Report a turn's state; its delegates' prompts count as its own."""
        report = await turn_report(ledger, turn)
        open_turn = find_turn(ledger.state, turn) if turn is not None else None
        if open_turn is None or not open_turn.delegated:
            return report
        asked = (*report.approvals, *await self.prompts_below(open_turn))
        return msgspec.structs.replace(
            report,
            approvals=asked,
            outcome="waiting" if asked and open_turn.parked else report.outcome,
        )


def handed_down(turn: Turn, child: Delegate) -> TurnContext:
    """
    The authority of a delegate of this turn: the turn's own, as journalled, and nothing on top.
    """
    if isinstance(turn.context, LostContext):
        raise Refused(f"nothing can be handed down: {turn.context.reason}", code="no_authority")
    return narrowed(
        turn.context,
        session=child.session,
        instance=child.instance,
        turn=FIRST_TURN,
        kind="delegate",
    )


def _is_what_was_handed_down(state: SessionState, turn: Turn, child: Delegate) -> bool:
    """
    Whether the delegate's authority in its own journal is the one that its parent's journal allows.
    A lost one allows nothing by itself.
    """
    mine = state.turns.get(FIRST_TURN)
    contexts = [mine.context] if mine is not None else [each.context for each in state.queued]
    if isinstance(turn.context, LostContext):
        return False
    same_tools = (
        state.parent is not None
        and state.parent.tools == child.tools
        and state.parent.path[-1] == child.agent
    )
    return same_tools and all(
        isinstance(each, LostContext) or each == handed_down(turn, child) for each in contexts
    )


def _told(report: TurnReport, agent: str, doubts: int) -> tuple[CallOutcome, str]:
    unknown = "One of its calls is" if doubts == 1 else f"{doubts} of its calls are"
    note = f"\n({unknown} in doubt: it may or may not have happened.)" if doubts else ""
    if report.outcome == "completed":
        return "ok", f"{report.reply or '(it said nothing)'}{note}"
    why = report.error.message if report.error is not None else report.outcome
    return ("in_doubt" if doubts else "error"), f"{agent} did not finish: {why}.{note}"


def refuse_delegates_name(session: SessionId) -> None:
    """
    Refuse the name: only a call creates such a session. An existing one would take the place of a
    delegate.
    """
    if session.startswith(f"{DELEGATE_CHANNEL}/"):
        raise Refused(
            f"{session} is the name of a delegate's session, which takes no messages",
            code="delegate",
            hint=DELEGATE_HINT,
        )
