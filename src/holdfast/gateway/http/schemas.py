"""
The requests and answers of the HTTP API, beside the reports of the runtime. Unknown fields are
refused, so a client can't declare its own rights.

The docstrings of the structs are published in the OpenAPI document.
"""

from typing import Annotated, Any

import msgspec

from holdfast.ids import SessionId
from holdfast.runtime.reports.grants import GrantReport
from holdfast.runtime.reports.listing import SessionLine
from holdfast.runtime.reports.types import ApprovalReport, TurnReport

KEY_CHARS_MAX = 200
LIMIT_DEFAULT, LIMIT_MAX = 100, 500

_Key = Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_CHARS_MAX)]


class MessageIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message to a session."""

    text: Annotated[str, msgspec.Meta(min_length=1)]


class MessageTaken(msgspec.Struct, frozen=True, kw_only=True):
    """
    It is durable. `turn` is the turn that it begins; follow the session from `seq` on.

    Messages of equal authority that wait together are answered by one turn, the first one's: its
    `turn_started` lists every `input` that it took.
    """

    session: SessionId
    turn: str | None
    input: str
    seq: int


class AnswerIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    An answer to a prompt, bound to what was shown by its digest. The same `answer_id` again is the
    same answer.
    """

    option: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
    answer_id: _Key
    digest: _Key
    reason: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None
    arguments: dict[str, Any] | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """started, handed_on or deferred; and where the turn stands."""

    result: str
    reason: str | None
    turn: TurnReport


class CancelIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    Which turn; without one, every open turn that this token may cancel: its person's, or, with the
    scope admin, everybody's.
    """

    turn: Annotated[str, msgspec.Meta(pattern="^t[0-9]{1,15}$")] | None = None


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId
    turns: tuple[TurnReport, ...]


class CodeIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    code: Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_CHARS_MAX)]


class TokenGiven(msgspec.Struct, frozen=True, kw_only=True):
    """A token, shown this once."""

    token: str
    name: str
    person: str
    scopes: tuple[str, ...]
    audience: str
    expires_at: str | None


class Whoami(msgspec.Struct, frozen=True, kw_only=True):
    """Who the token speaks for, from the server's record."""

    name: str
    person: str
    scopes: tuple[str, ...]
    audience: str
    boundary: str
    expires_at: str | None


class SessionsList(msgspec.Struct, frozen=True, kw_only=True):
    """`next` is the `after` of the next page; null on the last."""

    sessions: tuple[SessionLine, ...]
    next: str | None


class ApprovalsList(msgspec.Struct, frozen=True, kw_only=True):
    approvals: tuple[ApprovalReport, ...]
    next: str | None


class GrantsList(msgspec.Struct, frozen=True, kw_only=True):
    grants: tuple[GrantReport, ...]
    next: str | None
