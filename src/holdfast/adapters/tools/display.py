"""
Joins the lines of a prompt: Holdfast's own lines, and framed lines from the call. A prompt that is
too long to judge is refused as a whole.
"""

from collections.abc import Iterable

from holdfast.ports.tools import CannotBind
from holdfast.session.view.rendering import TooLongToShow, fit


def display_of(parts: Iterable[str]) -> str:
    try:
        return fit("\n".join(part for part in parts if part))
    except TooLongToShow as exc:
        raise CannotBind(f"{exc}; do it in smaller steps", code="too_long") from exc
