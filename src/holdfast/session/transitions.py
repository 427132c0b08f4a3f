"""
The transition table: which event is legal for a turn in which phase, and the phase it leads to.

`evolve` consults it for every event of a turn. An event that is not listed is illegal. If Holdfast
is about to write it, that is a bug (InvariantBroken). If Holdfast reads it, the journal cannot be
believed (BrokenChain, the session is sealed). `docs/internals/state-machine.md` is generated from
here.
"""

from collections.abc import Mapping

from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    CallAllowed,
    CallFinished,
    CallsProposed,
    DelegateStarted,
    Event,
    JobSubmitted,
    MemoryRecalled,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    StateKept,
    ToolStarted,
    TurnCancelled,
    TurnCompacted,
    TurnEnded,
    TurnParked,
    TurnResumed,
)
from holdfast.session.state import Phase

P = Phase

TRANSITIONS: Mapping[tuple[Phase, type[Event]], frozenset[Phase]] = {
    (P.READY, MemoryRecalled): frozenset({P.READY}),  # once, before the first model call
    (P.READY, ModelCallStarted): frozenset({P.CALLING_MODEL}),
    (P.READY, CallsProposed): frozenset({P.DECIDING, P.READY}),  # by an external loop's model
    (P.READY, StateKept): frozenset({P.READY}),
    (P.READY, TurnParked): frozenset({P.PARKED}),  # an external loop left, or died
    (P.READY, TurnCompacted): frozenset({P.READY}),
    (P.READY, TurnResumed): frozenset({P.READY}),
    (P.READY, TurnCancelled): frozenset({P.CANCELLING}),
    (P.READY, TurnEnded): frozenset({P.ENDED}),
    (P.CALLING_MODEL, ModelAnswered): frozenset({P.DECIDING, P.READY}),
    (P.CALLING_MODEL, ModelCallFailed): frozenset({P.READY}),
    (P.CALLING_MODEL, ModelCallLost): frozenset({P.READY}),  # repeated under a new number
    (P.CALLING_MODEL, TurnCompacted): frozenset({P.CALLING_MODEL}),  # before the call leaves
    (P.CALLING_MODEL, TurnResumed): frozenset({P.CALLING_MODEL}),
    (P.CALLING_MODEL, TurnCancelled): frozenset({P.CANCELLING}),
    (P.DECIDING, CallsProposed): frozenset({P.DECIDING}),  # they join the open batch
    (P.DECIDING, StateKept): frozenset({P.DECIDING}),
    (P.DECIDING, TurnParked): frozenset({P.PARKED}),  # an external loop left, or died
    (P.DECIDING, CallAllowed): frozenset({P.DECIDING, P.RUNNING}),
    (P.DECIDING, ApprovalRequested): frozenset({P.DECIDING, P.RUNNING}),
    (P.DECIDING, ApprovalAnswered): frozenset({P.DECIDING}),
    (P.DECIDING, ApprovalClosed): frozenset({P.DECIDING}),
    (P.DECIDING, CallFinished): frozenset({P.DECIDING, P.RUNNING, P.READY}),
    (P.DECIDING, ToolStarted): frozenset(
        {P.DECIDING}
    ),  # a sibling call allowed earlier, while an edited call is bound again
    (P.DECIDING, DelegateStarted): frozenset({P.DECIDING}),
    (P.DECIDING, JobSubmitted): frozenset({P.DECIDING}),
    (P.DECIDING, TurnResumed): frozenset({P.DECIDING}),
    (P.DECIDING, TurnCancelled): frozenset({P.CANCELLING}),
    (P.RUNNING, CallsProposed): frozenset({P.DECIDING, P.RUNNING}),  # they join the open batch
    (P.RUNNING, StateKept): frozenset({P.RUNNING}),
    (P.RUNNING, ToolStarted): frozenset({P.RUNNING}),
    (P.RUNNING, DelegateStarted): frozenset({P.RUNNING}),
    (P.RUNNING, JobSubmitted): frozenset(
        {P.RUNNING}
    ),  # the job goes on beside the turn; the call's result follows at once
    (P.RUNNING, CallFinished): frozenset({P.RUNNING, P.READY}),
    (P.RUNNING, ApprovalRequested): frozenset(
        {P.RUNNING}
    ),  # policy tightened, or a grant was revoked, before the call started
    (P.RUNNING, ApprovalAnswered): frozenset({P.RUNNING, P.DECIDING}),
    (P.RUNNING, ApprovalClosed): frozenset({P.RUNNING}),
    (P.RUNNING, TurnParked): frozenset({P.PARKED}),
    (P.RUNNING, TurnResumed): frozenset({P.RUNNING}),
    (P.RUNNING, TurnCancelled): frozenset({P.CANCELLING}),
    (P.PARKED, StateKept): frozenset({P.PARKED}),
    (P.PARKED, ApprovalRequested): frozenset({P.PARKED}),  # edited: an external loop's call
    (P.PARKED, ApprovalAnswered): frozenset({P.PARKED}),
    (P.PARKED, ApprovalClosed): frozenset({P.PARKED}),
    (P.PARKED, CallFinished): frozenset({P.PARKED}),
    (P.PARKED, TurnResumed): frozenset({P.READY, P.DECIDING, P.RUNNING}),
    (P.PARKED, TurnCancelled): frozenset({P.CANCELLING}),
    (P.PARKED, TurnEnded): frozenset({P.ENDED}),  # superseded: every call has its result by then
    (P.CANCELLING, CallFinished): frozenset({P.CANCELLING}),
    (P.CANCELLING, ApprovalClosed): frozenset({P.CANCELLING}),
    (P.CANCELLING, TurnEnded): frozenset({P.ENDED}),
}

PHASE_SENTENCES: Mapping[Phase, str] = {
    P.READY: "The next step is a model call; in an external loop, the loop's own.",
    P.CALLING_MODEL: "A model call is out, and no lock is held.",
    P.DECIDING: "Calls were made; what may run, must ask or is denied is not decided yet.",
    P.RUNNING: "Calls may start, or have started.",
    P.PARKED: (
        "Only a person, the end of a delegate, or its external loop can move it on; it costs no"
        " task and no memory."
    ),
    P.CANCELLING: "Cancelled, durably; a started call has not ended yet.",
    P.ENDED: "Over; it has joined the shared view.",
}


class IllegalTransition(Exception):
    """
    The event is not in the table. From our own decide: InvariantBroken. On replay: BrokenChain.
    """

    def __init__(self, phase: Phase | None, event: object, detail: str = "") -> None:
        where = "no open turn" if phase is None else phase.value
        super().__init__(
            f"{type(event).__name__} can't happen in {where}{': ' + detail if detail else ''}"
        )
        self.phase = phase
        self.event = event


def check(before: Phase, event: Event, after: Phase) -> None:
    allowed = TRANSITIONS.get((before, type(event)))
    if allowed is None or after not in allowed:
        raise IllegalTransition(before, event, f"it would lead to {after.value}" if allowed else "")
