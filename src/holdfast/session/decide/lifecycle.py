"""
Decide changes that are not one turn's step: recovery, compaction, deliveries, and the end of a
carried-over instance.
"""

from msgspec.structs import replace

from holdfast.errors import InvariantBroken, Refused
from holdfast.ids import TurnId, short_digest
from holdfast.session.call_results import lost_call
from holdfast.session.commands import (
    CloseInstance,
    MarkDelivery,
    QueueDelivery,
    RecordCompaction,
    RecordTurnCompaction,
    Recover,
    RenameSession,
)
from holdfast.session.decide.decision import NOTHING, Decided, refused
from holdfast.session.decide.external_loop import loop_gone
from holdfast.session.decide.turns import settle_calls
from holdfast.session.events import (
    Compacted,
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryPostponed,
    DeliveryQueued,
    DeliverySent,
    InputDropped,
    JobEnded,
    LifeCarried,
    ModelCallLost,
    SessionEvent,
    SessionRenamed,
    TurnCompacted,
    TurnEnded,
    TurnResumed,
)
from holdfast.session.recovery import RecoveryAction, case_for, findings_of, turns_to_recover
from holdfast.session.state import CallStatus, Phase, SessionState, Turn
from holdfast.session.view.titles import checked_title


def recover(
    state: SessionState, command: Recover, now: int
) -> Decided[tuple[tuple[TurnId, str], ...]]:
    """Settle the work that earlier drivers left in flight, by the lettered case of each turn."""
    events: list[SessionEvent] = []
    letters: list[tuple[TurnId, str]] = []
    for turn in turns_to_recover(state, command.epoch):
        if turn.loop == "foreign" and turn.cancelled_by is None:
            # The driver is gone, and the external loop with it. The turn waits for a loop.
            resumed = TurnResumed(turn=turn.id, epoch=command.epoch, after="crash")
            events.extend([resumed, *loop_gone(turn)])
            continue
        case = case_for(findings_of(turn, command.epoch))
        letters.append((turn.id, case.letter))
        events.extend(_by_case(turn, case.action, command.epoch, now))
    return Decided(tuple(events), outcome=tuple(letters))


def _by_case(turn: Turn, action: RecoveryAction, epoch: int, now: int) -> list[SessionEvent]:
    resumed: SessionEvent = TurnResumed(
        turn=turn.id, epoch=epoch, after="wait" if now < turn.retry_at else "crash"
    )
    started = [
        call
        for call in turn.calls
        if call.status is CallStatus.STARTED and call.epoch < epoch and call.job is None
    ]
    match action:
        case RecoveryAction.GO_ON | RecoveryAction.RUN_AGAIN:
            return [resumed]
        case RecoveryAction.LOSE_MODEL_CALL:
            if turn.model_call is None:
                raise InvariantBroken("case B without a model call")
            return [resumed, ModelCallLost(turn=turn.id, number=turn.model_call.number)]
        case RecoveryAction.RECORD_IN_DOUBT:
            once = [call for call in started if call.contract == "once"]
            return [resumed, *(event for call in once for event in lost_call(turn, call))]
        case RecoveryAction.END_CANCELLED:
            return _cancelled(turn)
        case RecoveryAction.FAIL:
            return _given_up(
                turn, "crash_loop", f"{turn.attempts} attempts in a row died with no step finished"
            )
        case RecoveryAction.IMPOSSIBLE:
            raise InvariantBroken(
                f"turn {turn.id} has a model call and a tool, or a cancel, out together"
            )


def _cancelled(turn: Turn) -> list[SessionEvent]:
    """
    Settle a cancelled turn. Delegates outlive their parent's driver, so they are stopped first and
    report their end before the turn ends.
    """
    settled = settle_calls(
        replace(
            turn,
            calls=tuple(call for call in turn.calls if call.status is not CallStatus.DELEGATED),
        ),
        f"Not run: stopped by {turn.cancelled_by}.",
    )
    if turn.delegated:
        return settled
    return [
        *settled,
        TurnEnded(
            turn=turn.id,
            outcome="cancelled",
            code="cancelled",
            message=f"stopped by {turn.cancelled_by}",
        ),
    ]


def _given_up(turn: Turn, code: str, message: str) -> list[SessionEvent]:
    ended = TurnEnded(
        turn=turn.id,
        outcome="failed",
        code=code,
        message=message,
        hint="look at the log of the process that died, then send the message again",
    )
    return [*settle_calls(turn, f"Not run: {message}."), ended]


def record_compaction(state: SessionState, command: RecordCompaction) -> Decided[str]:
    if command.compactions != state.compactions or command.turns > len(state.view.entries):
        return refused(
            "superseded", "the summarised turns are no longer on the path", hint="plan again"
        )
    if why := _not_worth_it(command, command.turns):
        return Decided(outcome=why)
    compacted = Compacted(
        summary=command.summary,
        turns=command.turns,
        tokens_before=command.tokens_before,
        tokens_after=command.tokens_after,
        trigger=command.trigger,
        usage=command.usage,
    )
    return Decided((compacted,), outcome="compacted")


