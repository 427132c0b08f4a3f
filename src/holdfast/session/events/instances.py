"""
An instance of a session begins, is carried over from an earlier one, or is repaired or renamed.
"""

from holdfast.ids import (
    InstanceId,
    SessionId,
    TurnId,
)
from holdfast.session.events.base import Event
from holdfast.session.events.delegates import DelegateOf
from holdfast.session.view.messages import Message


class SessionBorn(Event, frozen=True):
    """
    The first record of an instance. Carried records of an unseal, fork, import or restore follow.
    """

    session: SessionId
    instance: InstanceId
    origin: str  # created, unseal, fork, import, restore, delegate
    by: str
    from_session: SessionId | None = None
    from_instance: InstanceId | None = None
    from_seq: int | None = None
    carried: int = 0  # number of records of the earlier instance that follow
    parent: DelegateOf | None = None  # of a delegate's session


class LifeCarried(Event, frozen=True):
    """The last carried record precedes this one. Nothing of the earlier instance is owed."""

    by: str
    reason: str
    attached: tuple[
        str, ...
    ] = ()  # quarantined outcomes that belong to it, as text; later turns see them as notes
    not_run: tuple[str, ...] = ()  # inputs, deliveries and reminders that were waiting, by id


class TailRepaired(Event, frozen=True):
    """A torn, never acknowledged tail was cut; its bytes are in quarantine."""

    bytes: int
    quarantine: str


class ModelGiven(Event, frozen=True):
    """A person named another model for what is open, and for what comes."""

    model: str
    by: str


class SessionRenamed(Event, frozen=True):
    """A person gave the conversation another title. Empty: the first message gives it again."""

    title: str
    by: str


class TurnImported(Event, frozen=True):
    """
    A piece of a conversation that took place elsewhere: text without a context. It informs the
    model, allows nothing, and stays tainted.
    """

    turn: TurnId
    messages: tuple[Message, ...]  # of people, models and notes; never calls or results
    source: str  # the id in the imported file, for people
    at: int | None = None  # the time of the message, as in the file
