"""
The text of a prompt, put together from lines of ours and framed lines of theirs; refused as a whole
if it is too long to judge.
"""

from collections.abc import Iterable

from holdfast.ports.tools import CannotBind
from holdfast.session.view.rendering import TooLongToShow, fit


def display_of(parts: Iterable[str]) -> str:
    try:
        return fit("\n".join(part for part in parts if part))
    except TooLongToShow as exc:
        raise CannotBind(f"{exc}; do it in smaller steps", code="too_long") from exc
