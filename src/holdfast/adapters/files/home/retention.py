"""
The files beside the journals that `[retention]` removes by age: full outputs of tools, and
quarantine.

A journal is never shortened. It still names a removed output by its digest. Cut bytes that a
segment's end may still need are never removed.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.adapters.files.home.layout import SESSIONS
from holdfast.adapters.files.paths import sync_folder
from holdfast.adapters.files.session.outputs import OUTPUTS
from holdfast.adapters.files.session.quarantine import FAILED_BATCH, QUARANTINE, TORN_TAIL


def old_outputs(home: Path, *, before_seconds: float) -> list[Path]:
    return [
        path
        for path in _files(home / SESSIONS, f"*/*/{OUTPUTS}/*")
        if path.lstat().st_mtime < before_seconds
    ]


def old_quarantine(home: Path, *, before_seconds: float) -> list[Path]:
    needed = (f"-{TORN_TAIL}.json", f"-{FAILED_BATCH}.json")
    return [
        path
        for path in _files(home / QUARANTINE, "*/*/*.json")
        if not path.name.endswith(needed) and path.lstat().st_mtime < before_seconds
    ]


def remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in sorted({path.parent for path in paths}):
        with suppress(FileNotFoundError):  # a deleted session takes its quarantine with it
            sync_folder(folder)


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
            yield path
