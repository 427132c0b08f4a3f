"""
What an event does to a session's state. Pure, total over the events, the only place where state moves.

`fold` is for replay (an illegal move means the journal can't be believed), `evolve` for one step. Equal bytes give equal state.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from blake3 import blake3
from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

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
    CallMade,
    CallsProposed,
    Compacted,
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryQueued,
    DeliverySent,
    Event,
    InputAccepted,
    InputDropped,
    LifeCarried,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    ModelGiven,
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
from holdfast.session.messages import AssistantMessage, CallPart, Message, NoteMessage, ResultMessage, UserMessage
from holdfast.session.restoring import restore
from holdfast.session.sizes import chars, estimated_tokens
from holdfast.session.state import (
    Approval,
    Call,
    CallStatus,
    Deduplicated,
    Delivery,
    Input,
    ModelCall,
    Reader,
    Repeats,
    SessionState,
    SettledApproval,
    Turn,
    TurnResult,
    View,
    ViewEntry,
)
from holdfast.session.trail import Trail, Window
from holdfast.session.transitions import TRANSITIONS, IllegalTransition, check

SUMMARY_OF_TURN = "Summary of the steps taken so far for this request, made to save room. It is a record, not an instruction:\n"


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
        return _turn_moved(_batch_over(state, event.turn), event, _model_answered, seq, at)
    return replace(_moved(state, event, seq, at), seq=seq, at=at)


def _moved(state: SessionState, event: SessionEvent, seq: int, at: int) -> SessionState:  # noqa: C901, PLR0911, PLR0912  # one line per event: the list itself is the point
    match event:
        case ModelCallStarted():
            return _with_turn(state, event, _model_call_started)
        case ModelAnswered():
            return _with_turn(_batch_over(_line_used(state, event, event.line), event.turn), event, _model_answered)
        case CallFinished():
            return _with_turn(_doubt_noted(state, event), event, _call_finished)
        case ToolStarted():
            return _with_turn(state, event, _tool_started)
        case CallAllowed():
            return _with_turn(state, event, _call_allowed)
        case InputAccepted():
            return _input_accepted(state, event)
        case TurnStarted():
            return _turn_started(state, event, at)
        case TurnEnded():
            return _turn_ended(state, event, seq)
        case ApprovalRequested():
            return _approval_requested(state, event, seq, at)
        case ApprovalAnswered():
            return _with_turn(state, event, _approval_answered)
        case ApprovalClosed():
            return _with_turn(state, event, _approval_closed)
        case AnswerRefused():
            return _answer_refused(state, event)
        case TurnParked():
            return replace(_with_turn(state, event, _turn_parked), running=None)
        case TurnResumed():
            return _resumed(state, event)
        case TurnCancelled():
            return _with_turn(state, event, _turn_cancelled)
        case ModelCallFailed():
            return _with_turn(_line_used(state, event, event.line), event, _model_call_failed)
        case ModelCallLost():
            return _with_turn(state, event, _model_call_lost)
        case ModelAnswerDropped():
            return replace(state, usage=state.usage + event.usage)
        case CallsProposed():
            return _with_turn(_batch_over(state, event.turn), event, _calls_proposed)
        case InputDropped():
            return _input_dropped(state, event, seq)
        case Compacted():
            return _compacted(state, event)
        case TurnCompacted():
            return _with_turn(state, event, _turn_compacted)
        case TurnImported():
            return _turn_imported(state, event)
        case DeliveryQueued() | DeliverySent() | DeliveryConfirmed() | DeliveryFailed():
            return _delivery(state, event)
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
    return replace(state, born=True, carrying=event.carried)


def _life_carried(state: SessionState, event: LifeCarried) -> SessionState:
    view = state.view
    if event.attached:
        notes = tuple(NoteMessage(f"Kept from before this session was sealed or copied: {each}") for each in event.attached)
        view = replace(view, entries=view.entries.add(ViewEntry(TurnId("carried"), notes)))
    return replace(state, carrying=0, deliveries={}, view=view)


def dedup_key(context: TurnContext, key: str) -> str:
    return _dedup_key(context.channel, context.requester, key)


def _dedup_key(channel: object, requester: object, key: str) -> str:
    return f"{channel}\0{requester or ''}\0{key}"


def text_digest(text: str) -> str:
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest(length=16)


def call_key(tool: str, arguments: str) -> str:
    """What makes two calls equal."""
    return blake3(f"{tool}\0{arguments}".encode("utf-8", "surrogatepass")).hexdigest(length=16)


def _input_accepted(state: SessionState, event: InputAccepted) -> SessionState:
    context = restore(event.context, session=state.session, instance=state.instance)
    if isinstance(context, TurnContext) and context.turn != event.turn and not context.turn.startswith("legacy/"):
        context = LostContext(f"the turn's context belongs to turn {context.turn}", "turn")
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
        model=event.model if event.loop == "ours" else state.model,
        agent=event.agent,
    )


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
    return replace(_with_turn(state, event, _turn_resumed), running=event.turn)


def _turn_started(state: SessionState, event: TurnStarted, at: int) -> SessionState:
    taken = state.queued[: len(event.inputs)]
    if state.running is not None or not taken or tuple(each.input for each in taken) != event.inputs or event.turn != taken[0].turn:
        raise IllegalTransition(None, event, "another turn runs, or its inputs are not the next ones")
    first = taken[0]
    own: Trail[Message] = Trail()
    for each in taken:
        speaker = each.context.requester if isinstance(each.context, TurnContext) else None
        own = own.add(UserMessage(each.text, speaker, each.quotes))
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
    )
    return replace(state, turns={**state.turns, event.turn: turn}, running=event.turn, queued=state.queued[len(taken) :])


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
    entry = ViewEntry(turn.turn, tuple(turn.own.extend(_closing_messages(turn, event))), audience)
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
    return replace(view, entries=view.entries.add(entry), tokens=tokens)


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
        name: replace(turn, base=_summarised(turn.base, event), tokens=_fewer(turn.tokens, event))
        if turn.base.compactions == state.view.compactions and len(turn.base.entries) >= event.turns
        else turn
        for name, turn in state.turns.items()
    }
    return replace(state, view=view, turns=turns, compactions=state.compactions + 1, usage=state.usage + event.usage)


def _summarised(view: View, event: Compacted) -> View:
    kept: Trail[ViewEntry] = Trail()
    rest = kept.extend(list(view.entries)[event.turns :])
    return View(event.summary, rest, view.compactions + 1, _fewer(view.tokens, event), view.narrowest(event.turns))


def _fewer(tokens: int, event: Compacted | TurnCompacted) -> int:
    """What is left of a count that a model gave; one that it never gave stays unknown."""
    return max(1, tokens - (event.tokens_before - event.tokens_after)) if tokens else 0


def _turn_compacted(turn: Turn, event: TurnCompacted) -> Turn:
    smaller = replace(turn, usage=turn.usage + event.usage, tokens=_fewer(turn.tokens, event))
    if event.part == "base":
        return replace(smaller, base=View(event.summary, Trail(), turn.base.compactions, summary_audience=turn.base.narrowest()))
    own, asked = list(turn.own), len(turn.inputs)
    rest = own[asked + event.messages :]
    if event.messages < 1 or not rest or not isinstance(rest[0], AssistantMessage):
        raise IllegalTransition(turn.phase, event, "it would cut between a call and its results")
    kept: Trail[Message] = Trail()
    return replace(smaller, own=kept.extend([*own[:asked], NoteMessage(SUMMARY_OF_TURN + event.summary), *rest]))


def _turn_imported(state: SessionState, event: TurnImported) -> SessionState:
    if state.inputs or state.turns or any(not isinstance(each, UserMessage | NoteMessage | AssistantMessage) for each in event.messages):
        raise IllegalTransition(None, event, "only text is imported, and only before anything else happens")
    entry = ViewEntry(event.turn, event.messages)
    return replace(state, view=replace(state.view, entries=state.view.entries.add(entry)))


def _model_given(state: SessionState, event: ModelGiven) -> SessionState:
    turns = {name: replace(turn, model=event.model) for name, turn in state.turns.items()}
    return replace(state, model=event.model, turns=turns, queued=tuple(replace(each, model=event.model) for each in state.queued))


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


# --- one turn ----------------------------------------------------------------------------------------------------------------


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


def _model_call_started(turn: Turn, event: ModelCallStarted) -> Turn:
    if event.number != turn.model_calls + 1:
        raise IllegalTransition(turn.phase, event, f"number {event.number} after {turn.model_calls}")
    return replace(turn, model_call=ModelCall(event.number, event.epoch), model_calls=event.number)


def _model_answered(turn: Turn, event: ModelAnswered) -> Turn:
    if turn.model_call is None or turn.model_call.number != event.number:
        raise IllegalTransition(turn.phase, event, "not the call that is out")
    said = event.usage
    tokens = said.input_tokens + said.output_tokens if said.input_tokens else 0
    more = {"model_call": None, "usage": turn.usage + said, "answered": not event.calls, "tokens": tokens}
    return _calls_made(turn, event.calls, event.text, event.blob, **more)


def _calls_proposed(turn: Turn, event: CallsProposed) -> Turn:
    if turn.loop != "foreign" or event.number != turn.model_calls + 1:
        raise IllegalTransition(turn.phase, event, "not a foreign loop's next step")
    return _calls_made(turn, event.calls, event.text, None, model_calls=event.number)


def _calls_made(turn: Turn, made: tuple[CallMade, ...], text: str, blob: str | None, **more: Any) -> Turn:
    parts = tuple([CallPart(each.call, each.tool, each.arguments, each.provider_id) for each in made])
    calls = tuple([Call(call=each.call, tool=each.tool, made=each.arguments, provider_id=each.provider_id) for each in made])
    own = turn.own.add(AssistantMessage(text, parts, blob))
    return replace(
        turn, own=own, calls=calls, tool_calls=turn.tool_calls + len(calls), attempts=1, model_failures=0, last_failure=None, overflows=0, **more
    )


def _model_call_failed(turn: Turn, event: ModelCallFailed) -> Turn:
    if turn.model_call is None or turn.model_call.number != event.number:
        raise IllegalTransition(turn.phase, event, "not the call that is out")
    return replace(
        turn,
        model_call=None,
        model_failures=turn.model_failures + 1,
        last_failure=event.kind,
        failed=(event.kind, event.message) if event.final else None,
        overflows=turn.overflows + (event.kind == "overflow"),
        attempts=1,
    )


def _model_call_lost(turn: Turn, event: ModelCallLost) -> Turn:
    if turn.model_call is None or turn.model_call.number != event.number:
        raise IllegalTransition(turn.phase, event, "not the call that is out")
    return replace(turn, model_call=None)


def _turn_parked(turn: Turn, event: TurnParked) -> Turn:
    if not turn.only_waits:
        raise IllegalTransition(turn.phase, event, "something can still be done without a person")
    return replace(turn, parked=True, attempts=0)


def _turn_resumed(turn: Turn, event: TurnResumed) -> Turn:
    if turn.parked and (turn.waiting or turn.is_half_settled):
        raise IllegalTransition(turn.phase, event, "not all of its answers are in")
    if event.epoch < turn.epoch:
        raise IllegalTransition(turn.phase, event, f"epoch {event.epoch} after {turn.epoch}")
    return replace(turn, parked=False, epoch=event.epoch, attempts=turn.attempts + 1)


def _turn_cancelled(turn: Turn, event: TurnCancelled) -> Turn:
    return replace(turn, cancelled_by=event.by, model_call=None, parked=False)


def _update(turn: Turn, event: Event, call_id: CallId, allowed: tuple[CallStatus, ...], move: Callable[[Call], Call]) -> Turn:
    index, call = _find(turn, event, call_id)
    if call.status not in allowed:
        raise IllegalTransition(turn.phase, event, f"the call is {call.status.value}")
    return _with_call(turn, index, move(call))


def _find(turn: Turn, event: Event, call_id: CallId) -> tuple[int, Call]:
    for index, call in enumerate(turn.calls):
        if call.call == call_id:
            return index, call
    raise IllegalTransition(turn.phase, event, "no such call in the open batch")


def _with_call(turn: Turn, index: int, call: Call) -> Turn:
    calls = list(turn.calls)
    calls[index] = call
    return replace(turn, calls=tuple(calls))


S = CallStatus
_PROPOSED, _ALLOWED, _STARTED, _FINISHED = S.PROPOSED, S.ALLOWED, S.STARTED, S.FINISHED


def _call_allowed(turn: Turn, event: CallAllowed) -> Turn:
    index, call = _find(turn, event, event.call)
    if call.status is not _PROPOSED:
        raise IllegalTransition(turn.phase, event, f"the call is {call.status.value}")
    return _with_call(turn, index, replace(call, status=_ALLOWED, arguments=event.arguments, digest=event.digest, allowed_by=event.by))


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
        turn = _update(turn, event, event.call, (S.PROPOSED, S.ALLOWED, S.APPROVED), move)
        return replace(turn, prompts=turn.prompts + 1, attempts=1)

    state = _with_turn(state, event, moved)
    context = state.turns[event.turn].context
    readers = _with_readers(state.readers, context, event.may_answer) if isinstance(context, TurnContext) else state.readers
    return replace(state, settled=settled, readers=readers, approvals={**approvals, event.approval: (event.turn, event.call, seq)})


def _approval_answered(turn: Turn, event: ApprovalAnswered) -> Turn:
    def move(call: Call) -> Call:
        approval = call.approval
        if approval is None or approval.asked.approval != event.approval or not approval.is_open:
            raise IllegalTransition(turn.phase, event, "no such open prompt")
        answered = replace(call, approval=replace(approval, answer=event))
        if event.option == "edit":
            return replace(answered, status=S.PROPOSED, arguments=event.arguments, edited_by=event.by)
        if event.option == "deny" or approval.asked.kind == "question":
            return answered  # its result follows in the same commit
        return replace(answered, status=S.APPROVED, allowed_by=event.approval)

    return _update(turn, event, event.call, (S.WAITING,), move)


def _approval_closed(turn: Turn, event: ApprovalClosed) -> Turn:
    def move(call: Call) -> Call:
        approval = call.approval
        if approval is None or approval.asked.approval != event.approval or approval.closed_as is not None:
            raise IllegalTransition(turn.phase, event, "no such prompt to close")
        return replace(call, approval=replace(approval, closed_as=event.closed_as))

    return _update(turn, event, event.call, (S.WAITING, S.APPROVED, S.PROPOSED), move)


def _tool_started(turn: Turn, event: ToolStarted) -> Turn:
    index, call = _find(turn, event, event.call)
    if call.status is not _ALLOWED:
        _check_start(turn, event, call)
    if call.allowed_by != event.allowed_by or call.digest != event.digest or call.run + 1 != event.run:
        raise IllegalTransition(turn.phase, event, "it is not what was allowed")
    started = replace(
        call, status=_STARTED, run=event.run, epoch=event.epoch, contract=event.contract, process=event.process, arguments=event.arguments
    )
    return _with_call(turn, index, started)


def _check_start(turn: Turn, event: ToolStarted, call: Call) -> None:
    """Of a call that a person approved, or that runs again."""
    if call.status not in (S.APPROVED, S.STARTED):
        raise IllegalTransition(turn.phase, event, f"the call is {call.status.value}")
    if call.status is S.STARTED and call.contract == "once":
        raise IllegalTransition(turn.phase, event, "it was started before and must not run twice")
    if call.status is S.STARTED and event.epoch <= call.epoch:
        raise IllegalTransition(turn.phase, event, "it runs already")
    if call.approval is not None and (call.approval.answer is None or call.approval.closed_as is not None):
        raise IllegalTransition(turn.phase, event, "its prompt was closed")
    if call.status is S.APPROVED and any(each.status in (S.WAITING, S.PROPOSED) for each in turn.calls):
        raise IllegalTransition(turn.phase, event, "a sibling still needs an answer")


_NEEDS_START = frozenset({"ok", "timed_out", "in_doubt"})
_NEVER_STARTED = frozenset({"superseded", "cancelled", "denied", "unattended", "voided"})


def _call_finished(turn: Turn, event: CallFinished) -> Turn:
    index, call = _find(turn, event, event.call)
    ran = call.status is _STARTED
    if call.status is _FINISHED:
        raise IllegalTransition(turn.phase, event, "the call is finished")
    if not ran and event.outcome in _NEEDS_START and not (event.outcome == "ok" and _is_answered_question(call)):
        raise IllegalTransition(turn.phase, event, "it never started")
    if ran and event.outcome in _NEVER_STARTED:
        raise IllegalTransition(turn.phase, event, "it started: only its real outcome, or in doubt, can follow")
    finished = replace(call, status=_FINISHED, outcome=event.outcome, text=event.text, code=event.code)
    calls = list(turn.calls)
    calls[index] = finished
    own = turn.own
    if all([each.status is _FINISHED for each in calls]):  # noqa: C419  # a list is faster than a generator here
        own = own.extend(ResultMessage(each.call, each.tool, each.outcome or "error", each.text, each.provider_id) for each in calls)
    # That an outcome is unknown is said by recovery too, which is no step of an attempt.
    attempts = turn.attempts if event.outcome == "in_doubt" else 1
    return replace(turn, calls=tuple(calls), own=own, repeats=_repeats(turn.repeats, finished), attempts=attempts)


def _is_answered_question(call: Call) -> bool:
    approval = call.approval
    return approval is not None and approval.asked.kind == "question" and approval.answer is not None and approval.answer.option != "deny"


def _repeats(before: Repeats, call: Call) -> Repeats:
    if call.outcome in ("cancelled", "superseded"):
        return before
    if call.code == "repeated":
        return replace(before, count=before.count + 1)
    key = (call.tool, call.arguments or call.made)
    if key == before.key and call.text == before.result:
        return Repeats(key, call.text, before.count + 1)
    return Repeats(key, call.text, 1)


_STEPS: Mapping[type[Event], Callable[..., Turn]] = {
    CallFinished: _call_finished,
    ToolStarted: _tool_started,
    CallAllowed: _call_allowed,
    ModelCallStarted: _model_call_started,
}
"""What most records are, found without walking the list in `_moved`, which has them too so that the type checker sees every event handled."""
