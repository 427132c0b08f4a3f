"""
What an event does to a session's state. Pure, total over the events, the only place where state moves.

`fold` is for replay (an illegal move means the journal can't be believed), `evolve` for one step. Equal bytes give equal state.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from blake3 import blake3
from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from holdfast import limits
from holdfast.errors import BrokenChain
from holdfast.ids import ApprovalId, CallId, InputId, InstanceId, SessionId, TurnId
from holdfast.session.authority import Audience, LostContext, TurnContext
from holdfast.session.events import (
    AnswerRefused,
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    CallAllowed,
    CallFinished,
    CallsProposed,
    Compacted,
    DelegateEnded,
    DelegateReported,
    DelegateStarted,
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryQueued,
    DeliverySent,
    Event,
    InputAccepted,
    InputDropped,
    JobCancelled,
    JobEnded,
    JobSubmitted,
    LifeCarried,
    MemoryRecalled,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    ModelGiven,
    ReminderCancelled,
    ReminderFired,
    ReminderSet,
    SessionBorn,
    SessionEvent,
    TailRepaired,
    ToolStarted,
    TurnCancelled,
    TurnCompacted,
    TurnEnded,
    TurnImported,
    TurnParked,
    TurnResumed,
    TurnStarted,
)
from holdfast.session.evolve_jobs import call_key, job_cancelled, job_ended, job_of_call, job_reported, job_submitted
from holdfast.session.evolve_reminders import reminder_cancelled, reminder_fired, reminder_set, was_fired
from holdfast.session.evolve_turn import (
    S,
    approval_answered,
    approval_closed,
    call_allowed,
    call_finished,
    calls_proposed,
    delegate_started,
    fewer_tokens,
    memory_recalled,
    model_answered,
    model_call_failed,
    model_call_lost,
    model_call_started,
    tool_started,
    turn_cancelled,
    turn_compacted,
    turn_parked,
    turn_resumed,
    update_call,
)
from holdfast.session.memory import asked_tainted, without_recalled
from holdfast.session.messages import AssistantMessage, Message, NoteMessage, UserMessage
from holdfast.session.restoring import restore
from holdfast.session.sizes import chars, estimated_tokens
from holdfast.session.state import (
    Approval,
    Call,
    CallStatus,
    Deduplicated,
    Delivery,
    Input,
    Reader,
    Recall,
    SessionState,
    SettledApproval,
    Turn,
    TurnResult,
    View,
    ViewEntry,
)
from holdfast.session.trail import Trail, Window
from holdfast.session.transitions import TRANSITIONS, IllegalTransition, check


def initial(session: SessionId, instance: InstanceId) -> SessionState:
    """Before the first record."""
    return SessionState(session=session, instance=instance)


def fold(state: SessionState, events: Iterable[tuple[int, int, SessionEvent]]) -> SessionState:
    """Replay (seq, at, event). An illegal move in a genuine record means that history can't be believed."""
    for seq, at, event in events:
        try:
            state = evolve(state, event, seq=seq, at=at)
        except IllegalTransition as exc:
            raise BrokenChain(f"record {seq} can't follow the ones before it: {exc}", at_seq=seq) from exc
    return state


def evolve(state: SessionState, event: SessionEvent, *, seq: int, at: int) -> SessionState:
    """Apply one event."""
    at = max(at, state.at)
    move = _STEPS.get(type(event))
    if move is not None and not (type(event) is CallFinished and event.outcome == "in_doubt"):
        return _turn_moved(state, event, move, seq, at)
    if type(event) is ModelAnswered and event.line is None:
        return _turn_moved(_batch_over(state, event.turn), event, model_answered, seq, at)
    return replace(_moved(state, event, seq, at), seq=seq, at=at)


