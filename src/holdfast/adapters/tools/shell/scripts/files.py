"""
Finds the files that a command runs besides the system's programs, as far as its text shows them.

A script that a literal word names can be bound: the command then runs a private copy of it. Every
other way to run a file is declared, and the prompt lists it. So a command with an empty list runs
only system programs and bound scripts. The rule is an allowlist: a program is declared unless it is
known to run no files.
"""

import os
import re
import shlex

import msgspec

from holdfast.adapters.tools.home_guard import GuardedHome
from holdfast.adapters.tools.shell.parse import Reading, Subcommand, Word, read_command
from holdfast.adapters.tools.shell.programs import find_program
from holdfast.adapters.tools.shell.remembered.programs import why_not_leaf
from holdfast.adapters.tools.shell.remembered.system_paths import why_not_system
from holdfast.adapters.tools.shell.remembered.table import BUILTINS, LEAVES
from holdfast.adapters.tools.shell.scripts.copy import (
    FILES_MAX,
    FOLDER,
    ScriptCopy,
    TooMuch,
    copy_script,
    copy_with_modules,
)
from holdfast.adapters.tools.shell.scripts.interpreters import (
    Kind,
    asks_where_it_lies,
    kind_of,
    modules_of,
    script_at,
    shebang_kind,
    why_more_python,
)
from holdfast.ports.tools import CannotBind

SCRIPTS_MAX = 16
# Leaf programs with options, scripts or expressions that can start another program.
_CAN_START = frozenset({"diff", "printf", "sort", "tree", "type"})
# They start no program, with any options. The second group does not change the content of a file.
_WRITERS = frozenset(
    {"chgrp", "chmod", "chown", "cp", "dd", "ln", "mkdir", "mkfifo", "mktemp", "mv", "rm", "rmdir"}
    | {"shred", "sync", "tee", "touch", "truncate", "unlink"}
)
_KEEPERS = frozenset(
    {"chgrp", "chmod", "chown", "mkdir", "mkfifo", "mktemp", "rmdir", "sync", "touch"}
)
_QUIET_BUILTINS = frozenset(
    {"[", "break", "continue", "exit", "kill", "return", "shift", "umask", "wait"}
)
_RUN_THEIR_WORDS = frozenset({"builtin", "command", "eval", "exec", "trap"})
_SET = re.compile(r"[-+][efuvx]*o?|pipefail")
_SUBSTITUTION = re.compile(r"s([/|,#:])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gIip0-9]*")
_AWK_STARTS = re.compile(r"system|\||@|close|ENVIRON")
# Variables that the shell or a loader reads by itself, besides those of the environment.
_STEERING = re.compile(
    r"(BASH|LD_|LC_|PYTHON|PERL|RUBY|LUA|PHP|GCONV|PROMPT)\w*|ENV|IFS|CDPATH|FPATH|PS[0-4]|SHELLOPTS"
    r"|POSIXLY_CORRECT|EXECIGNORE|LOCPATH|NLSPATH|PATH|HOME|USER|LOGNAME|LANG|TERM|TMPDIR|TZ|SHELL"
)
# The files that a known program runs, in the words of people who use it.
_READS = {
    "git": "hooks of git, and programs that its settings name",
    "make": "the makefile, and all that it starts",
    **dict.fromkeys(("npm", "pnpm", "yarn"), "scripts of package.json, and of packages"),
}
_FROM_INPUT = " runs what it reads from its input"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


class BoundScript(msgspec.Struct, frozen=True, kw_only=True):
    """A word of the text, and the private path that replaces it."""

    start: int
    end: int
    said: str
    path: str  # on the host, canonical
    private: str


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """`declared` lists what else may run. `named` are files on the host that the words name."""

    bound: tuple[BoundScript, ...] = ()
    copies: tuple[ScriptCopy, ...] = ()
    declared: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    def text_of(self, command: str) -> str:
        """Return the text that runs: each bound word names its private copy."""
        raw = command.encode()
        for each in sorted(self.bound, key=lambda each: each.start, reverse=True):
            raw = raw[: each.start] + shlex.quote(each.private).encode() + raw[each.end :]
        return raw.decode()


def find_runs(
    reading: Reading, *, cwd: str, search_path: str, guard: GuardedHome | None, can_copy: bool
) -> Runs:
    """
    Find all runs. `can_copy` is false if commands are not isolated; then every script is declared.
    """
    finder = _Finder(cwd, search_path, guard, can_copy=can_copy)
    finder.read(reading)
    return Runs(
        bound=tuple(finder.bound),
        copies=tuple(finder.copies),
        declared=tuple(dict.fromkeys(finder.declared)),
        named=tuple(dict.fromkeys(finder.named)),
    )


