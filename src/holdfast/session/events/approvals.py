"""Prompts: a turn asks a person, and the prompt is answered or closed."""

from typing import Literal

import msgspec

from holdfast.ids import (
    ApprovalId,
    CallId,
    TurnId,
)
from holdfast.session.authority.plan import Risk
from holdfast.session.events.base import Event
from holdfast.session.features.forms.form import ServerForm

ClosedAs = Literal["expired", "superseded", "voided", "cancelled"]
PromptKind = Literal["approval", "question"]


class OptionOffered(msgspec.Struct, frozen=True):
    """One way to answer, with a text of the calls that it would cover."""

    option: str
    covers: str


class ApprovalRequested(Event, frozen=True):
    """
    The turn asks a person. Everything that will be shown, and the digest that an answer is bound
    to.
    """

    approval: ApprovalId
    turn: TurnId
    call: CallId
    tool: str
    definition: str
    arguments: str  # as they would run
    binding: str
    display: str
    digest: str
    options: tuple[OptionOffered, ...]
    may_answer: tuple[str, ...]
    expires_at: int
    kind: PromptKind = "approval"
    cwd: str | None = None
    folder: str | None = None  # the folder that approve_folder would allow
    # for each scope a grant could have: the arguments it would bind
    granted: dict[str, str] = msgspec.field(default_factory=dict)
    risks: tuple[Risk, ...] = ()  # why it deserves a second look; offsets are in `display`
    reason: str = ""  # why it asks
    in_doubt_twin: bool = False  # the prompt warns that an equal call is in doubt
    doubts: tuple[CallId, ...] = ()  # the equal calls in doubt when it was asked
    path: str | None = None  # for file tools: the resolved path; a grant is for it
    form: ServerForm | None = None  # a started call's server wants these values to go on


class ApprovalAnswered(Event, frozen=True):
    approval: ApprovalId
    turn: TurnId
    call: CallId
    option: str
    by: str
    answer_id: str
    digest: str
    reason: str | None = None
    arguments: str | None = None  # with `edit`: the arguments to run instead
    grant: str | None = None
    asserted_by: str | None = None
    way: str | None = None  # how the answer arrived: script, terminal, page or channels


class AnswerRefused(Event, frozen=True):
    """
    Somebody tried to answer who may not, or in a way that does not count. Kept for the audit; the
    prompt stands.
    """

    approval: ApprovalId
    turn: TurnId
    by: str
    option: str
    code: str


class ApprovalClosed(Event, frozen=True):
    approval: ApprovalId
    turn: TurnId
    call: CallId
    closed_as: ClosedAs
    reason: str = ""
