"""
Apply events to a session as a whole, in any turn: its creation, the end of carried-over history, a
change of model or of title, its deliveries.
"""

from msgspec.structs import replace

from holdfast.ids import CallId, TurnId
from holdfast.session.events import (
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryPostponed,
    DeliveryQueued,
    DeliverySent,
    LifeCarried,
    ModelGiven,
    SessionBorn,
    SessionRenamed,
)
from holdfast.session.evolve.view import with_entry
from holdfast.session.state import Delivery, SessionState, ShownPrompt, ViewEntry
from holdfast.session.transitions import IllegalTransition
from holdfast.session.view.messages import NoteMessage


def session_born(state: SessionState, event: SessionBorn) -> SessionState:
    if state.exists or (event.session, event.instance) != (state.session, state.instance):
        raise IllegalTransition(None, event, "the first record of another instance")
    in_doubt = state.in_doubt
    for key in event.parent.doubts if event.parent is not None else ():
        in_doubt = in_doubt.add(key, CallId("of the parent"))
    return replace(
        state, exists=True, carrying=event.carried, parent=event.parent, in_doubt=in_doubt
    )


def life_carried(state: SessionState, event: LifeCarried) -> SessionState:
    view = state.view
    if event.attached:
        notes = tuple(
            NoteMessage(f"Kept from before this session was sealed or copied: {each}")
            for each in event.attached
        )
        view = with_entry(view, ViewEntry(TurnId("carried"), notes))
    return replace(
        state,
        carrying=0,
        deliveries={},
        shown={},
        reminders={},
        delegates={},
        jobs={},
        view=view,
    )


def model_given(state: SessionState, event: ModelGiven) -> SessionState:
    turns = {name: replace(turn, model=event.model) for name, turn in state.turns.items()}
    reminders = {name: replace(each, model=event.model) for name, each in state.reminders.items()}
    jobs = {name: replace(job, model=event.model) for name, job in state.jobs.items()}
    queued = tuple(replace(each, model=event.model) for each in state.queued)
    return replace(
        state, model=event.model, turns=turns, reminders=reminders, jobs=jobs, queued=queued
    )


def session_renamed(state: SessionState, event: SessionRenamed) -> SessionState:
    return replace(state, given_title=event.title)


def delivery_moved(
    state: SessionState, event: DeliveryQueued | DeliverySent | DeliveryPostponed, at: int
) -> SessionState:
    deliveries, shown = dict(state.deliveries), state.shown
    match event:
        case DeliveryQueued(delivery=delivery):
            deliveries[delivery] = Delivery(
                delivery,
                event.turn,
                event.channel,
                event.kind,
                event.text,
                to=event.to,
                about=event.about,
                replaces=event.replaces,
                queued_at=at,
            )
            if event.replaces:
                shown = {
                    key: each
                    for key, each in shown.items()
                    if key != shown_key(event.channel, event.replaces)
                }
        case DeliverySent(delivery=delivery):
            if delivery in deliveries:
                deliveries[delivery] = replace(deliveries[delivery], sent=True)
        case DeliveryPostponed(delivery=delivery):
            if (known := deliveries.get(delivery)) is not None:
                deliveries[delivery] = replace(
                    known, sent=False, tries=known.tries + 1, not_before=event.until
                )
    return replace(state, deliveries=deliveries, shown=shown)


def delivery_over(state: SessionState, event: DeliveryConfirmed | DeliveryFailed) -> SessionState:
    deliveries, shown = dict(state.deliveries), state.shown
    known = deliveries.pop(event.delivery, None)
    became = "confirmed" if isinstance(event, DeliveryConfirmed) else event.code
    if (
        isinstance(event, DeliveryConfirmed)
        and event.shown is not None
        and event.receipt is not None
        and known is not None
        and known.about is not None
        and not state.carrying  # a copy of a session owns no message of the original
    ):
        message = ShownPrompt(
            known.about,
            known.turn,
            known.channel,
            known.to,
            event.receipt,
            is_whole=event.shown == "whole",
        )
        shown = shown | {shown_key(known.channel, event.receipt): message}
    return replace(
        state,
        deliveries=deliveries,
        delivered=state.delivered.add(event.delivery, became),
        shown=shown,
    )


def shown_key(channel: str, message: str) -> str:
    return f"{channel} {message}"
