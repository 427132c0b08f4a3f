"""
Work owed: what `react` says must be done next, by whoever drives. Values only; the runtime performs
them.
"""

import msgspec

from holdfast.ids import CallId, JobId, TurnId


class Effect(msgspec.Struct, frozen=True):
    """Something owed."""


class BeginTurn(Effect, frozen=True):
    """Queued inputs wait, and nothing runs."""


class Resume(Effect, frozen=True):
    """A parked turn has all its answers, and nothing else runs."""

    turn: TurnId


class CallModel(Effect, frozen=True):
    turn: TurnId


class LookAtCalls(Effect, frozen=True):
    """Calls to validate, bind and decide."""

    turn: TurnId
    calls: tuple[CallId, ...]


class RunTools(Effect, frozen=True):
    """Calls that may start now, side by side."""

    turn: TurnId
    calls: tuple[CallId, ...]


class Park(Effect, frozen=True):
    turn: TurnId


class Finish(Effect, frozen=True):
    """
    Nothing is left to do in this turn but to say how it ended; or a call's fate is decided, and
    only its result is missing.
    """

    turn: TurnId


class AwaitModel(Effect, frozen=True):
    """In flight: a model call. After a crash nobody awaits it; recovery says so."""

    turn: TurnId
    number: int
    epoch: int


class AwaitTool(Effect, frozen=True):
    """In flight: a started call."""

    turn: TurnId
    call: CallId
    epoch: int


class BearDelegate(Effect, frozen=True):
    """
    A call was handed to a delegate whose session may not exist yet. Idempotent: it is born once,
    under its journalled instance.
    """

    turn: TurnId
    call: CallId


class StopDelegate(Effect, frozen=True):
    """A delegate works on for a call that nobody wants the result of any more."""

    call: CallId


class ReportToParent(Effect, frozen=True):
    """This session is a delegate's, its turn is over, and its parent may not know yet."""


class Deliver(Effect, frozen=True):
    delivery: str


class ReportJob(Effect, frozen=True):
    """A job has ended, and the message that says so is not in the queue yet."""

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
    | BearDelegate
    | StopDelegate
    | ReportToParent
    | Deliver
    | ReportJob
)
