"""One finding of a check: what is so, and the next step."""

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    pass


class Finding(NamedTuple):
    check: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    hint: str = ""
