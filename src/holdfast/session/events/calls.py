"""Calls of tools: made by a model, allowed, started and finished."""

from typing import Any, Literal

import msgspec

from holdfast.ids import (
    CallId,
    TurnId,
)
from holdfast.session.events.base import Blob, Event

CallOutcome = Literal[
    "ok",
    "error",
    "denied",
    "unattended",
    "superseded",
    "cancelled",
    "voided",
    "timed_out",
    "in_doubt",
]


class CallMade(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    call: CallId
    tool: str
    arguments: str  # the exact JSON text the model wrote
    provider_id: str | None = None
    # In an external loop: the started call whose nested agent made this one, and the nested agents
    # from the turn's own agent down.
    parent: CallId | None = None
    path: tuple[str, ...] = ()
    may_repeat: bool = False  # a pure call that may be made again and again, such as a poll


class CallAllowed(Event, frozen=True):
    """It may run without asking: by policy, or by a grant. Decided again right before it starts."""

    turn: TurnId
    call: CallId
    by: str  # "policy" or a grant's id
    arguments: str
    digest: str


class ToolStarted(Event, frozen=True):
    """
    Durable before anything runs. Carries what is needed to find the process again, or to know that
    it is gone.
    """

    turn: TurnId
    call: CallId
    tool: str
    arguments: str
    digest: str
    contract: Literal["pure", "idempotent", "once"]
    allowed_by: str  # "policy", a grant's id or an approval's id
    epoch: int
    run: int = 1
    process: dict[str, Any] | None = None


class CallFinished(Event, frozen=True):
    """The one result of one call, real or synthetic."""

    turn: TurnId
    call: CallId
    outcome: CallOutcome
    text: str
    code: str | None = None
    output: str | None = None  # digest of the full output kept beside the journal
    result: Blob | None = None  # the result as an external loop's framework has it
