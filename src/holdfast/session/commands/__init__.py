"""
Requests for a change, in the imperative. `decide` turns a command into events, or refuses it.

A command carries every input of the decision that is not in the state: current settings, an
adapter's findings, active grants. Times come with `decide`. The files have the subjects of the
files in `events/`.
"""

from holdfast.session.commands.approvals import AnswerApproval, Expire, VoidPrompts
from holdfast.session.commands.base import Command, Result
from holdfast.session.commands.calls import (
    AskForInput,
    ContinueAsJob,
    DecideCalls,
    FinishCall,
    JobPlan,
    NewDelegate,
    StartTool,
)
from holdfast.session.commands.delegates import MarkReported, ReportDelegate
from holdfast.session.commands.deliveries import MarkDelivery, QueueDelivery
from holdfast.session.commands.external_loop import (
    AddItem,
    DropCall,
    KeepState,
    LeaveLoop,
    ProposeCalls,
    RemoveItems,
    TakeUpLoop,
)
from holdfast.session.commands.instances import CloseInstance, GiveModel, RenameSession
from holdfast.session.commands.jobs import CancelJob, EndJob, ReportEndedJob
from holdfast.session.commands.model_calls import (
    KeepPartialAnswer,
    RecordCompaction,
    RecordRecall,
    RecordTurnCompaction,
    StartModelCall,
    TakeAnswer,
    TakeFailure,
)
from holdfast.session.commands.reminders import CancelReminder, FireReminders, SetReminder
from holdfast.session.commands.turns import (
    AcceptInput,
    Cancel,
    EndTurn,
    FailTurn,
    ParkTurn,
    Recover,
    ResumeTurn,
    StartTurn,
)

SessionCommand = (
    AcceptInput
    | StartTurn
    | RecordRecall
    | StartModelCall
    | TakeAnswer
    | KeepPartialAnswer
    | TakeFailure
    | ProposeCalls
    | KeepState
    | AddItem
    | RemoveItems
    | DropCall
    | TakeUpLoop
    | LeaveLoop
    | DecideCalls
    | StartTool
    | EndJob
    | ReportEndedJob
    | CancelJob
    | FinishCall
    | AskForInput
    | ContinueAsJob
    | ReportDelegate
    | MarkReported
    | ParkTurn
    | ResumeTurn
    | EndTurn
    | FailTurn
    | AnswerApproval
    | Cancel
    | Expire
    | VoidPrompts
    | Recover
    | GiveModel
    | RenameSession
    | RecordCompaction
    | RecordTurnCompaction
    | QueueDelivery
    | MarkDelivery
    | SetReminder
    | FireReminders
    | CancelReminder
    | CloseInstance
)

__all__ = [
    "AcceptInput",
    "AddItem",
    "AnswerApproval",
    "AskForInput",
    "Cancel",
    "CancelJob",
    "CancelReminder",
    "CloseInstance",
    "Command",
    "ContinueAsJob",
    "DecideCalls",
    "DropCall",
    "EndJob",
    "EndTurn",
    "Expire",
    "FailTurn",
    "FinishCall",
    "FireReminders",
    "GiveModel",
    "JobPlan",
    "KeepPartialAnswer",
    "KeepState",
    "LeaveLoop",
    "MarkDelivery",
    "MarkReported",
    "NewDelegate",
    "ParkTurn",
    "ProposeCalls",
    "QueueDelivery",
    "RecordCompaction",
    "RecordRecall",
    "RecordTurnCompaction",
    "Recover",
    "RemoveItems",
    "RenameSession",
    "ReportDelegate",
    "ReportEndedJob",
    "Result",
    "ResumeTurn",
    "SessionCommand",
    "SetReminder",
    "StartModelCall",
    "StartTool",
    "StartTurn",
    "TakeAnswer",
    "TakeFailure",
    "TakeUpLoop",
    "VoidPrompts",
]