def _moved(state: SessionState, event: SessionEvent, seq: int, at: int) -> SessionState:  # noqa: C901, PLR0911, PLR0912  # one line per event: the list itself is the point
    match event:
        case ModelCallStarted():
            return _with_turn(state, event, model_call_started)
        case ModelAnswered():
            return _with_turn(_batch_over(_line_used(state, event, event.line), event.turn), event, model_answered)
        case CallFinished():
            return _with_turn(_doubt_noted(state, event), event, call_finished)
        case ToolStarted():
            return _with_turn(state, event, tool_started)
        case CallAllowed():
            return _with_turn(state, event, call_allowed)
        case DelegateStarted():
            return _delegate_started(state, event)
        case DelegateEnded():
            return _delegate_ended(state, event)
        case DelegateReported():
            return _delegate_reported(state, event)
        case InputAccepted():
            return _input_accepted(state, event)
        case TurnStarted():
            return _turn_started(state, event, at)
        case TurnEnded():
            return _turn_ended(state, event, seq)
        case ApprovalRequested():
            return _approval_requested(state, event, seq, at)
        case ApprovalAnswered():
            return _with_turn(state, event, approval_answered)
        case ApprovalClosed():
            return _with_turn(state, event, approval_closed)
        case AnswerRefused():
            return _answer_refused(state, event)
        case TurnParked():
            return _parked(state, event)
        case TurnResumed():
            return _resumed(state, event)
        case TurnCancelled():
            return _with_turn(state, event, turn_cancelled)
        case ModelCallFailed():
            return _with_turn(_line_used(state, event, event.line), event, model_call_failed)
        case ModelCallLost():
            return _with_turn(state, event, model_call_lost)
        case ModelAnswerDropped():
            return replace(state, usage=state.usage + event.usage)
        case CallsProposed():
            return _with_turn(_batch_over(state, event.turn), event, calls_proposed)
        case InputDropped():
            return _input_dropped(state, event, seq)
        case MemoryRecalled():
            return _memory_recalled(state, event)
        case Compacted():
            return _compacted(state, event)
        case TurnCompacted():
            return _with_turn(state, event, turn_compacted)
        case TurnImported():
            return _turn_imported(state, event)
        case DeliveryQueued() | DeliverySent() | DeliveryConfirmed() | DeliveryFailed():
            return _delivery(state, event)
        case ReminderSet():
            return reminder_set(state, event, at)
        case ReminderFired():
            return reminder_fired(state, event)
        case ReminderCancelled():
            return reminder_cancelled(state, event)
        case JobSubmitted():
            return job_submitted(_with_turn(state, event, job_of_call), event, seq, at)
        case JobCancelled():
            return job_cancelled(state, event)
        case JobEnded():
            return job_ended(state, event, seq, at)
        case ModelGiven():
            return _model_given(state, event)
        case SessionBorn():
            return _session_born(state, event)
        case LifeCarried():
            return _life_carried(state, event)
        case TailRepaired():
            return state
        case _:
            assert_never(event)


# --- the session -------------------------------------------------------------------------------------------------------------


def _session_born(state: SessionState, event: SessionBorn) -> SessionState:
    if state.born or (event.session, event.instance) != (state.session, state.instance):
        raise IllegalTransition(None, event, "another life's beginning")
    in_doubt = state.in_doubt
    for key in event.parent.doubts if event.parent is not None else ():
        in_doubt = in_doubt.add(key, CallId("of the parent"))
    return replace(state, born=True, carrying=event.carried, parent=event.parent, in_doubt=in_doubt)


def _life_carried(state: SessionState, event: LifeCarried) -> SessionState:
    view = state.view
    if event.attached:
        notes = tuple(NoteMessage(f"Kept from before this session was sealed or copied: {each}") for each in event.attached)
        view = _with_entry(view, ViewEntry(TurnId("carried"), notes))
    return replace(state, carrying=0, deliveries={}, reminders={}, delegates={}, jobs={}, view=view)


def dedup_key(context: TurnContext, key: str) -> str:
    return _dedup_key(context.channel, context.requester, key)


def _dedup_key(channel: object, requester: object, key: str) -> str:
    return f"{channel}\0{requester or ''}\0{key}"


def text_digest(text: str) -> str:
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest(length=16)


def _input_accepted(state: SessionState, event: InputAccepted) -> SessionState:
    context = restore(event.context, session=state.session, instance=state.instance)
    if isinstance(context, TurnContext) and context.turn != event.turn and not context.turn.startswith("legacy/"):
        context = LostContext(f"the turn's context belongs to turn {context.turn}", "turn")
    if event.kind == "delegate" and state.parent is None:
        context = LostContext("the session has lost whose delegate it is", "parent")  # and with it the most it may have
    accepted = Input(
        input=event.input,
        turn=event.turn,
        text=event.text,
        context=context,
        agent=event.agent,
        model=event.model,
        kind=event.kind,
        loop=event.loop,
        quotes=event.quotes,
    )
    if event.kind == "job":
        return _report_accepted(state, event, accepted)
    fired = was_fired(state, event)  # it goes on with the agent and model it was set with, and changes nothing for the others
    workspaces, people, readers = state.workspaces, state.people, state.readers
    if isinstance(context, TurnContext):
        readers = _with_readers(readers, context, () if context.requester is None else (context.requester,))
        if context.requester is not None and context.requester not in people:
            people |= {context.requester}
        if context.workspace is not None and context.requester is not None and workspaces.get(context.requester) != context.workspace:
            workspaces = {**workspaces, context.requester: context.workspace}
    return replace(
        state,
        inputs=state.inputs + 1,
        turns=_marked_superseded(state, event) if event.supersedes else state.turns,
        queued=(*state.queued, accepted),
        dedup=state.dedup if event.dedup is None else _deduplicated(state, event, context, event.dedup),
        workspaces=workspaces,
        people=people,
        readers=readers,
        model=event.model if event.loop == "ours" and not fired else state.model,
        agent=event.agent if not fired else state.agent,
    )


