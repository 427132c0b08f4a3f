"""
The part of AG-UI 1.0 that is spoken here: the input of a run and the events of its stream, with
their names on the wire.

The protocol asks for unknown fields to be left alone, so they are not refused. None of them is
read: the person, the scopes, the agent and the tools never come from the input.
"""

from typing import Annotated, Any, Literal

import msgspec

from holdfast.gateway.http.schemas import KEY_CHARS_MAX

PROTOCOL_VERSION = "1.0"
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_CHARS_MAX)]


class ResumeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    `resolved` brings an answer: a payload as `POST /v1/approvals/{id}/answer` takes it. `cancelled`
    decides nothing: the prompt stands.
    """

    interrupt_id: _Name
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class ContextEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the application wants the model to know. It is quoted, without authority."""

    description: str
    value: str


class RunInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    AG-UI's RunAgentInput. `threadId` is a session, and the last message of the user is the one that
    is sent; the journal is the history. The same message or the same run again is the same turn.
    """

    thread_id: _Name
    run_id: _Name
    messages: tuple[dict[str, Any], ...]
    resume: tuple[ResumeEntry, ...] = ()
    context: tuple[ContextEntry, ...] = ()


class Interrupt(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    id: str
    reason: str
    message: str
    expires_at: str
    metadata: dict[str, Any]
    tool_call_id: str | None = None
    response_schema: dict[str, Any] | None = None


class RunEvent(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
):
    """One event of a run's stream."""


class RunStarted(RunEvent, frozen=True, kw_only=True, tag="RUN_STARTED"):
    thread_id: str
    run_id: str
    protocol_version: str


class RunFinished(RunEvent, frozen=True, kw_only=True, tag="RUN_FINISHED"):
    thread_id: str
    run_id: str
    outcome: dict[str, Any]
    result: Any = None


class RunError(RunEvent, frozen=True, kw_only=True, tag="RUN_ERROR"):
    message: str
    code: str


class TextMessageStart(RunEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_START"):
    message_id: str
    role: str


class TextMessageContent(RunEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class TextMessageEnd(RunEvent, frozen=True, kw_only=True, tag="TEXT_MESSAGE_END"):
    message_id: str


class ToolCallStart(RunEvent, frozen=True, kw_only=True, tag="TOOL_CALL_START"):
    tool_call_id: str
    tool_call_name: str
    parent_message_id: str


class ToolCallArgs(RunEvent, frozen=True, kw_only=True, tag="TOOL_CALL_ARGS"):
    tool_call_id: str
    delta: str


class ToolCallEnd(RunEvent, frozen=True, kw_only=True, tag="TOOL_CALL_END"):
    tool_call_id: str


class ToolCallResult(RunEvent, frozen=True, kw_only=True, tag="TOOL_CALL_RESULT"):
    message_id: str
    tool_call_id: str
    content: str
    role: str
    metadata: dict[str, Any]


class MessagesSnapshot(RunEvent, frozen=True, kw_only=True, tag="MESSAGES_SNAPSHOT"):
    messages: list[dict[str, Any]]


def event_frame(event: RunEvent) -> bytes:
    """One event as server-sent bytes."""
    return b"data: %s\n\n" % msgspec.json.encode(event)
