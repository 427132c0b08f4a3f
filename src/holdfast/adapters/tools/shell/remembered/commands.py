"""
Decides whether an approval of a command may be remembered.

It may if the text is readable, every program in it is a leaf program at a system path, and the
shell and the search path are the system's too. A redirection may discard output, join two streams
or read a file. It may not write one: a file that a remembered command writes could steer another
command.
"""

import os

from holdfast.adapters.tools.shell.parse import Reading, Redirect, Subcommand
from holdfast.adapters.tools.shell.programs import Program
from holdfast.adapters.tools.shell.remembered.programs import why_not_leaf
from holdfast.adapters.tools.shell.remembered.system_paths import (
    why_not_system,
    why_not_system_folder,
)
from holdfast.adapters.tools.shell.remembered.table import BUILTINS

_FOLDERS = ("/bin", "/usr/bin")


def why_not_text(reading: Reading) -> str | None:
    """Judge by the text alone, without the machine."""
    if reading.unreadable is not None:
        return reading.unreadable
    for command in reading.subcommands:
        why = _why_not_command(command)
        if why is not None:
            return why
    return None


def why_not_remembered(
    reading: Reading, programs: dict[str, Program | None], *, interpreter: str, search_path: str
) -> str | None:
    """Judge by text and machine. `programs` maps each program word to its file here."""
    why = why_not_text(reading) or why_not_system(interpreter)
    for folder in search_path.split(":"):
        why = why or why_not_system_folder(folder)
    for command in reading.subcommands:
        why = why or _why_not_program(command, programs)
    return why


def _why_not_command(command: Subcommand) -> str | None:
    words = command.literals()
    if not words or command.assigns or command.scattered:
        return "a word is not literal, or its role is not known"
    for redirect in command.redirects:
        why = _why_not_redirect(redirect)
        if why is not None:
            return why
    return why_not_leaf((_name(words[0]), *words[1:]))


def _name(word: str) -> str:
    """
    Return the plain name for a full system path. Every other word with a slash stays as it is.
    """
    folder, _, name = word.rpartition("/")
    return name if folder in _FOLDERS else word


def _why_not_redirect(redirect: Redirect) -> str | None:
    target = None if redirect.target is None else redirect.target.text
    if target is None:
        return "a redirection has no literal target"
    match redirect.operator:
        case ">&" if target in ("1", "2"):
            return None
        case ">" | ">>" | "&>" | "&>>" if target == "/dev/null":
            return None
        case "<" if target == "/dev/null" or "/dev/" not in target:
            return None  # the shell opens connections for names below /dev
        case _:
            return f"{redirect.operator} {target} may write a file that steers other commands"


def _why_not_program(command: Subcommand, programs: dict[str, Program | None]) -> str | None:
    """Accept a word without a slash that is found at a system path under its own name."""
    word = command.words[0].text or ""
    if word in BUILTINS:
        return None
    program = programs.get(word)
    if program is None:
        return f"{word} is not a program here"
    if program.is_script:
        return f"{word} is a script"
    # A program with many names (busybox) acts by its name, so the table's options do not apply to
    # it.
    if os.path.basename(program.path) not in (_name(word), "coreutils"):  # noqa: PTH119
        return f"{word} is {program.path} by another name"
    return why_not_system(program.found)