def _report_accepted(state: SessionState, event: InputAccepted, accepted: Input) -> SessionState:
    """A job's result. Nobody said it, so it changes nothing of what the session keeps for people: agent, model, workspace, readers."""
    dedup = state.dedup if event.dedup is None else _deduplicated(state, event, accepted.context, event.dedup)
    return job_reported(replace(state, inputs=state.inputs + 1, queued=(*state.queued, accepted), dedup=dedup), event)


def _with_readers(readers: frozenset[Reader], context: TurnContext, people: tuple[str, ...]) -> frozenset[Reader]:
    more = {Reader(person, context.audience.value, context.boundary) for person in people}
    return readers if more <= readers else readers | more


def _deduplicated(state: SessionState, event: InputAccepted, context: TurnContext | LostContext, key: str) -> Window[Deduplicated]:
    """Keys outlive the life they came from: what a context allows may be lost, whose message it was is not."""
    try:
        who = context if isinstance(context, TurnContext) else _decode_sender(event.context)
    except DecodeError:
        return state.dedup
    return state.dedup.add(_dedup_key(who.channel, who.requester, key), Deduplicated(event.turn, text_digest(event.text)))


class _Sender(Struct):
    channel: str
    requester: str | None = None


_decode_sender = Decoder(_Sender).decode


def _marked_superseded(state: SessionState, event: InputAccepted) -> dict[TurnId, Turn]:
    turns = dict(state.turns)
    for name in event.supersedes:
        turn = turns.get(name)
        if turn is None or not turn.only_waits:
            raise IllegalTransition(turn.phase if turn else None, event, f"{name} does not wait for an answer, so nothing takes its place")
        turns[name] = replace(turn, superseded_by=event.input)
    return turns


def _input_dropped(state: SessionState, event: InputDropped, seq: int) -> SessionState:
    """Its turn never begins; whoever asks for it is told so."""
    left = tuple(each for each in state.queued if each.input != event.input)
    return replace(state, queued=left, results=state.results.add(turn_id_of(event.input), TurnResult(seq, "cancelled")))


def _resumed(state: SessionState, event: TurnResumed) -> SessionState:
    if state.running not in (None, event.turn):
        raise IllegalTransition(None, event, f"{state.running} runs")
    return replace(_with_turn(state, event, turn_resumed), running=event.turn)


def _turn_started(state: SessionState, event: TurnStarted, at: int) -> SessionState:
    taken = state.queued[: len(event.inputs)]
    if state.running is not None or not taken or tuple(each.input for each in taken) != event.inputs or event.turn != taken[0].turn:
        raise IllegalTransition(None, event, "another turn runs, or its inputs are not the next ones")
    first = taken[0]
    own: Trail[Message] = Trail()
    for each in taken:
        speaker = _speaker(state, each)
        # What a job gave back is nobody's word: the model hears it from us, and never as its requester's.
        own = own.add(NoteMessage(each.text) if each.kind == "job" else UserMessage(each.text, speaker, each.quotes))
    turn = Turn(
        turn=event.turn,
        context=first.context,
        agent=first.agent,
        model=first.model,
        loop=first.loop,
        kind=first.kind,
        inputs=event.inputs,
        started_at=at,
        base=state.view,
        own=own,
        epoch=event.epoch,
        others=tuple(_one_line(each, first.context) for each in state.turns.values()),
        tainted=state.view.tainted or asked_tainted(first.context, state.people),
        delegate_of=state.parent,
    )
    return replace(state, turns={**state.turns, event.turn: turn}, running=event.turn, queued=state.queued[len(taken) :])


