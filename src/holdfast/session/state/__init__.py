"""
The state of a session: the fold of its events. Frozen; only `evolve` makes the next state.

The state is bounded by the open turns and the view, never by the length of history. Flags that can
be derived are derived. A fold makes many values. Frozen values cannot form cycles, so the garbage
collector need not visit them (`gc=False`).
"""

from holdfast.session.state.features import (
    Delegate,
    Delivery,
    EndedJob,
    Job,
    Reminder,
    ReminderOver,
    ShownPrompt,
)
from holdfast.session.state.session import (
    Deduplicated,
    Input,
    Reader,
    Recall,
    SessionState,
    SettledApproval,
    TurnResult,
)
from holdfast.session.state.turn import (
    Approval,
    Call,
    CallStatus,
    ModelCall,
    ModelFailure,
    Phase,
    Repeats,
    ReplayedAnswer,
    Turn,
)
from holdfast.session.state.view import View, ViewEntry

__all__ = [
    "Approval",
    "Call",
    "CallStatus",
    "Deduplicated",
    "Delegate",
    "Delivery",
    "EndedJob",
    "Input",
    "Job",
    "ModelCall",
    "ModelFailure",
    "Phase",
    "Reader",
    "Recall",
    "Reminder",
    "ReminderOver",
    "Repeats",
    "ReplayedAnswer",
    "SessionState",
    "SettledApproval",
    "ShownPrompt",
    "Turn",
    "TurnResult",
    "View",
    "ViewEntry",
]
