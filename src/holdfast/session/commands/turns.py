"""Messages, and the turns that they begin: accept, start, park, resume, end, cancel."""

from collections.abc import Mapping

from holdfast.ids import ApprovalId, CallId, TurnId
from holdfast.session.authority.context import MessageSource, TurnContext, Workspace
from holdfast.session.authority.policy import Policy
from holdfast.session.commands.base import Command
from holdfast.session.events import InputKind, Loop
from holdfast.session.results import (
    Accepted,
    Duplicate,
    OnlyAnAnswerWord,
)


class AcceptInput(Command[Accepted | Duplicate | OnlyAnAnswerWord], frozen=True):
    """
    Accept a message. `context` is set for a child's message and is already narrowed. The context of
    any other message is made from its source.
    """

    text: str
    source: MessageSource | None
    agent: str
    model: str
    policy: Policy
    workspace: Workspace | None = None
    dedup: str | None = None
    aliases: tuple[str, ...] = ()  # further dedup keys; a message with any of them is a repeat
    kind: InputKind = "message"
    loop: Loop = "ours"
    context: TurnContext | None = None
    asked_below: Mapping[
        TurnId, tuple[ApprovalId, ...]
    ] = {}  # open prompts of parked turns' delegates, which stand in other sessions


class StartTurn(Command[TurnId | None], frozen=True):
    epoch: int


class ParkTurn(Command[None], frozen=True):
    """
    Park a turn. `existing`: calls whose delegates' sessions are known to exist. A turn is not
    parked on a delegate that may not exist yet, because nothing would create it.
    """

    turn: TurnId
    existing: tuple[CallId, ...] = ()


class ResumeTurn(Command[None], frozen=True):
    turn: TurnId
    epoch: int


class EndTurn(Command[None], frozen=True):
    """
    Close a turn with nothing left to do, for the reason that its state gives. In an external loop,
    close it with this reply.
    """

    turn: TurnId
    policy: Policy
    reply: str | None = None


class FailTurn(Command[None], frozen=True):
    """
    End a turn for a reason from outside the state. Calls that have not started are cancelled;
    started ones are in doubt.
    """

    turn: TurnId
    code: str
    message: str
    hint: str | None = None


class Cancel(Command[tuple[TurnId, ...] | None], frozen=True):
    """
    Stop running and waiting turns. `turn` None: every open turn. `may_all`: the operator or an
    admin, who may cancel other people's turns.
    """

    by: str
    turn: TurnId | None = None
    may_all: bool = False


class Recover(Command[tuple[tuple[TurnId, str], ...]], frozen=True):
    """
    A driver with this epoch claimed the session: settle all work that earlier drivers left in
    flight.
    """

    epoch: int