def _speaker(state: SessionState, accepted: Input) -> str | None:
    """A delegate's task is the words of an agent, whoever's request they serve."""
    if accepted.kind == "delegate" and state.parent is not None:
        return f"the agent {state.parent.path[-2]}" if len(state.parent.path) > 1 else None
    return accepted.context.requester if isinstance(accepted.context, TurnContext) else None


def _one_line(parked: Turn, reader: TurnContext | LostContext) -> str:
    """What another turn may know of a parked one: who waits, only behind the same boundary; never what for."""
    same = isinstance(parked.context, TurnContext) and isinstance(reader, TurnContext) and parked.context.boundary == reader.boundary
    who = f" of {parked.context.requester}" if same and isinstance(parked.context, TurnContext) else ""
    return f"(Another request{who} in this conversation waits for a person's answer.)"


def _turn_ended(state: SessionState, event: TurnEnded, seq: int) -> SessionState:
    turn = state.turns.get(event.turn)
    if turn is None:
        raise IllegalTransition(None, event)
    if any(call.status is not CallStatus.FINISHED for call in turn.calls):
        raise IllegalTransition(turn.phase, event, "a call has no result")
    check(turn.phase, event, replace(turn, ended=True).phase)
    settled, approvals = state.settled, state.approvals
    for call in turn.calls:
        if call.approval is not None:
            settled, approvals = _settle(settled, approvals, call.approval)
    audience = turn.context.audience if isinstance(turn.context, TurnContext) else Audience.PERSONAL
    own = tuple(without_recalled(turn.own.extend(_closing_messages(turn, event))))
    entry = ViewEntry(turn.turn, own, audience, turn.tainted)
    return replace(
        state,
        turns={name: each for name, each in state.turns.items() if name != event.turn},
        running=None if state.running == event.turn else state.running,
        turns_ended=state.turns_ended + 1,
        view=_joined(state.view, turn, entry),
        results=_results(state, turn, TurnResult(seq, event.outcome)),
        settled=settled,
        approvals=approvals,
    )


def _joined(view: View, turn: Turn, entry: ViewEntry) -> View:
    """The shared view with one more turn. Its size is what that turn's model counted, if the turn saw all of it."""
    if turn.tokens and (turn.base.compactions, len(turn.base.entries)) == (view.compactions, len(view.entries)):
        tokens = turn.tokens
    else:
        tokens = view.tokens + estimated_tokens(chars(entry.messages)) if view.tokens else 0
    return replace(_with_entry(view, entry), tokens=tokens)


def _with_entry(view: View, entry: ViewEntry) -> View:
    return replace(view, entries=view.entries.add(entry), chars=view.chars + chars(entry.messages), tainted=view.tainted or entry.tainted)


def _results(state: SessionState, turn: Turn, result: TurnResult) -> Window[TurnResult]:
    """Known by its own id, and by those that the inputs which joined it would have had."""
    results = state.results
    for each in turn.inputs:
        results = results.add(turn_id_of(each), result)
    return results


def turn_id_of(accepted: InputId) -> TurnId:
    """The id a message's own turn has, or would have had it not joined an earlier one: input i7, turn t7."""
    return TurnId("t" + accepted[1:])


def find_turn(state: SessionState, turn: TurnId) -> Turn | None:
    """The open turn of that id, or the one that its message joined."""
    return next((each for each in state.turns.values() if any(turn_id_of(name) == turn for name in each.inputs)), None)


def _closing_messages(turn: Turn, event: TurnEnded) -> list[Message]:
    if event.outcome == "completed":
        return [AssistantMessage(event.reply)] if turn.loop == "foreign" and event.reply is not None else []
    return [NoteMessage(f"This request {event.outcome}: {event.message or event.code or 'no reason given'}")]


_Open = dict[ApprovalId, tuple[TurnId, CallId, int]]


def _settle(settled: Window[SettledApproval], approvals: _Open, approval: Approval) -> tuple[Window[SettledApproval], _Open]:
    asked, answer = approval.asked, approval.answer
    _, _, seq = approvals[asked.approval]
    entry = SettledApproval(
        asked.turn,
        asked.call,
        answer.answer_id if answer else None,
        answer.option if answer else None,
        answer.by if answer else None,
        approval.closed_as,
        seq,
    )
    left = {name: where for name, where in approvals.items() if name != asked.approval}
    return settled.add(asked.approval, entry), left


def _batch_over(state: SessionState, name: TurnId) -> SessionState:
    """The next batch takes the place of this one: its prompts are remembered as settled."""
    turn = state.turns.get(name)
    if turn is None or all([call.approval is None for call in turn.calls]):  # noqa: C419  # a list is faster than a generator here
        return state
    settled, approvals = state.settled, state.approvals
    for call in turn.calls:
        if call.approval is not None:
            settled, approvals = _settle(settled, approvals, call.approval)
    return replace(state, settled=settled, approvals=approvals)


