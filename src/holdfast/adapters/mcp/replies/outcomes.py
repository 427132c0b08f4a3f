"""
From a server's reply to the outcome of a call, and to the text that the model sees.

A reply for our own request is the server's word: `ok`, or `error` in its own words. That holds for
a reply of a wrong shape too, because the call ran. Everything that is not such a reply is decided
by the connection (`tool.py`). Nothing that a result points to is fetched.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from blake3 import blake3

from holdfast.adapters.mcp.messages import ServerReply
from holdfast.adapters.mcp.replies.forms import NotAskable, input_wanted
from holdfast.adapters.tools.output import CapturedOutput
from holdfast.adapters.tools.schema.values import Misfit, Values
from holdfast.ports.tools import ToolReturned
from holdfast.secrecy import Secret, secrecy_of
from holdfast.session.view.safe_text import render_line

_COMPLETE, _INPUT_REQUIRED = "complete", "input_required"


def returned_from(
    reply: ServerReply,
    *,
    output_schema: dict[str, Any] | None,
    secrets: tuple[Secret, ...],
    asks: str | None = None,
) -> ToolReturned:
    """`asks` is the tool's name if a person may be asked for the server's input."""
    if reply.result is None:
        error = reply.error or {}
        said = error.get("message")
        text = f"the server answered with the error {error.get('code')}: {said}"
        sent = b'{"error":' + reply.raw + b"}"
        return _returned("error", text, msgspec.json.encode(error), secrets, sent)
    result = reply.result
    raw = msgspec.json.encode(result)
    kind = result.get("resultType", _COMPLETE)
    if kind == _INPUT_REQUIRED and asks is not None:
        return _asked(asks, result, raw, secrets)
    if kind != _COMPLETE:
        text = f"the server answered with {kind!a}, which Holdfast did not say that it takes"
        return _returned("error", text, raw, secrets)
    sent = b'{"result":' + reply.raw + b"}"
    text = "\n".join(_texts(result))
    if result.get("isError", False) is not False:
        return _returned("error", text or "the server reported an error", raw, secrets, sent)
    if flaw := _flaw(result, output_schema):
        text = f"it ran, and its result is wrong: {flaw}\n{text}"
        return _returned("error", text, raw, secrets, sent)
    return _returned("ok", text, raw, secrets, sent)


def _asked(
    tool: str, result: dict[str, Any], raw: bytes, secrets: tuple[Secret, ...]
) -> ToolReturned:
    """A reply that asks is complete: the call has not gone on, and needs another start to."""
    try:
        wants = input_wanted(tool, result, secrets)
    except NotAskable as exc:
        text = f"not finished: the server asked for input, and nobody was asked, because {exc}"
        return _returned("error", text, raw, secrets)
    text = "not finished: the server asked for input"
    return ToolReturned(outcome="error", text=text, wants=wants)


def _returned(
    outcome: str,
    text: str,
    raw: bytes,
    secrets: tuple[Secret, ...],
    sent: bytes | None = None,
) -> ToolReturned:
    output = CapturedOutput(secrets=secrets, on_output=lambda _: None)
    output.take_all(text.encode(errors="replace"))
    shown, shortened = output.view()
    # The whole reply is kept where the text does not hold all of it.
    whole = shortened is not None or b'"data":' in raw or b'"blob":' in raw
    return ToolReturned(
        outcome="ok" if outcome == "ok" else "error",
        text=shown,
        full=secrecy_of(secrets).hidden_bytes(raw) if whole else None,
        reply=None if sent is None else secrecy_of(secrets).hidden_json(sent),
    )


def _flaw(result: dict[str, Any], schema: dict[str, Any] | None) -> str:
    if not isinstance(result.get("content", []), list):
        return "its content is not a list"
    structured = result.get("structuredContent")
    if schema is None:
        return ""
    if structured is None:
        return "it lacks the structured content that the tool's definition promises"
    try:
        Values(schema).filled(structured)
    except (Misfit, TypeError, ValueError, AttributeError, ArithmeticError) as exc:
        return f"it does not fit the tool's own output schema ({exc})"
    return ""


def _texts(result: dict[str, Any]) -> Iterator[str]:
    content = result.get("content")
    parts = content if isinstance(content, list) else []
    texts = [_part(each) for each in parts]
    yield from texts
    structured = result.get("structuredContent")
    if structured is not None and not any(_is_text(each) for each in parts):
        yield msgspec.json.encode(structured).decode(errors="replace")


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def _part(part: object) -> str:
    match part:
        case {"type": "text", "text": str() as text}:
            return text
        case {"type": "image" | "audio" as kind, "data": str() as data}:
            return f"[{kind}{_said(part, 'mimeType')}, {_size(data)}; not shown]"
        case {"type": "resource_link", "uri": str() as uri}:
            return f"[a link to {_line(uri)}{_said(part, 'name')}; not fetched]"
        case {"type": "resource", "resource": {"text": str() as text, "uri": str() as uri}}:
            return f"[from {_line(uri)}]\n{text}"
        case {"type": "resource", "resource": {"blob": str() as data, "uri": str() as uri}}:
            return f"[from {_line(uri)}, {_size(data)}; not shown]"
        case _:
            size = len(msgspec.json.encode(part))
            return f"[content of a kind that Holdfast does not know, {size} bytes; not shown]"


def _said(part: object, key: str) -> str:
    value = part.get(key) if isinstance(part, dict) else None
    return f" {_line(value)}" if isinstance(value, str) and value else ""


def _line(text: str) -> str:
    return render_line(text[:512]).text


def _size(data: str) -> str:
    return f"{len(data) * 3 // 4} bytes, {blake3(data.encode(errors='replace')).hexdigest()[:16]}"
