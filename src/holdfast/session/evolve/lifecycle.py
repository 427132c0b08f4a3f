"""
Apply events to a session as a whole, in any turn: its creation, the end of carried-over history, a
change of model, its deliveries.
"""

from msgspec.structs import replace

from holdfast.ids import CallId, TurnId
from holdfast.session.events import (
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryQueued,
    DeliverySent,
    LifeCarried,
    ModelGiven,
    SessionBorn,
)
from holdfast.session.evolve.view import with_entry
from holdfast.session.state import Delivery, SessionState, ViewEntry
from holdfast.session.transitions import IllegalTransition
from holdfast.session.view.messages import NoteMessage


def session_born(state: SessionState, event: SessionBorn) -> SessionState:
    if state.born or (event.session, event.instance) != (state.session, state.instance):
        raise IllegalTransition(None, event, "another life's beginning")
    in_doubt = state.in_doubt
    for key in event.parent.doubts if event.parent is not None else ():
        in_doubt = in_doubt.add(key, CallId("of the parent"))
    return replace(state, born=True, carrying=event.carried, parent=event.parent, in_doubt=in_doubt)


def life_carried(state: SessionState, event: LifeCarried) -> SessionState:
    view = state.view
    if event.attached:
        notes = tuple(
            NoteMessage(f"Kept from before this session was sealed or copied: {each}")
            for each in event.attached
        )
        view = with_entry(view, ViewEntry(TurnId("carried"), notes))
    return replace(state, carrying=0, deliveries={}, reminders={}, delegates={}, jobs={}, view=view)


def model_given(state: SessionState, event: ModelGiven) -> SessionState:
    turns = {name: replace(turn, model=event.model) for name, turn in state.turns.items()}
    reminders = {name: replace(each, model=event.model) for name, each in state.reminders.items()}
    jobs = {name: replace(job, model=event.model) for name, job in state.jobs.items()}
    queued = tuple(replace(each, model=event.model) for each in state.queued)
    return replace(
        state, model=event.model, turns=turns, reminders=reminders, jobs=jobs, queued=queued
    )


def delivery_moved(
    state: SessionState, event: DeliveryQueued | DeliverySent | DeliveryConfirmed | DeliveryFailed
) -> SessionState:
    deliveries, delivered = dict(state.deliveries), state.delivered
    match event:
        case DeliveryQueued(delivery=delivery):
            deliveries[delivery] = Delivery(
                delivery, event.turn, event.channel, event.kind, event.text
            )
        case DeliverySent(delivery=delivery):
            if delivery in deliveries:
                deliveries[delivery] = replace(deliveries[delivery], sent=True)
        case DeliveryConfirmed(delivery=delivery) | DeliveryFailed(delivery=delivery):
            deliveries.pop(delivery, None)
            delivered = delivered.add(
                delivery, "confirmed" if isinstance(event, DeliveryConfirmed) else event.code
            )
    return replace(state, deliveries=deliveries, delivered=delivered)
