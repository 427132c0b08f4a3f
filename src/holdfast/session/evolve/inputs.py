"""
Apply an accepted message: it waits in the queue under its own authority, and the session keeps some
of its facts for later messages.

The session keeps the message's dedup key and its readers. From a person's message it also keeps the
agent, the model and the workspace. Every fold restores the message's authority from the record. An
authority that lost a field, or that belongs elsewhere, is kept as lost and allows nothing.
"""

from blake3 import blake3
from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from holdfast.ids import TurnId, turn_id_of
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.authority.restore import restore
from holdfast.session.events import InputAccepted, InputDropped
from holdfast.session.features.jobs.evolve import job_reported
from holdfast.session.features.reminders.evolve import was_fired
from holdfast.session.persistent import Window
from holdfast.session.state import Deduplicated, Input, Reader, SessionState, Turn, TurnResult
from holdfast.session.transitions import IllegalTransition
from holdfast.session.view.titles import title_from_text


def dedup_key(context: TurnContext, key: str) -> str:
    return _dedup_key(context.channel, context.requester, key)


def _dedup_key(channel: object, requester: object, key: str) -> str:
    return f"{channel}\0{requester or ''}\0{key}"


def text_digest(text: str) -> str:
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest(length=16)


def input_accepted(state: SessionState, event: InputAccepted) -> SessionState:
    context = restore(event.context, session=state.session, instance=state.instance)
    if (
        isinstance(context, TurnContext)
        and context.turn != event.turn
        and not context.turn.startswith("legacy/")
    ):
        context = LostContext(f"the turn's context belongs to turn {context.turn}", "turn")
    if event.kind == "delegate" and state.parent is None:
        context = LostContext(
            "the session has lost whose delegate it is", "parent"
        )  # the parent's authority was its upper bound
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
    fired = was_fired(
        state, event
    )  # it runs with the agent and model it was set with, and changes no default of the session
    workspaces, people, readers = state.workspaces, state.people, state.readers
    if isinstance(context, TurnContext):
        readers = with_readers(
            readers, context, () if context.requester is None else (context.requester,)
        )
        if context.requester is not None and context.requester not in people:
            people |= {context.requester}
        if (
            context.workspace is not None
            and context.requester is not None
            and workspaces.get(context.requester) != context.workspace
        ):
            workspaces = {**workspaces, context.requester: context.workspace}
    return replace(
        state,
        inputs=state.inputs + 1,
        turns=_marked_superseded(state, event) if event.supersedes else state.turns,
        queued=(*state.queued, accepted),
        dedup=_deduplicated(state, event, context),
        workspaces=workspaces,
        people=people,
        readers=readers,
        model=event.model if event.loop == "ours" and not fired else state.model,
        agent=event.agent if not fired else state.agent,
        opening=state.opening or title_from_text(event.text),
    )


def _report_accepted(state: SessionState, event: InputAccepted, accepted: Input) -> SessionState:
    """
    Accept a job's result. No person sent it, so the facts that the session keeps about people do
    not change: agent, model, workspace, readers.
    """
    dedup = _deduplicated(state, event, accepted.context)
    return job_reported(
        replace(state, inputs=state.inputs + 1, queued=(*state.queued, accepted), dedup=dedup),
        event,
    )


def with_readers(
    readers: frozenset[Reader], context: TurnContext, people: tuple[str, ...]
) -> frozenset[Reader]:
    more = {Reader(person, context.audience.value, context.boundary) for person in people}
    return readers if more <= readers else readers | more


def _deduplicated(
    state: SessionState, event: InputAccepted, context: TurnContext | LostContext
) -> Window[Deduplicated]:
    """
    Add the message's dedup keys. Keys outlive their instance: a context's authority may be lost,
    but its sender is still known.
    """
    known = state.dedup
    if event.dedup is None and not event.aliases:
        return known
    try:
        who = context if isinstance(context, TurnContext) else _decode_sender(event.context)
    except DecodeError:
        return known
    seen = Deduplicated(event.turn, text_digest(event.text))
    for key in event.aliases if event.dedup is None else (event.dedup, *event.aliases):
        known = known.add(_dedup_key(who.channel, who.requester, key), seen)
    return known


class _Sender(Struct):
    channel: str
    requester: str | None = None


_decode_sender = Decoder(_Sender).decode


def _marked_superseded(state: SessionState, event: InputAccepted) -> dict[TurnId, Turn]:
    turns = dict(state.turns)
    for name in event.supersedes:
        turn = turns.get(name)
        if turn is None or not (turn.only_waits or turn.is_left):
            raise IllegalTransition(
                turn.phase if turn else None,
                event,
                f"{name} does not wait for an answer, so nothing takes its place",
            )
        turns[name] = replace(turn, superseded_by=event.input)
    return turns


def input_dropped(state: SessionState, event: InputDropped, seq: int) -> SessionState:
    """Drop a queued message. Its turn never begins, and its result is `cancelled`."""
    left = tuple(each for each in state.queued if each.input != event.input)
    return replace(
        state,
        queued=left,
        results=state.results.add(turn_id_of(event.input), TurnResult(seq, "cancelled")),
    )
