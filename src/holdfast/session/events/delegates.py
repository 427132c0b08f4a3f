"""A call is handed to another agent, whose own session reports back."""

from typing import Literal

import msgspec

from holdfast.ids import (
    CallId,
    InstanceId,
    SessionId,
    TurnId,
)
from holdfast.session.events.base import Event
from holdfast.session.view.messages import Usage


class DelegateOf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """
    The call that a delegate works for, and the upper bound of its authority. Written once, when its
    session is created. Its context is in its input, as for every session.
    """

    session: SessionId
    instance: InstanceId
    turn: TurnId
    call: CallId
    path: tuple[str, ...]  # agents, from the one that a person asked to this one
    tools: tuple[str, ...]  # its parent's tools when it was started; it has no others
    prompts_max: int  # the prompts left in its parent's budget
    doubts: tuple[str, ...] = ()  # calls in doubt in its parent: an equal call asks here too


class DelegateStarted(Event, frozen=True):
    """
    A call was handed to another agent; durable before that agent's session is created. It
    corresponds to ToolStarted of a tool.
    """

    turn: TurnId
    call: CallId
    agent: str
    session: SessionId
    instance: InstanceId  # minted here, so that a crash before creation leads to the same instance
    arguments: str
    digest: str
    allowed_by: str
    epoch: int
    tools: tuple[str, ...] = ()  # this agent's tools: the most that the delegate may have


class DelegateEnded(Event, frozen=True):
    """
    The delegate's turn is over and this session knows it: the call has its result, unless its turn
    ended first.
    """

    turn: TurnId
    call: CallId
    outcome: str  # of its turn; lost: the outcome can no longer be known
    prompts: int = 0
    doubts: tuple[str, ...] = ()  # the delegate's calls in doubt: an equal call asks here too
    usage: Usage = Usage()


class DelegateReported(Event, frozen=True):
    """
    In the delegate's own journal: its parent has the result, or is gone (dropped). Nothing is owed
    any more.
    """

    turn: TurnId
    became: Literal["reported", "dropped"]
