"""
Arguments that stand in headers too, as 2026-07-28 lets a tool's schema ask for (`x-mcp-header`).

Programs between the client and Holdfast may route by such a header. So a header and its argument
must be equal or both be missing, or the call is refused before anything is decided about it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.gateway.mcp.rpc import HEADER_MISMATCH, RpcProblem
from holdfast.gateway.mcp.versions import plain_value

_MARK = "x-mcp-header"
_PREFIX = "mcp-param-"

HeaderValues = Callable[[str], Sequence[str]]
"""Every value that a request has for a header, by its name in lower case."""


def check_param_headers(schema: Any, arguments: Any, headers: HeaderValues) -> None:
    """Raise RpcProblem if a header that the schema names is not the argument."""
    for path, token in _marked(schema):
        found = headers(f"{_PREFIX}{token.lower()}")
        value = _value_at(arguments, path)
        agrees = (
            not found
            if value is None
            else len(found) == 1 and _is_equal(plain_value(found[0]), value)
        )
        if not agrees:
            text = f"the header Mcp-Param-{token} is not the argument {'.'.join(path)}"
            raise RpcProblem(HEADER_MISMATCH, text)


def _marked(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the place of each marked property, reached by `properties` alone, and its mark."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    for name, inner in properties.items():
        place = (*path, name)
        token = inner.get(_MARK) if isinstance(inner, dict) else None
        if isinstance(token, str) and token.isascii() and token.isprintable():
            yield place, token
        yield from _marked(inner, place)


def _value_at(arguments: Any, path: tuple[str, ...]) -> str | float | None:
    """Return the value that a client must repeat; None for one that has no form in a header."""
    for name in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(name)
    return arguments if isinstance(arguments, str | int | float) else None


def _is_equal(text: str | None, value: str | float) -> bool:
    if text is None:
        return False
    if isinstance(value, bool):  # a number too, for Python
        return text == ("true" if value else "false")
    if isinstance(value, str):
        return text == value
    try:
        return text == str(value) or float(text) == value
    except ValueError:
        return False
