"""
A prompt as an interrupt, and the answer in a resume entry.

An interrupt shows everything that the prompt shows, with its expiry and its digest. An answer must
name the option, the digest and an id of its own. So a resume counts exactly as an answer to
`/v1/approvals` does, and nothing else in it approves anything.
"""

from typing import Any

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.agui.protocol import Interrupt, ResumeEntry
from holdfast.gateway.http.schemas import KEY_CHARS_MAX, AnswerIn
from holdfast.runtime.reports.types import ApprovalReport


def interrupt_from_prompt(prompt: ApprovalReport, *, person: str) -> Interrupt:
    """A person who may not answer sees the prompt without a schema for an answer."""
    return Interrupt(
        id=prompt.id,
        reason="input_required" if prompt.kind == "question" else "tool_call",
        message=prompt.display,
        tool_call_id=prompt.call,
        expires_at=prompt.expires_at,
        response_schema=_answer_schema(prompt) if person in prompt.may_answer else None,
        metadata={"digest": prompt.digest, "approval": msgspec.to_builtins(prompt)},
    )


def _answer_schema(prompt: ApprovalReport) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "option": {"type": "string", "enum": list(prompt.options)},
        "digest": {"type": "string", "const": prompt.digest},
        "answer_id": {
            "type": "string",
            "minLength": 1,
            "maxLength": KEY_CHARS_MAX,
            "description": "your own id of this answer; the same again is the same answer",
        },
        "reason": {"type": "string"},
    }
    if "edit" in prompt.options:
        properties["arguments"] = {"type": "object"}
    return {
        "type": "object",
        "properties": properties,
        "required": ["option", "digest", "answer_id"],
        "additionalProperties": False,
    }


def answer_in_entry(entry: ResumeEntry) -> AnswerIn:
    try:
        return msgspec.convert(entry.payload, AnswerIn)
    except msgspec.ValidationError as exc:
        raise Refused(
            f"the payload for {entry.interrupt_id} is not an answer: {exc}",
            code="malformed",
            hint="option, digest and answer_id, as the interrupt's responseSchema says",
        ) from exc