def _compacted(state: SessionState, event: Compacted) -> SessionState:
    if event.turns > len(state.view.entries):
        raise IllegalTransition(None, event, "it replaces more than there is")
    view = _summarised(state.view, event)
    # A turn that began with all of what is summarised goes on with the summary; an older one keeps what it began with.
    turns = {
        name: replace(turn, base=_summarised(turn.base, event), tokens=fewer_tokens(turn.tokens, event))
        if turn.base.compactions == state.view.compactions and len(turn.base.entries) >= event.turns
        else turn
        for name, turn in state.turns.items()
    }
    return replace(state, view=view, turns=turns, compactions=state.compactions + 1, usage=state.usage + event.usage)


def _summarised(view: View, event: Compacted) -> View:
    kept: Trail[ViewEntry] = Trail()
    rest = kept.extend(list(view.entries)[event.turns :])
    size = len(event.summary) + sum(chars(entry.messages) for entry in rest)
    return View(event.summary, rest, view.compactions + 1, fewer_tokens(view.tokens, event), view.narrowest(event.turns), size, view.tainted)


def _turn_imported(state: SessionState, event: TurnImported) -> SessionState:
    if state.inputs or state.turns or any(not isinstance(each, UserMessage | NoteMessage | AssistantMessage) for each in event.messages):
        raise IllegalTransition(None, event, "only text is imported, and only before anything else happens")
    entry = ViewEntry(event.turn, event.messages)
    return replace(state, view=_with_entry(state.view, entry))


def _model_given(state: SessionState, event: ModelGiven) -> SessionState:
    turns = {name: replace(turn, model=event.model) for name, turn in state.turns.items()}
    reminders = {name: replace(each, model=event.model) for name, each in state.reminders.items()}
    jobs = {name: replace(job, model=event.model) for name, job in state.jobs.items()}
    queued = tuple(replace(each, model=event.model) for each in state.queued)
    return replace(state, model=event.model, turns=turns, reminders=reminders, jobs=jobs, queued=queued)


def _delivery(state: SessionState, event: DeliveryQueued | DeliverySent | DeliveryConfirmed | DeliveryFailed) -> SessionState:
    deliveries, delivered = dict(state.deliveries), state.delivered
    match event:
        case DeliveryQueued(delivery=delivery):
            deliveries[delivery] = Delivery(delivery, event.turn, event.channel, event.kind, event.text)
        case DeliverySent(delivery=delivery):
            if delivery in deliveries:
                deliveries[delivery] = replace(deliveries[delivery], sent=True)
        case DeliveryConfirmed(delivery=delivery) | DeliveryFailed(delivery=delivery):
            deliveries.pop(delivery, None)
            delivered = delivered.add(delivery, "confirmed" if isinstance(event, DeliveryConfirmed) else event.code)
    return replace(state, deliveries=deliveries, delivered=delivered)


def _memory_recalled(state: SessionState, event: MemoryRecalled) -> SessionState:
    given = Recall(event.turn, tuple(each.memory for each in event.items), event.degraded)
    recalls = (*state.recalls, given)[-limits.MEMORY_RECALLS_SHOWN :]
    return replace(_with_turn(state, event, memory_recalled), recalls=recalls)


def _line_used(state: SessionState, event: ModelAnswered | ModelCallFailed, line: int | None) -> SessionState:
    turn = state.turns.get(event.turn)
    if line is None or turn is None:
        return state
    return replace(state, scripts={**state.scripts, turn.model: max(line + 1, state.scripts.get(turn.model, 0))})


def _doubt_noted(state: SessionState, event: CallFinished) -> SessionState:
    if event.outcome != "in_doubt":
        return state
    call = state.open_call(event.turn, event.call)
    if call is None:
        return state
    return replace(state, in_doubt=state.in_doubt.add(call_key(call.tool, call.arguments or call.made), call.call))


# --- delegates ---------------------------------------------------------------------------------------------------------------


def _delegate_started(state: SessionState, event: DelegateStarted) -> SessionState:
    state = _with_turn(state, event, delegate_started)
    call = state.open_call(event.turn, event.call)
    if call is None or call.delegate is None:
        raise IllegalTransition(None, event, "no such call")
    return replace(state, delegates={**state.delegates, event.call: call.delegate})


