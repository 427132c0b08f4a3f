"""
The requests and answers of the HTTP API, beside the reports of the runtime. Unknown fields are
refused, so a client can't declare its own rights.

The docstrings of the structs are published in the OpenAPI document.
"""

from typing import Annotated, Any, Literal

import msgspec

from holdfast.gateway.streams.frames import RecordSent
from holdfast.ids import ApprovalId, SessionId
from holdfast.runtime.reports.decisions import DecisionReport
from holdfast.runtime.reports.grants import GrantReport
from holdfast.runtime.reports.session_list import SessionLine
from holdfast.runtime.reports.types import ApprovalReport, TurnReport
from holdfast.runtime.tool_servers.reports import ServerReport, ToolReport

KEY_CHARS_MAX = 200

_Key = Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_CHARS_MAX)]


class MessageIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message to a session."""

    text: Annotated[str, msgspec.Meta(min_length=1)]


class MessageTaken(msgspec.Struct, frozen=True, kw_only=True):
    """
    It is durable. `turn` is the turn that it begins; follow the session from `seq` on.

    Messages of equal authority that wait together are answered by one turn, the first one's: its
    `turn_started` lists every `input` that it took. `superseded` are the prompts that it closed.
    """

    session: SessionId
    turn: str | None
    input: str
    seq: int
    superseded: tuple[ApprovalId, ...] = ()


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


class AnswerResult(msgspec.Struct, frozen=True, kw_only=True):
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


class TitleIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another title; empty: the first message gives it again."""

    title: Annotated[str, msgspec.Meta(max_length=1_000)]


class Renamed(msgspec.Struct, frozen=True, kw_only=True):
    """The title from now on."""

    session: SessionId
    title: str


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
    on_message: str  # supersede: a message replaces a waiting prompt; wait: it queues


class SessionsList(msgspec.Struct, frozen=True, kw_only=True):
    """`next` is the `after` of the next page; null on the last."""

    sessions: tuple[SessionLine, ...]
    next: str | None


class ApprovalsList(msgspec.Struct, frozen=True, kw_only=True):
    approvals: tuple[ApprovalReport, ...]
    next: str | None


class DecisionsList(msgspec.Struct, frozen=True, kw_only=True):
    """`unreadable` names the sessions that could not be read: the list may lack theirs."""

    decisions: tuple[DecisionReport, ...]
    next: str | None
    unreadable: tuple[SessionId, ...]


class RecordsList(msgspec.Struct, frozen=True, kw_only=True):
    """Records in their order, as the live stream sends them."""

    records: tuple[RecordSent, ...]


class GrantsList(msgspec.Struct, frozen=True, kw_only=True):
    grants: tuple[GrantReport, ...]
    next: str | None


class ServersList(msgspec.Struct, frozen=True, kw_only=True):
    servers: tuple[ServerReport, ...]


class ToolsShown(msgspec.Struct, frozen=True, kw_only=True):
    tools: tuple[ToolReport, ...]


class ToolRead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool, with the digest of what was shown of it."""

    name: _Key
    digest: _Key


class GateIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a tool that a coding agent has built in, and the folder that the agent is in."""

    agent: Literal["claude-code", "codex"]
    tool: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}$")]
    arguments: dict[str, Any]
    folder: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None


class GateDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`wait`: a person must answer `approval` first; the same call again gets the answer."""

    decision: Literal["allow", "deny", "wait"]
    reason: str
    approval: str | None = None


class PinIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools that a person has read whole. If one has changed since, none is pinned."""

    tools: Annotated[tuple[ToolRead, ...], msgspec.Meta(min_length=1, max_length=256)]


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    pinned: tuple[str, ...]


class UnpinIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools by `SERVER.TOOL`, or all pinned tools of a `SERVER`."""

    tools: Annotated[tuple[_Key, ...], msgspec.Meta(min_length=1, max_length=256)]


class Unpinned(msgspec.Struct, frozen=True, kw_only=True):
    unpinned: tuple[str, ...]
