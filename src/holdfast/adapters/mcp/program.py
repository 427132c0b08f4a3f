"""
The program of a stdio server: which files would run, and the identity that a pin covers.

Settings give a list of words, never a shell's line. A script is run by the interpreter that its
first line names, and both are bound by their bytes. The words are bound as they stand, and so is
every file that a word names.

All bytes are read right before each start of the process. A running process keeps that code
whatever becomes of its files, so while it runs their facts are compared, and their bytes are read
again when these changed.
"""

import os
import time
from typing import NamedTuple

import msgspec

from holdfast.adapters.tools.shell.environment import SEARCH_PATH
from holdfast.adapters.tools.shell.programs import Program, find_program, fingerprint
from holdfast.ports.tool_servers import ToolServer
from holdfast.ports.tools import CannotBind

UNPINNED_CODE = "unpinned code: this command loads its program anew at each start"
_FETCHERS = frozenset({"npx", "bunx", "pnpx", "uvx", "pipx"})
_FIRST_LINE_BYTES_MAX = 256  # as the kernel reads
_ENV = "/usr/bin/env"


class ServerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """`program` runs with `words`. `files` are all bound files, the program included."""

    program: Program
    words: tuple[str, ...]
    files: tuple[Program, ...]
    fetches: bool  # it loads its code anew at each start, so no pin covers that code

    def identity(self, settings: ToolServer) -> str:
        """Return the text that a person sees and a pin covers."""
        lines = [
            "stdio",
            f"command {msgspec.json.encode(settings.command).decode()}",
            *(f"file {each}" for each in self.files),
            f"variables {' '.join(settings.env) or 'none'}",
            f"network {'yes' if settings.network else 'no'}",
            *(f"reads {_led(path)}" for path in settings.read),
            *(f"changes {_led(path)}" for path in settings.write),
        ]
        if self.fetches:
            lines.append(UNPINNED_CODE)
        return "\n".join(lines)


_SETTLED_NS = 2_000_000_000  # a younger change may be followed by another at the same time
Facts = tuple[tuple[int, ...] | None, ...]


class SeenProgram(NamedTuple):
    """A program whose bytes were read, and the facts of its files."""

    program: ServerProgram
    named: tuple[str, ...]  # by the settings
    facts: Facts  # of these, and of the program's files
    is_settled: bool  # no file has changed shortly before its bytes were read, or since

    def stands(self, settings: ToolServer) -> bool:
        """Return whether the bytes need not be read again while the program's process runs."""
        same = self.is_settled and self.named == _named(settings)
        return same and self.facts == _facts(self.named, self.program)


def see_server_program(settings: ToolServer) -> SeenProgram:
    """Find and read every file that the command names. Raise CannotBind."""
    before = time.time_ns()
    program = find_server_program(settings)
    named = _named(settings)
    facts = _facts(named, program)
    young = any(each is not None and before - each[-1] < _SETTLED_NS for each in facts)
    return SeenProgram(program, named, facts, is_settled=not young)


def _named(settings: ToolServer) -> tuple[str, ...]:
    first, *rest = settings.command
    path = find_program(first, cwd="/", search_path=SEARCH_PATH)
    return (path or "", *(word for word in rest if word.startswith("/")))


def _facts(named: tuple[str, ...], program: ServerProgram) -> Facts:
    return tuple([_facts_of(each) for each in (*named, *(file.found for file in program.files))])


def _facts_of(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  text, for each call
    except OSError:
        return None
    return (
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _led(path: str) -> str:
    """Return the path, and where its links lead: they may be changed after a person has looked."""
    real = os.path.realpath(path)
    return path if real == path else f"{path}, which is {real}"


def http_identity(url: str) -> str:
    return f"http\n{url}"


def find_server_program(settings: ToolServer) -> ServerProgram:
    """Find and read every file that the command names. Raise CannotBind."""
    first, *rest = settings.command
    path = find_program(first, cwd="/", search_path=SEARCH_PATH)
    if path is None:
        if first.startswith("/"):
            raise CannotBind(f"{first} is not there, or is not a program that may be run")
        raise CannotBind(f"no program {first!r}: use an absolute path, or a name in {SEARCH_PATH}")
    found = fingerprint(path)
    files, program, words = [found], found, (first, *rest)
    if found.is_script:
        interpreter, *options = _first_line(found.path)
        program = fingerprint(interpreter)
        # A virtual environment is found by the name that the interpreter was called by.
        words = (interpreter, *options, path, *rest)
        files.append(program)
        if os.path.realpath(interpreter) == os.path.realpath(_ENV) and options:
            real = find_program(options[-1], cwd="/", search_path=SEARCH_PATH)
            if real is None:
                raise CannotBind(f"{found.path} needs {options[-1]}, which is not installed")
            files.append(fingerprint(real))
    files += [
        fingerprint(word)
        for word in rest
        if word.startswith("/") and os.path.isfile(word)  # noqa: PTH113  text
    ]
    return ServerProgram(
        program=program,
        words=words,
        files=tuple(dict.fromkeys(files)),
        fetches=os.path.basename(first) in _FETCHERS,  # noqa: PTH119  text
    )


def _first_line(script: str) -> list[str]:
    with open(script, "rb") as file:  # noqa: PTH123  read once, bounded
        line = file.read(_FIRST_LINE_BYTES_MAX).partition(b"\n")[0]
    words = line.removeprefix(b"#!").decode(errors="replace").strip().split(maxsplit=1)
    if not words or not words[0].startswith("/"):
        raise CannotBind(f"{script} does not name its interpreter by an absolute path")
    return words
