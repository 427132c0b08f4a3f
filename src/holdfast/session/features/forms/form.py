"""
A form that a server wants filled in before a started call can go on, and the values that an answer
gives it.

The server's own words are data. A form has plain fields alone, so that a person can answer it in
one line: a choice, a text, or a JSON object where there are several fields. The values go back to
the server that asked, and to nobody else. They allow nothing.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

FieldKind = Literal["text", "number", "integer", "yes_no", "choice", "choices"]

CONTINUE = "continue"
YES, NO = "yes", "no"
_CHOICES_OFFERED_MAX = 12  # more of them are named in the text, and one is typed


class AnswerMisfit(Exception):
    """The answer does not fit the form. The text says which field, and how."""


class FormField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    name: str
    kind: FieldKind = "text"
    is_required: bool = False
    choices: tuple[str, ...] = ()  # the values of a choice
    default: Any = None  # the value if the answer leaves the field out; None: it has none


class FormRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One request of the server: a form, or an address that a person is to visit."""

    key: str  # the server's own name for the request
    fields: tuple[FormField, ...] = ()
    is_link: bool = False


class ServerForm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    requests: tuple[FormRequest, ...] = ()
    state: str | None = None  # the server's own text, sent back unread
    # The server asks inside of an open call, and waits. Otherwise the call goes on by a new start.
    is_inside: bool = False

    def labelled(self) -> Iterator[tuple[str, FormRequest, FormField]]:
        """Yield each field with the name by which a person fills it in."""
        asking = [each for each in self.requests if each.fields]
        for request in asking:
            for field in request.fields:
                yield (
                    field.name if len(asking) == 1 else f"{request.key}.{field.name}",
                    request,
                    field,
                )


class FilledForm(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to the server: its own text, and the content of each request by its key."""

    state: str | None
    values: dict[str, dict[str, Any] | None]


def choices_of(form: ServerForm) -> tuple[str, ...]:
    """
    Return the answers that one key can give; empty if the person must type. A form without fields
    has only the choice to go on.
    """
    fields = list(form.labelled())
    if not fields:
        return (CONTINUE,)
    if len(fields) > 1:
        return ()
    _, _, field = fields[0]
    if field.kind == "yes_no":
        return (YES, NO)
    if field.kind == "choice" and len(field.choices) <= _CHOICES_OFFERED_MAX:
        return field.choices
    return ()


def said_in(option: str, reason: str | None) -> str:
    """Return the words of an answer: the person's own, or the choice that was taken."""
    return (reason or "") if option == "answer" else option


def values_of(form: ServerForm, said: str) -> dict[str, dict[str, Any] | None]:
    """
    Return the content of each request by the server's key; None for one that has no content. Raise
    AnswerMisfit.
    """
    fields = list(form.labelled())
    found: dict[str, dict[str, Any] | None] = {
        each.key: None if each.is_link else {} for each in form.requests
    }
    if not fields:
        return found
    if len(fields) == 1:
        label, request, field = fields[0]
        given = {label: _typed(label, field, said)}
    else:
        given = _object(said, [label for label, _, _ in fields])
    for label, request, field in fields:
        content = found[request.key]
        if label not in given and field.default is None:
            if field.is_required:
                raise AnswerMisfit(f"{label} is missing")
        elif content is not None:
            content[field.name] = _checked(label, field, given.get(label, field.default))
    return found


def _object(said: str, labels: list[str]) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(said.encode(errors="replace"), type=dict[str, Any])
    except msgspec.MsgspecError as exc:
        raise AnswerMisfit(f"it must be one JSON object with {', '.join(labels)}") from exc
    if unknown := [name for name in given if name not in labels]:
        raise AnswerMisfit(f"{unknown[0]} is not a field; the fields are {', '.join(labels)}")
    return given


def _typed(label: str, field: FormField, said: str) -> Any:
    """Return the value of the only field from the words of a person."""
    match field.kind:
        case "text" | "choice":
            return said
        case "yes_no":
            if said not in (YES, NO):
                raise AnswerMisfit(f"{label} takes {YES} or {NO}")
            return said == YES
        case "number" | "integer" | "choices":
            try:
                return msgspec.json.decode(said.strip().encode(errors="replace"))
            except msgspec.MsgspecError as exc:
                wanted = "a list of texts in JSON" if field.kind == "choices" else "a number"
                raise AnswerMisfit(f"{label} takes {wanted}") from exc


def _checked(label: str, field: FormField, value: Any) -> Any:
    if not fits(field, value):
        raise AnswerMisfit(f"{label} takes {_wanted(field)}")
    return value


def fits(field: FormField, value: Any) -> bool:
    match field.kind:
        case "text":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "yes_no":
            return isinstance(value, bool)
        case "choice":
            return isinstance(value, str) and value in field.choices
        case "choices":
            return (
                isinstance(value, list)
                and all(isinstance(each, str) and each in field.choices for each in value)
                and len(set(value)) == len(value)
            )


def _wanted(field: FormField) -> str:
    return {
        "text": "a text",
        "number": "a number",
        "integer": "a whole number",
        "yes_no": "true or false",
        "choice": f"one of {', '.join(field.choices)}",
        "choices": f"a list of some of {', '.join(field.choices)}",
    }[field.kind]
