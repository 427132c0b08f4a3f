"""
Delegates: sessions that a call of another session started. This file stops unwanted ones and
reports their ends; `start.py` creates them.

Two journals cannot be written at once. So each step is durable in one before it is made in the
other, and is owed there until it is done:

    delegate_started   in the parent, with the name and instance of the session to be created; a
                       crash here leaves its creation owed (`CreateDelegate`)
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

from holdfast import limits
from holdfast.errors import InvariantBroken, Refused, Untrusted
from holdfast.ids import (
    DELEGATE_CHANNEL,
    ApprovalId,
    CallId,
    SessionId,
    TurnId,
)
from holdfast.ports.journal_store import Check
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.outputs import keep_if_possible
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.types import ApprovalReport, TurnReport, approval_report
from holdfast.runtime.runtime import Runtime
from holdfast.session.authority.context import LostContext, TurnContext, narrowed
from holdfast.session.commands import Cancel, MarkReported, ReportDelegate
from holdfast.session.decide.inputs import DELEGATE_HINT
from holdfast.session.events import CallOutcome
from holdfast.session.react import FIRST_TURN, is_wanted, owes_report
from holdfast.session.state import Delegate, SessionState, Turn


async def _why_unwanted(runtime: Runtime, state: SessionState) -> str | None:
    """
    The name under which a delegate must stop. None while it may continue, and for every session
    that is not a delegate.

    Read from its parent's journal, and from that one's parent's: a cancel anywhere above
    applies here at once, with or without a notice.
    """
    parent = state.parent
    if parent is None:
        return None
    if await runtime.world.store.current(parent.session) != parent.instance:
        return "holdfast: the session it worked for has ended its instance"
    async with runtime.sessions.use(parent.session) as above:
        if above.journal.sealed is not None:
            return "holdfast: the session it worked for is sealed"
        await above.catch_up_if_behind()
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
        return await _why_unwanted(runtime, above.state)


async def stop_if_unwanted(runtime: Runtime, ledger: Ledger) -> bool:
    """Cancel a delegate that must not continue, durably. Return whether it must stop."""
    by = await _why_unwanted(runtime, ledger.state)
    if by is None:
        return False
    await _cancel(ledger, by)
    return True


async def _cancel(ledger: Ledger, by: str) -> None:
    await ledger.commit(Cancel(by=by, turn=FIRST_TURN, may_all=True), check=Check.FENCE)


async def stop_unwanted_below(runtime: Runtime, ledger: Ledger) -> None:
    """
    Stop every delegate of this session that no call waits for any more, and their delegates.
    """
    for child in tuple(ledger.state.delegates.values()):
        if not is_wanted(ledger.state, child):
            await stop_delegate(runtime, ledger, child.call)


async def stop_delegate(runtime: Runtime, ledger: Ledger, call: CallId) -> None:
    """
    Cancel a delegate and everything it started. If nothing runs in it, it ends and is reported
    at once; otherwise its driver does that.
    """
    child = ledger.state.delegates.get(call)
    if child is None:
        return
    if await runtime.world.store.current(child.session) != child.instance:
        await settle_lost(runtime, ledger, child)
        return
    turn = ledger.state.turns.get(child.turn)
    by = turn.cancelled_by if turn is not None else None
    async with runtime.sessions.use(child.session) as below:
        if below.journal.sealed is not None:
            await settle_lost(runtime, ledger, child)
            return
        await _cancel(below, by or "holdfast: the request it worked for is over")
        await stop_unwanted_below(runtime, below)
        await report_to_parent(runtime, below)


async def stop_orphaned_delegates(runtime: Runtime, children: Iterable[Delegate]) -> None:
    """
    Stop the delegates of an ended instance: no call waits for them, and this process is here to
    cancel them.
    """
    for child in children:
        if await runtime.world.store.current(child.session) == child.instance:
            async with runtime.sessions.use(child.session) as below:
                if below.journal.sealed is None and await stop_if_unwanted(runtime, below):
                    await stop_unwanted_below(runtime, below)
                    await report_to_parent(runtime, below)


async def settle_lost_delegates(runtime: Runtime, ledger: Ledger) -> None:
    """
    Finish calls whose delegates can never report: deleted, sealed, or replaced by another
    instance. Each gets an unknown outcome.
    """
    for child in tuple(ledger.state.delegates.values()):
        if await _is_lost(runtime, child):
            await settle_lost(runtime, ledger, child)


async def _is_lost(runtime: Runtime, child: Delegate) -> bool:
    living = await runtime.world.store.current(child.session)
    if living is None:
        return child.exists
    if living != child.instance:
        return True
    async with runtime.sessions.use(child.session) as below:
        return below.journal.sealed is not None


async def settle_lost(runtime: Runtime, ledger: Ledger, child: Delegate) -> None:
    if child.exists or await runtime.world.store.current(child.session) is not None:
        outcome: CallOutcome = "in_doubt"
        text = (
            f"In doubt: nobody can say any more how far {child.agent} came. Check before trying "
            "again."
        )
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


async def report_to_parent(runtime: Runtime, ledger: Ledger) -> None:
    """
    Report the delegate's end to the parent, once, and record that the parent has it.

    A crash between the two reports again, and the parent drops that. A parent that is sealed or
    in another instance takes nothing: nothing waits there.
    """
    state, parent = ledger.state, ledger.state.parent
    if parent is None or not owes_report(state):
        return
    became: Literal["reported", "dropped"] | None = "dropped"
    if await runtime.world.store.current(parent.session) == parent.instance:
        with suppress(Untrusted):
            async with runtime.sessions.use(parent.session) as above:
                if above.journal.sealed is None:
                    became = await _report_to(above, ledger)
    await ledger.commit(MarkReported(became="reported" if became == "reported" else "dropped"))


async def _report_to(above: Ledger, ledger: Ledger) -> Literal["reported", "dropped"] | None:
    report = await turn_report(ledger, FIRST_TURN)
    command = await _result(above, ledger.state, report)
    return (await above.commit(command, check=Check.FENCE)).of(command)


async def _result(above: Ledger, state: SessionState, report: TurnReport) -> ReportDelegate:
    parent = state.parent
    if parent is None:
        raise InvariantBroken(f"{state.session} is not a delegate's session")
    doubts = tuple(key for key, _ in state.in_doubt.items() if key not in parent.doubts)
    outcome, text = _outcome_and_text(report, parent.path[-1], len(doubts))
    data, output = text.encode(), None
    if len(data) > limits.TOOL_OUTPUT_VIEW_BYTES:
        shown = data[: limits.TOOL_OUTPUT_VIEW_BYTES].decode(errors="ignore")
        output, text = await keep_if_possible(
            above, data, f"{shown}\n[shortened; all of it is in {state.session}]"
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


async def prompts_below(runtime: Runtime, turn: Turn) -> tuple[ApprovalReport, ...]:
    """The open prompts of a turn's delegates, and of their delegates."""
    found: list[ApprovalReport] = []
    for call in turn.delegated:
        child = call.delegate
        if child is None or await runtime.world.store.current(child.session) != child.instance:
            continue
        async with runtime.sessions.use(child.session) as below:
            if below.journal.sealed is not None or below.only_read is not None:
                continue
            await below.catch_up_if_behind()
            for each in below.state.turns.values():
                found += [
                    approval_report(below.session, below.instance, each, asked)
                    for asked in each.open_approvals
                ]
                found += await prompts_below(runtime, each)
    return tuple(found)


async def asked_below(
    runtime: Runtime, state: SessionState
) -> dict[TurnId, tuple[ApprovalId, ...]]:
    """For each turn that waits for delegates, the prompts that it waits for there."""
    parked = [turn for turn in state.turns.values() if turn.delegated]
    return {
        turn.id: tuple(each.id for each in await prompts_below(runtime, turn)) for turn in parked
    }


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


def _outcome_and_text(report: TurnReport, agent: str, doubts: int) -> tuple[CallOutcome, str]:
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
