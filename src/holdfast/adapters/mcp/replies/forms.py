"""
From a server's reply that asks for input to a question for a person, and from the answer to the
members that go back.

The server's words are data: shown whole, in a frame, with invisible characters visible. A form that
asks for a secret is refused, because the protocol has an address for that and an answer is kept in
the journal. An address is shown and never opened.
"""

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.adapters.mcp.connection import QUESTION
from holdfast.adapters.tools.display import display_of
from holdfast.limits import (
    MCP_INPUT_FIELDS_MAX,
    MCP_INPUT_REQUESTS_MAX,
    MCP_INPUT_STATE_BYTES_MAX,
)
from holdfast.ports.tools import CannotBind, InputWanted
from holdfast.secrecy import Secret, secrecy_of
from holdfast.session.features.forms.form import (
    FieldKind,
    FilledForm,
    FormField,
    FormRequest,
    ServerForm,
    fits,
)
from holdfast.session.view.safe_text import Rendered, framed, render, render_content

_SECRET = re.compile(
    r"pass(word|phrase|code)|secret|credential|token|api.?key|private.?key|\bpin\b|\botp\b|\bcvv\b"
    r"|card.?number|\bssn\b|social.?security",
    re.IGNORECASE,
)
# A text that warns of a secret does not ask for it.
_WARNING = re.compile(
    r"\b(?:do not|don't|never) (?:enter|give|include|send|share|tell|type|use)\b[^.;:)]*",
    re.IGNORECASE,
)
_KINDS: dict[str, FieldKind] = {
    "string": "text", "number": "number", "integer": "integer", "boolean": "yes_no",
}  # fmt: skip


class NotAskable(Exception):
    """No person can be asked this. The text says why."""


def input_wanted(
    tool: str, result: dict[str, Any], secrets: tuple[Secret, ...], *, is_inside: bool = False
) -> InputWanted:
    """
    Return the question that the server asks: by ending the call, or inside of the open call. Raise
    NotAskable.
    """
    if secrecy_of(secrets).holds(msgspec.json.encode(result)):
        raise NotAskable("its question holds a secret")
    state = result.get("requestState")
    requests = result.get("inputRequests")
    if not isinstance(state, str | None) or not isinstance(requests, dict | None):
        raise NotAskable("its question is malformed")
    if len((state or "").encode(errors="replace")) > MCP_INPUT_STATE_BYTES_MAX:
        raise NotAskable(f"its state is longer than {MCP_INPUT_STATE_BYTES_MAX} bytes")
    if not requests and state is None:
        raise NotAskable("it asks for nothing")
    if len(requests or {}) > MCP_INPUT_REQUESTS_MAX:
        raise NotAskable(f"it asks for more than {MCP_INPUT_REQUESTS_MAX} things at once")
    asked = [_request(key, each) for key, each in (requests or {}).items()]
    requested = tuple(request for request, _ in asked)
    form = ServerForm(requests=requested, state=state, is_inside=is_inside)
    if len(list(form.labelled())) > MCP_INPUT_FIELDS_MAX:
        raise NotAskable(f"its form has more than {MCP_INPUT_FIELDS_MAX} fields")
    return _shown(tool, form, [text for _, text in asked])


def members_of(filled: FilledForm) -> dict[str, Any]:
    """Return the members that the next `tools/call` carries beside name and arguments."""
    responses = {
        key: {"action": "accept", **({} if content is None else {"content": content})}
        for key, content in filled.values.items()
    }
    return {
        **({"inputResponses": responses} if responses else {}),
        **({} if filled.state is None else {"requestState": filled.state}),
    }


def _request(key: str, request: object) -> tuple[FormRequest, list[str]]:
    """Return one request, and its text for the person."""
    match request:
        case {"method": "elicitation/create", "params": {"message": str() as message} as params}:
            mode = params.get("mode", "form")
        case {"method": str() as method} if method != QUESTION:
            raise NotAskable(f"it asks for {method!a}, which Holdfast does not give")
        case _:
            raise NotAskable("its question is malformed")
    if mode == "url":
        return FormRequest(key=key, is_link=True), [message, *_address(params.get("url"))]
    if mode != "form":
        raise NotAskable("it asks in a way that Holdfast does not know")
    schema = params.get("requestedSchema")
    fields = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(fields, dict) or not all(isinstance(each, dict) for each in fields.values()):
        raise NotAskable("its form is malformed")
    required = schema.get("required", []) if isinstance(schema, dict) else []
    needed = required if isinstance(required, list) else []
    parsed = [_field(name, each, is_required=name in needed) for name, each in fields.items()]
    return (
        FormRequest(key=key, fields=tuple(field for field, _ in parsed)),
        [message, *(text for _, text in parsed)],
    )


