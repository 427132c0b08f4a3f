"""
Recognises inert files. A grant is offered only for writing an inert file.

A grant to write covers one path and one content, byte for byte. That alone is not enough. A
Makefile, a hook or a module that is written again later restores code that a person approved for an
earlier moment, and the next command runs it. So a grant is offered only for a file that no program
runs or reads settings from: plain notes and data, by a short list of endings, in the workspace, not
executable, not on the search path, not hidden. Every other write asks each time.
"""

import os
import stat

from holdfast.adapters.tools.shell.environment import SEARCH_PATH

_ENDINGS = frozenset({".csv", ".log", ".md", ".tsv", ".txt"})
_READ_BY_TOOLS = (
    "cmakelists",
    "conanfile",
    "constraints",
    "dependencies",
    "meson_options",
    "requirements",
)
"""Beginnings of `.txt` names that build tools and package managers read as instructions."""
_EXECUTABLE_BEGINNINGS = ("#!", "\x7fELF", "MZ")


def is_inert(path: str, content: str) -> bool:
    """Classify a resolved path together with the content to be written there."""
    folder, name = os.path.split(path)
    return (
        _is_plain_name(name)
        and not any(part.startswith(".") for part in path.split("/"))
        and not content.lstrip("\ufeff \t\r\n").startswith(_EXECUTABLE_BEGINNINGS)
        and os.path.realpath(folder) not in _search_path()
        and not _is_executable(path)
    )


def _is_plain_name(name: str) -> bool:
    stem, ending = os.path.splitext(name.casefold())  # noqa: PTH122  text, not a Path
    return ending in _ENDINGS and name.isascii() and not stem.startswith(_READ_BY_TOOLS)


def _search_path() -> frozenset[str]:
    return frozenset(
        os.path.realpath(each) for each in (*os.get_exec_path(), *SEARCH_PATH.split(":")) if each
    )


def _is_executable(path: str) -> bool:
    """
    Return whether the file exists and anybody may run it. A file that cannot be checked counts as
    executable.
    """
    try:
        return bool(os.lstat(path).st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH))
    except FileNotFoundError:
        return False
    except OSError:
        return True
