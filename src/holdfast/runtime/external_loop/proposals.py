"""From a loop's own values to the values that are journalled, with every mistake named."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.errors import Unusable
from holdfast.ids import CallId
from holdfast.runtime.external_loop.blobs import adapter_name, raw_bytes
from holdfast.runtime.external_loop.gate import LoopCall, LoopResult
from holdfast.runtime.verbs.accept import written_as_json
from holdfast.session.view.messages import ProposedCall
from holdfast.session.view.surrogates import plain


def proposals_from(
    calls: Sequence[LoopCall], prefix: str, parent: CallId | None, path: tuple[str, ...]
) -> tuple[ProposedCall, ...]:
    """`prefix` keeps the ids of a nested agent apart from those of the others."""
    if (
        isinstance(calls, LoopCall | str)
        or not isinstance(calls, Iterable)
        or not all(isinstance(each, LoopCall) for each in calls)
    ):
        raise Unusable(
            "calls is not a list of holdfast.LoopCall",
            code="malformed",
            hint='write calls=[holdfast.LoopCall("c1", "restart", {"service": "api"})]',
        )
    return tuple(
        ProposedCall(
            _tool(each.tool),
            str.__str__(each.arguments)
            if isinstance(each.arguments, str)
            else written_as_json(each.arguments),
            None if each.id is None else prefix + _id(each.id),
            parent,
            path,
            each.may_repeat is True,
        )
        for each in calls
    )


def _tool(name: Any) -> str:
    if not isinstance(name, str):
        raise Unusable(
            f"{name!r} is not the name of a tool",
            code="malformed",
            hint="name the tool that your model called",
        )
    return plain(name)


def _id(call: Any) -> str:
    if not isinstance(call, str) or not call:
        raise Unusable(
            f"{call!r} is not the id of a call",
            code="malformed",
            hint="hand in the id that your model or framework gave the call, or None",
        )
    return str.__str__(call)


def loop_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Unusable(
            f"the {what} is not text: {value!r:.200}",
            code="malformed",
            hint=f"hand in the {what} as text",
        )
    return plain(value)


def result_from(value: Any) -> LoopResult:
    """Write the value that a tool returned as text. A value that JSON lacks is written as str()."""
    if isinstance(value, LoopResult):
        return _checked(value)
    if isinstance(value, str):
        return LoopResult(value)
    try:
        return LoopResult(msgspec.json.encode(value).decode())
    except (TypeError, ValueError):
        return LoopResult(str(value))


def _checked(result: LoopResult) -> LoopResult:
    """Refuse what `record` would refuse, while the call can still be recorded as an error."""
    if not isinstance(result.text, str):
        raise Unusable(
            f"the text of the result is a {type(result.text).__name__}",
            code="malformed",
            hint="give the text that your model reads",
        )
    if result.blob is not None:
        raw_bytes(result.blob, adapter_name(result.adapter))
    return result