class _Finder:
    def __init__(
        self, cwd: str, search_path: str, guard: GuardedHome | None, *, can_copy: bool
    ) -> None:
        self._cwd, self._search_path, self._guard, self._can_copy = (
            cwd,
            search_path,
            guard,
            can_copy,
        )
        self._written: set[str | None] = set()  # written by earlier parts; None stands for any file
        self.bound: list[BoundScript] = []
        self.copies: list[ScriptCopy] = []
        self.declared: list[str] = []
        self.named: list[str] = []

    def read(self, reading: Reading) -> None:
        if reading.broken:
            self.declared.append("parts of the command can't be read")
        for name in sorted(reading.alters):
            if _STEERING.fullmatch(name) or not _PLAIN_NAME.fullmatch(name):
                self.declared.append(f"it sets {_short(name)}, which can change what runs")
        if reading.repeats:
            for command in reading.subcommands:
                self._note_writes(command)
        for index, command in enumerate(reading.subcommands):
            why = self._why_declared(command, is_last=index == len(reading.subcommands) - 1)
            if why is not None:
                self.declared.append(why)
            self._note_writes(command)
            self._name(command, is_quiet=why is None)
            if why is not None and why.endswith(_FROM_INPUT):
                for earlier in reading.subcommands[:index]:  # one of them may be its input
                    self._name(earlier, is_quiet=False)

    def _note_writes(self, command: Subcommand) -> None:
        """
        Note the files that a command writes. A script that the command itself writes must run as
        written, so it is not bound.
        """
        for redirect in command.redirects:
            if (
                redirect.operator in (">", ">>", ">|", "&>", "&>>", ">&")
                and redirect.target is not None
            ):
                said = redirect.target.text
                self._written.add(None if said is None else self._located(command, said))
        name = (command.words[0].text or "").rpartition("/")[2] if command.words else ""
        literal = command.literals()
        is_leaf = name in LEAVES or (
            literal is not None and why_not_leaf((name, *literal[1:])) is None
        )
        if not is_leaf and name not in _KEEPERS | _QUIET_BUILTINS | {"set"}:
            self._written.add(None)

    def _why_declared(self, command: Subcommand, *, is_last: bool) -> str | None:
        """There are five cases: a computed word, a builtin, a path, an interpreter, a program."""
        words = tuple(word.text for word in command.words)
        name = words[0] if words else None
        if name is None:
            return "a program whose name the command computes"
        if command.scattered:
            return f"{name}: its words can't be separated from its redirections"
        if command.assigns:
            return f"{name} with variables that are set for it"
        if name in (".", "source"):
            return self._why_sourced(command, words, is_last=is_last)
        if name in _QUIET_BUILTINS:
            odd = any(word is None or "[" in word or "-p" in word for word in words[1:])
            return f"{name} with words that can run a subscript" if odd else None
        if name in _RUN_THEIR_WORDS:
            return f"{name}, which runs its words as a command"
        if name == "set":
            quiet = all(word is not None and _SET.fullmatch(word) for word in words[1:])
            return None if quiet else "set with words that change what runs"
        if "/" in name and not self._is_system(name):
            return self._why_path(command, name)
        return self._why_program(command, name.rpartition("/")[2], name, words)

    def _why_program(
        self, command: Subcommand, name: str, word: str, words: tuple[str | None, ...]
    ) -> str | None:
        if name not in BUILTINS and not self._is_system(word):
            return f"{name}, which is not a program of the system"
        if kind_of(name) is not None:
            return self._why_interpreted(command, (name, *words[1:]))
        if name in _WRITERS or (name in LEAVES and name not in _CAN_START):
            return None
        literal = command.literals()
        if literal is not None and _starts_nothing((name, *literal[1:])):
            return None
        return _READS.get(name, f"any file that {name} reads as code or as settings")

    def _why_sourced(
        self, command: Subcommand, words: tuple[str | None, ...], *, is_last: bool
    ) -> str | None:
        why = (
            self._why_script(command, command.words[1], "shell")
            if len(words) > 1
            else "source without a file"
        )
        if why is None and not is_last:
            return f"commands after `{words[0]} {words[1]}` may be other programs"
        return why

    def _why_interpreted(self, command: Subcommand, words: tuple[str | None, ...]) -> str | None:
        found = script_at(words)
        if isinstance(found, str):
            return found
        if found.index is not None:
            return self._why_script(command, command.words[found.index], found.kind)
        inputs = [each.target for each in command.redirects if each.operator.startswith("<")]
        target = inputs[0] if len(inputs) == 1 else None
        others = [
            each for each in command.redirects if not each.operator.startswith((">", "<", "&>"))
        ]
        if target is None or others or found.kind != "shell":
            return f"{words[0]}{_FROM_INPUT}"
        return self._why_script(command, target, found.kind)

    def _why_path(self, command: Subcommand, name: str) -> str | None:
        path = self._located(command, name)
        if path is None:
            return f"{name}: its folder is not known"
        try:
            head = copy_script(path, self._guard, alone=True).files[0].data
        except (TooMuch, CannotBind, OSError):
            return f"{name}, which can't be read"
        kind = shebang_kind(head, self._is_system)
        if kind is None:
            return f"{name}, a program that is not the system's"
        return self._why_script(command, command.words[0], kind)

    def _why_script(self, command: Subcommand, word: Word, kind: Kind) -> str | None:
        """Bind the script if possible. Return the rest that must be declared."""
        said = word.text
        if said is None:
            return "a script whose name the command computes"
        path = self._located(command, said)
        if path is None:
            return f"{said}: its folder is not known"
        why = self._why_live(path)
        if why is not None:
            return f"{said}{why}"
        try:
            copy = self._copied(path, kind)
        except (TooMuch, CannotBind, OSError) as exc:
            return f"{said}: {exc}"
        name = os.path.basename(path)  # noqa: PTH119  text
        data = copy.data_of(name) or b""
        if asks_where_it_lies(kind, data.decode("utf-8", "replace")):
            return f"{said}, which looks for files beside itself"
        self._bind(word, copy, name)
        return self._why_more(said, kind, data, copy)

    def _why_live(self, path: str) -> str | None:
        """Return why the script runs in its place and not from a copy."""
        if not os.path.isfile(path):  # noqa: PTH113  text
            return ", which is not there yet"
        if {None, path} & self._written:
            return ", which an earlier part of the command may write"
        if not self._can_copy:
            return ": only an isolated command runs a private copy"
        if (
            len(self.bound) >= SCRIPTS_MAX
            or sum(len(each.files) for each in self.copies) >= FILES_MAX
        ):
            return f": more than {SCRIPTS_MAX} scripts or {FILES_MAX} files"
        return None

    def _copied(self, path: str, kind: Kind) -> ScriptCopy:
        if kind == "python":
            return copy_with_modules(path, self._guard, modules_of)
        return copy_script(path, self._guard, alone=kind == "shell")

    def _bind(self, word: Word, copy: ScriptCopy, name: str) -> None:
        if copy not in self.copies:
            self.copies.append(copy)
        private = f"{FOLDER}/{self.copies.index(copy)}/{name}"
        said = word.text or ""
        path = f"{copy.folder.rstrip('/')}/{name}"
        self.bound.append(
            BoundScript(start=word.start, end=word.end, said=said, path=path, private=private)
        )

    def _why_more(self, said: str, kind: Kind, data: bytes, copy: ScriptCopy) -> str | None:
        """Return which further files the script itself may run."""
        if kind == "shell":
            inner = _Finder("/", self._search_path, self._guard, can_copy=False)
            inner.read(read_command(data.decode("utf-8", "replace")))
            return (
                f"files that {said} runs: {_short(inner.declared[0])}" if inner.declared else None
            )
        if kind == "python":
            texts = {each.name: each.data for each in copy.files if each.name.endswith(".py")}
            beside = frozenset(name.partition("/")[0].removesuffix(".py") for name in texts)
            for name, each in {said: data, **texts}.items():
                why = why_more_python(name, each, beside)
                if why is not None:
                    return why
            native = [
                each.name
                for each in copy.files
                if each.name.endswith((".so", ".pth", ".pyc", ".zip"))
            ]
            return f"{native[0]}, which {said} may load" if native else None
        return f"files that {said} loads or starts by itself"

    def _located(self, command: Subcommand, word: str) -> str | None:
        """Return the canonical path of a word, or None if the command's folder is unknown."""
        if word.startswith("/"):
            return os.path.realpath(word)
        if command.moves is None:
            return None
        folder = self._cwd
        for move in command.moves:  # `cd` removes `..` by name, without following links
            folder = os.path.normpath(os.path.join(folder, move))  # noqa: PTH118
        return os.path.realpath(os.path.join(os.path.realpath(folder), word))  # noqa: PTH118

    def _is_system(self, word: str) -> bool:
        found = find_program(word, cwd="/", search_path=self._search_path) if word else None
        return (
            found is not None
            and (word.startswith("/") or "/" not in word)
            and why_not_system(found) is None
        )

    def _name(self, command: Subcommand, *, is_quiet: bool) -> None:
        """
        Collect the files that a command's words name, unless the command is known to only read
        them.
        """
        scripted = command.words and kind_of((command.words[0].text or "").rpartition("/")[2])
        if is_quiet and not scripted and "/" not in (command.words[0].text or ""):
            return
        words = [*command.words, *(each.target for each in command.redirects if each.target)]
        for word in words:
            path = None if not word.text else self._located(command, word.text)
            if path is not None:
                self.named.append(path)


def _starts_nothing(words: tuple[str, ...]) -> bool:
    if why_not_leaf(words) is None:
        return True
    name, *rest = words
    plain = [word for word in rest if not word.startswith("-")]
    options = {word for word in rest if word.startswith("-")}
    if name == "sed":
        return (
            options <= {"-i", "-n", "-E", "-r", "-s"}
            and bool(plain)
            and _SUBSTITUTION.fullmatch(plain[0]) is not None
        )
    if name in ("awk", "gawk", "mawk"):
        return not options and bool(plain) and _AWK_STARTS.search(plain[0]) is None
    return False


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"  # noqa: PLR2004
