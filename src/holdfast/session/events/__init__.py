"""
Every fact about a session, as frozen values. Events are in the past tense and are never edited. The
journal holds nothing else.

An event holds everything that its fold needs: no clock, no settings, no outside facts. Times inside
are Unix milliseconds. The stored names and versions are in `codec.py`. To add an event, write it in
the file of its subject, then add it here, in `SessionEvent`, in `transitions.py` and in
`evolve/fold.py` (the type checker insists), and add a golden file.
"""

from holdfast.session.events.approvals import (
    AnswerRefused,
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    ClosedAs,
    OptionOffered,
    PromptKind,
)
from holdfast.session.events.base import Blob, Event
from holdfast.session.events.calls import (
    CallAllowed,
    CallFinished,
    CallMade,
    CallOutcome,
    ToolStarted,
)
from holdfast.session.events.delegates import (
    DelegateEnded,
    DelegateOf,
    DelegateReported,
    DelegateStarted,
)
from holdfast.session.events.deliveries import (
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryPostponed,
    DeliveryQueued,
    DeliverySent,
)
from holdfast.session.events.external_loop import CallsProposed, ItemAdded, ItemsRemoved, StateKept
from holdfast.session.events.instances import (
    LifeCarried,
    ModelGiven,
    SessionBorn,
    SessionRenamed,
    TailRepaired,
    TurnImported,
)
from holdfast.session.events.jobs import JobCancelled, JobEnded, JobHost, JobOutcome, JobSubmitted
from holdfast.session.events.model_calls import (
    Compacted,
    MemoryRecalled,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    RecalledItem,
    TurnCompacted,
)
from holdfast.session.events.reminders import ReminderCancelled, ReminderFired, ReminderSet
from holdfast.session.events.turns import (
    InputAccepted,
    InputDropped,
    InputKind,
    Loop,
    TurnCancelled,
    TurnEnded,
    TurnOutcome,
    TurnParked,
    TurnResumed,
    TurnStarted,
)

SessionEvent = (
    SessionBorn
    | LifeCarried
    | TailRepaired
    | InputAccepted
    | InputDropped
    | TurnStarted
    | TurnParked
    | TurnResumed
    | TurnCancelled
    | TurnEnded
    | ModelGiven
    | SessionRenamed
    | MemoryRecalled
    | ModelCallStarted
    | ModelAnswered
    | ModelCallFailed
    | ModelCallLost
    | ModelAnswerDropped
    | CallsProposed
    | StateKept
    | ItemAdded
    | ItemsRemoved
    | CallAllowed
    | ApprovalRequested
    | ApprovalAnswered
    | AnswerRefused
    | ApprovalClosed
    | ToolStarted
    | DelegateStarted
    | DelegateEnded
    | DelegateReported
    | CallFinished
    | JobSubmitted
    | JobCancelled
    | JobEnded
    | Compacted
    | TurnCompacted
    | TurnImported
    | DeliveryQueued
    | DeliverySent
    | DeliveryPostponed
    | DeliveryConfirmed
    | DeliveryFailed
    | ReminderSet
    | ReminderFired
    | ReminderCancelled
)

__all__ = [
    "AnswerRefused",
    "ApprovalAnswered",
    "ApprovalClosed",
    "ApprovalRequested",
    "Blob",
    "CallAllowed",
    "CallFinished",
    "CallMade",
    "CallOutcome",
    "CallsProposed",
    "ClosedAs",
    "Compacted",
    "DelegateEnded",
    "DelegateOf",
    "DelegateReported",
    "DelegateStarted",
    "DeliveryConfirmed",
    "DeliveryFailed",
    "DeliveryPostponed",
    "DeliveryQueued",
    "DeliverySent",
    "Event",
    "InputAccepted",
    "InputDropped",
    "InputKind",
    "ItemAdded",
    "ItemsRemoved",
    "JobCancelled",
    "JobEnded",
    "JobHost",
    "JobOutcome",
    "JobSubmitted",
    "LifeCarried",
    "Loop",
    "MemoryRecalled",
    "ModelAnswerDropped",
    "ModelAnswered",
    "ModelCallFailed",
    "ModelCallLost",
    "ModelCallStarted",
    "ModelGiven",
    "OptionOffered",
    "PromptKind",
    "RecalledItem",
    "ReminderCancelled",
    "ReminderFired",
    "ReminderSet",
    "SessionBorn",
    "SessionEvent",
    "SessionRenamed",
    "StateKept",
    "TailRepaired",
    "ToolStarted",
    "TurnCancelled",
    "TurnCompacted",
    "TurnEnded",
    "TurnImported",
    "TurnOutcome",
    "TurnParked",
    "TurnResumed",
    "TurnStarted",
]
