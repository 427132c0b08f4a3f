"""Prompts: answer one, or close those that no longer count."""

from holdfast.ids import ApprovalId
from holdfast.session.authority.policy import WAYS, Way
from holdfast.session.commands.base import Command
from holdfast.session.results import (
    Answered,
)


class AnswerApproval(Command[Answered], frozen=True):
    approval: ApprovalId
    option: str
    by: str
    answer_id: str
    digest: str | None = None
    reason: str | None = None
    arguments: str | None = None
    grant: str | None = None
    asserted_by: str | None = None
    way: Way | None = None  # how the answer arrived
    consent: tuple[Way, ...] = WAYS  # the ways that count under the current settings


class Expire(Command[None], frozen=True):
    """Close every prompt whose time is over."""


class VoidPrompts(Command[None], frozen=True):
    """Close every open prompt of these tools: their definitions are no longer what was shown."""

    tools: tuple[str, ...]
    reason: str
