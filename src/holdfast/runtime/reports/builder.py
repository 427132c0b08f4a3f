"""From state and journal to the reports of a turn and of a session."""

from collections.abc import Iterator

from holdfast.ids import CallId, TurnId
from holdfast.runtime.ledger.ledger import Ending, Ledger
from holdfast.runtime.ledger.record_search import record_at
from holdfast.runtime.reminders import reports_of
from holdfast.runtime.reports.types import (
    DelegateReport,
    DeliveryReport,
    ErrorReport,
    ParentReport,
    RecallReport,
    RetryReport,
    RunningJob,
    SealedReport,
    SessionReport,
    TurnReport,
    approval_report,
    iso,
)
from holdfast.session.authority.context import TurnContext
from holdfast.session.codec import decode
from holdfast.session.events import CallFinished, InputDropped, ToolStarted, TurnEnded
from holdfast.session.react import react
from holdfast.session.state import Phase, SessionState, Turn


async def turn_report(ledger: Ledger, turn: TurnId | None) -> TurnReport:
    """Report a turn's current state, or how it ended."""
    state = ledger.state
    if turn is None:
        return TurnReport(session=ledger.session, turn=None, outcome="completed", seq=state.seq)
    if any(each.turn == turn for each in state.queued):
        return TurnReport(session=ledger.session, turn=turn, outcome="queued", seq=state.seq)
    if (open_turn := state.find_turn(turn)) is not None:
        return _open(ledger, open_turn)
    if (ending := await _ending(ledger, turn)) is not None:
        return _ended(ledger, turn, ending)
    unknown = ErrorReport(
        "unknown",
        f"{ledger.session} does not remember how {turn} ended",
        f"`holdfast sessions export {ledger.session}` has everything",
    )
    return TurnReport(
        session=ledger.session, turn=turn, outcome="failed", error=unknown, seq=state.seq
    )


def _open(ledger: Ledger, turn: Turn) -> TurnReport:
    waiting = turn.phase is Phase.PARKED and bool(turn.waiting)
    asked = [
        approval_report(ledger.session, ledger.instance, turn, each) for each in turn.open_approvals
    ]
    return TurnReport(
        session=ledger.session,
        turn=turn.id,
        outcome="waiting" if waiting else "running",
        approvals=tuple(asked),
        usage=turn.usage,
        seq=ledger.state.seq,
    )


async def _ending(ledger: Ledger, turn: TurnId) -> Ending | None:
    """Read the end from memory if it is recent, else from its place in the journal."""
    if (known := ledger.endings.get(turn)) is not None:
        return known
    result = ledger.state.results.get(turn)
    if result is None:
        return None

    found = await record_at(ledger.journal, result.seq)
    if found is None:
        return None
    event = decode(found.type, found.version, found.body, seq=found.seq)
    if isinstance(event, InputDropped):  # it never began, so it has no end of its own
        event = TurnEnded(turn=turn, outcome="cancelled", code="cancelled", message=event.reason)
    return Ending(found.seq, event, result.usage) if isinstance(event, TurnEnded) else None


def _ended(ledger: Ledger, turn: TurnId, ending: Ending) -> TurnReport:
    event = ending.event
    failed = event.outcome != "completed"
    return TurnReport(
        session=ledger.session,
        turn=turn,
        outcome=event.outcome,
        reply=event.reply,
        error=_error(event) if failed else None,
        usage=ending.usage,
        seq=ending.seq,
    )


def unknown_outcomes(ledger: Ledger, turn: TurnId) -> tuple[str, ...]:
    """
    Describe for the person the turn's calls whose outcome is unknown (T2), if they are recent: the
    text that the model got, and the call.
    """
    began: dict[CallId, ToolStarted] = {}
    described = []
    for record in ledger.recent:
        if record.type not in ("tool_started", "call_finished"):
            continue
        match decode(record.type, record.version, record.body, seq=record.seq):
            case ToolStarted(call=call) as started:
                began[call] = started
            case CallFinished(turn=of, call=call, outcome="in_doubt", text=text) if of == turn:
                what = began.get(call)
                described.append(
                    f"{text}\n  {what.tool} {what.arguments}" if what is not None else text
                )
            case _:
                pass
    return tuple(described)