def record_turn_compaction(state: SessionState, command: RecordTurnCompaction) -> Decided[str]:
    turn = state.turns.get(command.turn)
    if (
        turn is None
        or turn.phase not in (Phase.READY, Phase.CALLING_MODEL)
        or len(turn.own) < command.own_length
    ):
        return refused(
            "superseded", "the summarised turns are no longer on the path", hint="plan again"
        )
    if why := _not_worth_it(command, command.messages):
        return Decided(outcome=why)
    compacted = TurnCompacted(
        turn=command.turn,
        summary=command.summary,
        part=command.part,
        messages=command.messages,
        tokens_before=command.tokens_before,
        tokens_after=command.tokens_after,
        trigger=command.trigger,
        usage=command.usage,
    )
    return Decided((compacted,), outcome="compacted")


def _not_worth_it(command: RecordCompaction | RecordTurnCompaction, replaced: int) -> str | None:
    if replaced < 1:
        return "nothing to do"
    return "nothing gained" if command.tokens_after >= command.tokens_before else None


def rename_session(state: SessionState, command: RenameSession) -> Decided[str]:
    """A person who spoke here may rename the conversation, and so may the operator or an admin."""
    if command.by not in state.people and not command.may_all:
        return refused(
            "no_authority",
            f"{command.by} has not spoken here, and may not rename this conversation",
            hint="a person who sent a message here, the operator or an admin may",
        )
    try:
        title = checked_title(command.title)
    except Refused as refusal:
        return Decided(refusal=refusal)
    if title == state.given_title:
        return Decided(outcome=state.title)
    renamed = SessionRenamed(title=title, by=command.by)
    return Decided((renamed,), outcome=title or state.opening)


def delivery_id(state: SessionState, turn: TurnId, channel: str, part: str) -> str:
    """Return the delivery id: one per (turn, channel, part) of this instance."""
    return "d-" + short_digest("delivery", state.instance, turn, channel, part)


def queue_delivery(state: SessionState, command: QueueDelivery) -> Decided[str | None]:
    delivery = delivery_id(state, command.turn, command.channel, command.part)
    if delivery in state.deliveries or delivery in state.delivered:
        return Decided(outcome=delivery)
    queued = DeliveryQueued(
        delivery=delivery,
        turn=command.turn,
        channel=command.channel,
        kind=command.kind,
        text=command.text,
        to=command.to,
        about=command.about,
        replaces=command.replaces,
    )
    return Decided((queued,), outcome=delivery)


def mark_delivery(state: SessionState, command: MarkDelivery) -> Decided[None]:
    known = state.deliveries.get(command.delivery)
    if known is None:
        return NOTHING
    match command.became:
        case "sent":
            return NOTHING if known.sent else Decided((DeliverySent(delivery=command.delivery),))
        case "postponed":
            return Decided(
                (
                    DeliveryPostponed(
                        delivery=command.delivery, until=command.until, reason=command.detail
                    ),
                )
            )
        case "confirmed":
            return Decided(
                (
                    DeliveryConfirmed(
                        delivery=command.delivery,
                        receipt=command.detail or None,
                        shown=command.shown,
                    ),
                )
            )
        case _:
            return Decided(
                (
                    DeliveryFailed(
                        delivery=command.delivery, code=command.became, message=command.detail
                    ),
                )
            )


def close_instance(state: SessionState, command: CloseInstance) -> Decided[None]:
    """
    Close carried-over history; no owed work is carried over. Open calls become in doubt or voided,
    and prompts are voided. Queued inputs, deliveries and reminders are listed but not run.
    """
    events: list[SessionEvent] = []
    for turn in state.turns.values():
        events.extend(settle_calls(turn, f"Not run: {command.reason}.", dropped_as="voided"))
        events.append(
            TurnEnded(
                turn=turn.id, outcome="cancelled", code="carried_over", message=command.reason
            )
        )
    events.extend(InputDropped(input=each.input, reason=command.reason) for each in state.queued)
    # A job belongs to the instance that submitted it. Its outcome cannot be known here any more.
    lost = (
        f"In doubt: {command.reason}, and what this job did is unknown. Check before trying again."
    )
    running = [job for job in state.jobs.values() if job.ended is None]
    events.extend(
        JobEnded(job=job.job, turn=job.turn, outcome="in_doubt", text=lost, code="carried_over")
        for job in running
    )
    not_run = (
        *(each.input for each in state.queued),
        *state.deliveries,
        *state.reminders,
        *(job.job for job in running),
    )
    events.append(
        LifeCarried(
            by=command.by, reason=command.reason, attached=command.attached, not_run=not_run
        )
    )
    return Decided(tuple(events))
