"""The end of a delegate's turn, reported to the call that waits for it."""

from typing import Literal

from holdfast.ids import CallId, InstanceId, SessionId
from holdfast.session.commands.base import Command
from holdfast.session.events import CallOutcome
from holdfast.session.view.messages import Usage


class ReportDelegate(Command[Literal["reported", "dropped"] | None], frozen=True):
    """
    Report the end of a delegate's turn to the call that waits for it. If the call no longer waits,
    only the fact that the delegate ended is kept.
    """

    call: CallId
    session: SessionId
    instance: InstanceId
    ended: str
    outcome: CallOutcome
    text: str
    code: str | None = None
    output: str | None = None
    prompts: int = 0
    doubts: tuple[str, ...] = ()
    usage: Usage = Usage()


class MarkReported(Command[None], frozen=True):
    """Record that the delegate's parent knows the result, or that the parent is gone."""

    became: Literal["reported", "dropped"]