def _field(name: str, schema: dict[str, Any], *, is_required: bool) -> tuple[FormField, str]:
    said = [str(schema[key]) for key in ("title", "description") if key in schema]
    asked = [name, *(_WARNING.sub("", each) for each in said)]
    if schema.get("format") == "password" or any(_SECRET.search(each) for each in asked):
        raise NotAskable(
            f"its form asks for a secret ({name!a}); the protocol forbids that, and an answer would"
            " be kept in the journal"
        )
    kind, choices = _kind(schema)
    field = FormField(name=name, kind=kind, is_required=is_required, choices=choices)
    if fits(field, schema.get("default")):
        field = msgspec.structs.replace(field, default=schema["default"])
    facts = [kind.replace("_", " or ")]
    if is_required:
        facts.append("required")
    if field.default is not None:
        facts.append(f"default {msgspec.json.encode(field.default).decode()}")
    of = f" of {' | '.join(choices)}" if choices else ""
    return field, f"{name} ({', '.join(facts)}){of}" + "".join(f"\n    {each}" for each in said)


def _kind(schema: dict[str, Any]) -> tuple[FieldKind, tuple[str, ...]]:
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        choices = _choices(items) if isinstance(items, dict) else ()
        if not choices:
            raise NotAskable("its form has a list without choices")
        return "choices", choices
    if kind == "string" and (choices := _choices(schema)):
        return "choice", choices
    if not isinstance(kind, str) or kind not in _KINDS:
        raise NotAskable("its form has a field that is not plain")
    return _KINDS[kind], ()


def _choices(schema: dict[str, Any]) -> tuple[str, ...]:
    values = schema.get("enum")
    if values is None:
        titled = schema.get("oneOf", schema.get("anyOf"))
        if titled is None:
            return ()
        values = [each.get("const") if isinstance(each, dict) else None for each in titled]
    if not isinstance(values, list) or not values or not all(isinstance(v, str) for v in values):
        raise NotAskable("its form has choices that are not texts")
    return tuple(dict.fromkeys(values))


def _address(url: object) -> list[str]:
    """The address, whole, and its host on a line of its own. It is never opened from here."""
    if not isinstance(url, str) or not url.isascii():
        raise NotAskable("its address is not plain text")
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as exc:
        raise NotAskable("its address cannot be read") from exc
    is_local = host in ("localhost", "127.0.0.1", "::1")
    if not host or parts.username is not None or parts.password is not None:
        raise NotAskable("its address has no host, or names a user")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
        raise NotAskable("its address is not https")
    return [f"address: {url}", f"host: {host}"]


def _shown(tool: str, form: ServerForm, texts: list[list[str]]) -> InputWanted:
    rendered: list[Rendered] = [render_content("\n".join(each)) for each in texts]
    warnings = tuple(dict.fromkeys(warning for each in rendered for warning in each.warnings))
    parts = [
        f"the server of {render(tool).text} asks before it goes on with this call",
        "your answer goes to that server and is kept in the journal; never type a secret",
        *(
            ["the call is open meanwhile; if its process ends, the call is in doubt"]
            * form.is_inside
        ),
        *(["open the address yourself if you trust it; Holdfast does not"] * _has_link(form)),
        *(framed(each.text) for each in rendered),
        *_how(form),
    ]
    try:
        return InputWanted(form=form, display=display_of(parts), warnings=warnings)
    except CannotBind as exc:
        raise NotAskable(str(exc)) from exc


def _has_link(form: ServerForm) -> bool:
    return any(each.is_link for each in form.requests)


def _how(form: ServerForm) -> list[str]:
    labels = [label for label, _, _ in form.labelled()]
    if len(labels) <= 1:
        return []
    example = ", ".join(f'"{render(label).text}": ...' for label in labels)
    return [f"answer with one JSON object: {{{example}}}"]
