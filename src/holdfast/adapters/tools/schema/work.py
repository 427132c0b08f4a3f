"""
The work that one check against a schema may cost, and everything that such a check counts.

A short schema can ask for much: a list whose items are compared with each other, a long choice for
each of many items, a large default for each of many objects. So not only steps are counted, but
also comparisons, copies and the text of refusals.
"""

import copy
from collections.abc import Hashable, Iterable
from typing import Any, Final

import msgspec

STEP: Final = 40
"""The units of one step. A comparison is one unit, and so are some characters of a copy."""

_UNITS_MAX = 100_000 * STEP
"""About a second. Values that need more are an attack, not a request."""

_TEXT_CHARS_MAX = 1000  # of one refusal
_CHARS_PER_UNIT = 4  # that are copied
_EXACT_MAX = 2**53  # a larger integer is compared by its text: such numbers can share one hash


class TooMuchWork(Exception):
    """Not a Misfit: the next alternative must not be tried."""


class Work:
    def __init__(self) -> None:
        self._left = _UNITS_MAX

    def spend(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise TooMuchWork

    def equal(self, one: Any, other: Any) -> bool:
        """Compare as JSON: True is not 1, at any depth."""
        self.spend(1)
        if isinstance(one, bool) or isinstance(other, bool):
            return one is other
        if isinstance(one, dict) and isinstance(other, dict):
            self.spend(len(one))
            return one.keys() == other.keys() and all(
                self.equal(one[key], other[key]) for key in one
            )
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(self.equal, one, other))
        return bool(one == other)

    def has_twice(self, items: list[Any]) -> bool:
        return len({self._key(each) for each in items}) < len(items)

    def _key(self, value: Any) -> Hashable:
        """Return a key that is the same for values that are equal as JSON."""
        self.spend(1)
        if isinstance(value, dict):
            return "object", frozenset((name, self._key(each)) for name, each in value.items())
        if isinstance(value, list):
            return "list", tuple([self._key(each) for each in value])
        if isinstance(value, bool):
            return "boolean", value
        if isinstance(value, int) and abs(value) > _EXACT_MAX:
            return "integer", str(value)
        return ("text" if isinstance(value, str) else "plain"), value

    def copied(self, default: Any) -> Any:
        self.spend(len(msgspec.json.encode(default)) // _CHARS_PER_UNIT)
        return copy.deepcopy(default)

    def text(self, *parts: str) -> str:
        """Put a refusal together. A long one is cut."""
        self.spend(sum(map(len, parts)) // _CHARS_PER_UNIT)
        whole = "".join(parts)
        return whole if len(whole) <= _TEXT_CHARS_MAX else f"{whole[:_TEXT_CHARS_MAX]}…"

    def listed(self, head: str, values: Iterable[Any]) -> str:
        """Put a refusal together that lists values. Those that it would lack are not written."""
        words: list[str] = []
        left = _TEXT_CHARS_MAX
        for each in values:
            words.append(repr(each))
            left -= len(words[-1]) + len(", ")
            if left < 0:
                break
        return self.text(head, ", ".join(words))
