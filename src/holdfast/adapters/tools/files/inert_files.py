"""
Files that nothing runs: the only ones whose writing may be remembered.

A grant to write covers one path and one content, byte for byte. That is not enough by itself:
written again at another time, a Makefile, a hook or a module brings back code that a person
approved for an earlier moment, and the next command runs it. So remembering is offered only for a
file that no program runs or takes its settings from: plain notes and data, by a short list of
endings, in the workspace, not executable, not on the search path, not hidden. Every other write
asks each time.
"""

import os
import re
import stat

from holdfast.adapters.tools.shell.environment import SEARCH_PATH

_ENDINGS = frozenset({".csv", ".log", ".md", ".tsv", ".txt"})
_READ_BY_TOOLS = re.compile(
    r"(agents?|claude|gemini|copilot|cursor|instructions?|memory|prompts?|rules|skills?)([-_.].*)?"
    r"|cmake.*|compile_flags|conan.*|meson.*|.*constraints.*|.*dependenc.*|.*requirements.*|test.*"
    r"|entry_points|top_level|.*-instructions"
)
"""
Names without their ending: what build tools and package managers read, what agents take as
instructions, and `test*.txt`, whose examples pytest runs.
"""
_FOLDERS_OF_TOOLS = re.compile(
    r"requirements|constraints|skills|prompts|rules|agents|node_modules|site-packages"
    r"|.*\.(egg|dist)-info"
)
"""Folders whose plain files tools take as settings or instructions, whatever their names are."""
_EXECUTABLE_BEGINNINGS = ("#!", "\x7fELF", "MZ")


def is_inert(path: str, content: str) -> bool:
    """Of a resolved path, and of what would be written there."""
    folder, name = os.path.split(path)
    return (
        _is_plain_name(name)
        and not any(_steers(part) for part in folder.casefold().split("/"))
        and not content.lstrip("\ufeff \t\r\n").startswith(_EXECUTABLE_BEGINNINGS)
        and os.path.realpath(folder) not in _search_path()
        and not _is_executable(path)
    )


def _is_plain_name(name: str) -> bool:
    stem, ending = os.path.splitext(name.casefold())  # noqa: PTH122  text, not a Path
    plain = name.isascii() and not name.startswith(".")
    return ending in _ENDINGS and plain and _READ_BY_TOOLS.fullmatch(stem) is None


def _steers(folder: str) -> bool:
    return folder.startswith(".") or _FOLDERS_OF_TOOLS.fullmatch(folder) is not None


def _search_path() -> frozenset[str]:
    return frozenset(
        os.path.realpath(each) for each in (*os.get_exec_path(), *SEARCH_PATH.split(":")) if each
    )


def _is_executable(path: str) -> bool:
    """A file that is there and may be run by anybody; one that can't be looked at counts as one."""
    try:
        return bool(os.lstat(path).st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH))
    except FileNotFoundError:
        return False
    except OSError:
        return True
