"""One fault of the settings file: where it is, the reason, and what to do."""

import re
from typing import NamedTuple

from holdfast.settings import values

Path = tuple[str, ...]


class Problem(NamedTuple):
    path: Path
    text: str
    hint: str = ""


def quoted(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{values.shown(part)[1:-1]}"'
