"""One finding of a check: its state, its detail and the next step."""

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    check: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    hint: str = ""
