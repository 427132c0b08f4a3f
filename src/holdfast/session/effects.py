"""Work that is owed: `react` names the next steps, and the driver performs them. Values only."""

import msgspec

from holdfast.ids import CallId, JobId, TurnId


class Effect(msgspec.Struct, frozen=True):
    """One piece of work that is owed."""


class BeginTurn(Effect, frozen=True):
    """Inputs are queued, and no turn is running."""


class Resume(Effect, frozen=True):
    """A parked turn has all its answers, and no other turn is running."""

    turn: TurnId


class CallModel(Effect, frozen=True):
    turn: TurnId


class LookAtCalls(Effect, frozen=True):
    """Calls to validate, bind and decide."""

    turn: TurnId
    calls: tuple[CallId, ...]


class RunTools(Effect, frozen=True):
    """Calls that may start now, in parallel."""

    turn: TurnId
    calls: tuple[CallId, ...]


class Park(Effect, frozen=True):
    turn: TurnId


class Finish(Effect, frozen=True):
    """
    The turn has nothing left to do but to record its end, or a call's result is decided and its
    record is missing.
    """

    turn: TurnId


class AwaitModel(Effect, frozen=True):
    """A model call is in flight. After a crash no process awaits it; recovery records that."""

    turn: TurnId
    number: int
    epoch: int


class AwaitTool(Effect, frozen=True):
    """A started call is in flight."""

    turn: TurnId
    call: CallId
    epoch: int


class CreateDelegate(Effect, frozen=True):
    """
    A call was handed to a delegate whose session may not exist yet. Idempotent: the session is
    created once, under its journalled instance.
    """

    turn: TurnId
    call: CallId


class StopDelegate(Effect, frozen=True):
    """A delegate is still working for a call whose result is no longer wanted."""

    call: CallId


class ReportToParent(Effect, frozen=True):
    """This session belongs to a delegate, its turn is over, and its parent may not know yet."""


class Deliver(Effect, frozen=True):
    delivery: str


class ReportJob(Effect, frozen=True):
    """A job has ended, and the message that reports it is not in the queue yet."""

    job: JobId


SessionEffect = (
    BeginTurn
    | Resume
    | CallModel
    | LookAtCalls
    | RunTools
    | Park
    | Finish
    | AwaitModel
    | AwaitTool
    | CreateDelegate
    | StopDelegate
    | ReportToParent
    | Deliver
    | ReportJob
)
