"""Turns that an external loop drives."""

from holdfast.ids import CallId, TurnId
from holdfast.session.authority.policy import Policy
from holdfast.session.commands.base import Command
from holdfast.session.events import Blob
from holdfast.session.view.messages import ProposedCall, Usage


class ProposeCalls(Command[tuple[CallId, ...] | None], frozen=True):
    """
    Take the answer of an external loop's model, with its calls. A call whose id the turn knows is
    not proposed again. The result has one id per call, in their order.

    `answers`: it is a whole answer, which counts as a model call.

    `inputs`: the calls are for the turn of that many-th message of the session. A turn of another
    message gets none. For calls whose message becomes durable in the same commit.
    """

    turn: TurnId
    calls: tuple[ProposedCall, ...]
    text: str
    policy: Policy
    usage: Usage = Usage()
    model: str | None = None
    blob: Blob | None = None
    answers: bool = True
    parent: CallId | None = None
    inputs: int | None = None


class KeepState(Command[bool], frozen=True):
    """Keep the state of an external loop's framework. The result says whether the turn is open."""

    turn: TurnId
    blob: Blob


class AddItem(Command[None], frozen=True):
    """Add an item to the history that a framework keeps in this session."""

    blob: Blob
    key: str = ""


class RemoveItems(Command[None], frozen=True):
    """Remove items from a framework's history: those records, or all."""

    adapter: str
    items: tuple[int, ...] = ()


class DropCall(Command[bool], frozen=True):
    """
    An external loop will not run a call that has not started. Its prompt is closed. The result says
    whether the call was open.
    """

    turn: TurnId
    call: CallId
    reason: str


class TakeUpLoop(Command[None], frozen=True):
    """
    Another external loop takes up a turn: calls that the earlier loop had started are in doubt,
    unless they may run again, and the turn goes on if it has anything to do.
    """

    turn: TurnId
    epoch: int


class LeaveLoop(Command[None], frozen=True):
    """
    An external loop leaves a turn that has not ended. Started calls are in doubt, unless they may
    run again. The turn waits for a loop to take it up.
    """

    turn: TurnId