def _parked(state: SessionState, event: TurnParked) -> SessionState:
    state = _with_turn(state, event, turn_parked)
    born = {call.call: call.delegate for call in state.turns[event.turn].delegated if call.delegate is not None}
    return replace(state, running=None, delegates={**state.delegates, **born} if born else state.delegates)


def _delegate_ended(state: SessionState, event: DelegateEnded) -> SessionState:
    child = state.delegates.get(event.call)
    call = state.open_call(event.turn, event.call)
    if child is None or (call is not None and call.status is S.DELEGATED):
        raise IllegalTransition(None, event, "no such delegate, or its call has no result yet")
    in_doubt = state.in_doubt
    for key in event.doubts:
        in_doubt = in_doubt.add(key, event.call)
    turns, turn = state.turns, state.turns.get(event.turn)
    if turn is not None:
        turns = {**turns, turn.turn: replace(turn, usage=turn.usage + event.usage, prompts=turn.prompts + event.prompts)}
    return replace(
        state,
        turns=turns,
        usage=state.usage + event.usage,
        in_doubt=in_doubt,
        delegates={name: each for name, each in state.delegates.items() if name != event.call},
        delegates_ended=state.delegates_ended.add(event.call, replace(child, born=True, ended=event.outcome, prompts=event.prompts)),
    )


def _delegate_reported(state: SessionState, event: DelegateReported) -> SessionState:
    if state.reported or (state.parent is None and not state.carrying):
        raise IllegalTransition(None, event, "there is nobody to report to")
    return replace(state, reported=True)


def _answer_refused(state: SessionState, event: AnswerRefused) -> SessionState:
    where = state.approvals.get(event.approval)
    turn = state.turns.get(where[0]) if where else None
    if where is None or turn is None:
        return state
    calls = tuple(
        replace(call, approval=replace(call.approval, refusals=call.approval.refusals + 1)) if call.call == where[1] and call.approval else call
        for call in turn.calls
    )
    return replace(state, turns={**state.turns, turn.turn: replace(turn, calls=calls)})


# --- one turn (see evolve_turn.py) -------------------------------------------------------------------------------------------


def _with_turn(state: SessionState, event: Event, move: Callable[..., Turn]) -> SessionState:
    return _turn_moved(state, event, move, state.seq, state.at)


def _turn_moved(state: SessionState, event: Event, move: Callable[..., Turn], seq: int, at: int) -> SessionState:
    name: TurnId = event.turn  # type: ignore[attr-defined]  # only called with events of a turn
    turn = state.turns.get(name)
    if turn is None:
        raise IllegalTransition(None, event)
    before = turn.phase
    moved = move(turn, event)
    after = moved.phase
    if after not in TRANSITIONS.get((before, type(event)), ()):
        check(before, event, after)
    usage = state.usage if moved.usage is turn.usage else state.usage + event.usage  # type: ignore[attr-defined]
    return replace(state, turns={**state.turns, name: moved}, usage=usage, seq=seq, at=at)


def _approval_requested(state: SessionState, event: ApprovalRequested, seq: int, at: int) -> SessionState:
    settled, approvals = state.settled, state.approvals
    earlier = state.open_call(event.turn, event.call)
    if earlier is not None and earlier.approval is not None:
        settled, approvals = _settle(settled, approvals, earlier.approval)

    def move(call: Call) -> Call:
        return replace(
            call,
            status=S.WAITING,
            arguments=event.arguments,
            digest=event.digest,
            approval=Approval(asked=event, requested_at=at),
            prompts=call.prompts + 1,
            allowed_by=None,
        )

    def moved(turn: Turn, event: ApprovalRequested) -> Turn:
        turn = update_call(turn, event, event.call, (S.PROPOSED, S.ALLOWED, S.APPROVED), move)
        return replace(turn, prompts=turn.prompts + 1, attempts=1)

    state = _with_turn(state, event, moved)
    context = state.turns[event.turn].context
    readers = _with_readers(state.readers, context, event.may_answer) if isinstance(context, TurnContext) else state.readers
    return replace(state, settled=settled, readers=readers, approvals={**approvals, event.approval: (event.turn, event.call, seq)})


_STEPS: Mapping[type[Event], Callable[..., Turn]] = {
    CallFinished: call_finished,
    ToolStarted: tool_started,
    CallAllowed: call_allowed,
    ModelCallStarted: model_call_started,
}
"""What most records are, found without walking the list in `_moved`, which has them too so that the type checker sees every event handled."""