_BOUNDS = frozenset(
    {"turn_model_calls_max", "turn_tool_calls_max", "turn_tokens_max", "turn_cost_max"}
)


def _error(event: TurnEnded) -> ErrorReport:
    code = event.code or event.outcome
    further = (
        f"send another message to go on, or raise {code} in [limits] of holdfast.toml"
        if code in _BOUNDS
        else None
    )
    return ErrorReport(
        code,
        event.message or event.outcome,
        event.hint or further or "send the message again if it is still wanted",
    )


def phase_of(state: SessionState) -> str:
    """
    The session's phase in one word: its running turn's phase, else parked, queued or idle. A turn
    that waits for the next try of a model call is `retrying`.
    """
    if state.running is not None:
        turn = state.turns[state.running]
        return "retrying" if turn.waits_for_model else turn.phase.value
    if state.turns:
        return Phase.PARKED.value
    return "queued" if state.queued else "idle"


async def session_report(ledger: Ledger, *, now: int) -> SessionReport:
    state, mark = ledger.state, ledger.journal.sealed
    asked = (
        []
        if mark is not None
        else [each.asked for turn in state.turns.values() for each in turn.open_approvals]
    )
    expired = sum(now >= each.expires_at for each in asked)
    return SessionReport(
        session=ledger.session,
        instance=ledger.instance,
        phase="sealed" if mark is not None else phase_of(state),
        seq=state.seq,
        sealed=SealedReport(mark.code, mark.detail, mark.at_seq) if mark is not None else None,
        journal=tuple(ledger.journal.where()),
        store=ledger.journal.store_name(),
        quarantine=tuple(await ledger.journal.quarantined()),
        turns=state.turns_ended + len(state.turns),
        owes=() if mark is not None else tuple(type(effect).__name__ for effect in react(state)),
        usage=state.usage,
        queued=len(state.queued),
        parked=tuple(turn.id for turn in state.turns.values() if turn.phase is Phase.PARKED),
        model=state.model,
        agent=state.agent,
        title=state.title,
        waiting=len(asked) - expired,
        expired=expired,
        deliveries=tuple(_deliveries(state)),
        memory=tuple(
            RecallReport(turn=each.turn, items=each.items, degraded=each.degraded)
            for each in state.recalls
        ),
        reminders=() if mark is not None else reports_of(ledger.session, state),
        parent=_parent(state),
        delegates=tuple(_delegates(state)),
        jobs=tuple(_jobs(state)),
        retry=_retry(state) if mark is None else None,
    )


def _retry(state: SessionState) -> RetryReport | None:
    turn = state.turns.get(state.running) if state.running is not None else None
    if turn is None or not turn.waits_for_model:
        return None
    return RetryReport(
        turn=turn.id,
        kind=turn.last_failure or "",
        tries=turn.model_failures,
        since=iso(turn.failing_since),
        next_at=iso(turn.retry_at),
    )


def _parent(state: SessionState) -> ParentReport | None:
    parent = state.parent
    return (
        ParentReport(session=parent.session, turn=parent.turn, call=parent.call, path=parent.path)
        if parent is not None
        else None
    )


def _delegates(state: SessionState) -> Iterator[DelegateReport]:
    for each in (*(ended for _, ended in state.delegates_ended.items()), *state.delegates.values()):
        yield DelegateReport(
            session=each.session,
            agent=each.agent,
            turn=each.turn,
            call=each.call,
            outcome=each.ended,
        )


def _jobs(state: SessionState) -> Iterator[RunningJob]:
    for job in state.jobs.values():
        if job.ended is None:
            context = job.context if isinstance(job.context, TurnContext) else None
            yield RunningJob(
                id=job.job,
                turn=job.turn,
                tool=job.tool,
                submitted_at=iso(job.submitted_at),
                cancelled_by=job.cancelled_by,
                audience=context.audience.value if context is not None else None,
                boundary=context.boundary if context is not None else None,
            )


def _deliveries(state: SessionState) -> Iterator[DeliveryReport]:
    for name, became in state.delivered.items():
        if became != "confirmed":
            yield DeliveryReport(delivery=name, state=became)
    for each in state.deliveries.values():
        yield DeliveryReport(
            delivery=each.delivery,
            state="sent" if each.sent else "queued",
            turn=each.turn,
            channel=each.channel,
            kind=each.kind,
        )
