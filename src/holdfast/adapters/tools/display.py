"""
Joins the lines of a prompt: Holdfast's own lines, and framed lines from the call. A prompt that is
too long to judge is refused as a whole.
"""

import re
from collections.abc import Iterable

import msgspec

from holdfast.adapters.tools.output import refuse_secrets
from holdfast.limits import DISPLAY_CHARS_MAX
from holdfast.ports.tools import CannotBind, Scene
from holdfast.session.authority.plan import Binding
from holdfast.session.view.safe_text import (
    Rendered,
    TooLongToShow,
    fit,
    framed,
    render,
    render_argument,
)

SHARES_USER = (
    "the program that asks runs as a user who can read Holdfast's keys, so it could answer this "
    "itself; `holdfast serve --as-user` ends that"
)

_PLAIN_KEY = re.compile(r"[^\s\":,{}\[\]]+\Z")


def display_of(
    parts: Iterable[str],
    *,
    chars_max: int = DISPLAY_CHARS_MAX,
    instead: str = "do it in smaller steps",
) -> str:
    """Join the parts. `instead` tells the model which steps would fit."""
    try:
        return fit("\n".join(part for part in parts if part), chars_max)
    except TooLongToShow as exc:
        raise CannotBind(f"{exc}; {instead}", code="too_long") from exc


def bound_by_arguments(name: str, arguments: bytes, scene: Scene, *, note: str = "") -> Binding:
    """Bind a call that its arguments alone determine. Show each with the exact JSON text."""
    refuse_secrets(arguments, scene.secrets)
    parts = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    rendered = [
        (_shown_key(key), render_argument(bytes(value).decode())) for key, value in parts.items()
    ]
    warnings = tuple(
        dict.fromkeys(warning for pair in rendered for one in pair for warning in one.warnings)
    )
    lines = (framed(f"{key.text}: {value.text}") for key, value in rendered)
    asker = SHARES_USER if scene.asker_shares_user else ""
    return Binding(display=display_of([name, note, asker, *lines]), warnings=warnings)


def _shown_key(key: str) -> Rendered:
    """Quote a key that is more than a word: it could look like an argument and its value."""
    return render(key if _PLAIN_KEY.match(key) else msgspec.json.encode(key).decode())
