"""
Programs that run a script named by their words, and the facts that the script's text shows.

`script_at` finds the script's word. `why_more_python` reads the script and reports which further
files it may run. The approver sees this, because those files are not part of the approval.
"""

import ast
import re
import sys
from collections.abc import Callable
from typing import Literal

import msgspec

from holdfast.adapters.tools.shell.parse import Reading

Kind = Literal["shell", "python", "other"]

# Letters that change how a script runs, and never what is loaded. All others are refused.
_FLAGS: dict[str, str] = {
    "sh": "euxvf",
    "dash": "euxvf",
    "bash": "euxvf",
    "perl": "wWtT",
    "ruby": "wW",
}
_PYTHON = re.compile(r"python(3(\.[0-9]+)?)?")
_PYTHON_FLAGS = "BbdEIOPqRsSuv"
_OTHERS = frozenset({"perl", "ruby", "php", "lua"})
_SHELLS = frozenset({"sh", "dash", "bash"})
_SHEBANG = re.compile(rb"#![ \t]*(\S+)(?:[ \t]+(\S+))?[ \t]*(?:\n|\Z)")
_WHERE_IT_LIES = {
    "shell": re.compile(r"BASH_SOURCE|\$\{?0(?![0-9])"),
    "python": re.compile(r"__file__|__spec__|__loader__|argv\[0\]|orig_argv"),
    "other": re.compile(r"\$0|__FILE__|__DIR__|FindBin|\barg\b"),
}
_LOADERS = frozenset(
    [
        *("_pickle", "_posixsubprocess", "antigravity", "bdb", "builtins", "cProfile", "cffi"),
        *("code", "codeop", "ctypes", "dill", "distutils", "doctest", "ensurepip", "idlelib"),
        *("imp", "importlib", "lib2to3", "mailcap", "marshal", "multiprocessing", "pdb", "pickle"),
        *("pipes", "pkgutil", "profile", "pty", "pydoc", "readline", "rlcompleter", "runpy"),
        *("shelve", "site", "subprocess", "test", "timeit", "tkinter", "trace", "turtle"),
        *("turtledemo", "unittest", "venv", "webbrowser", "zipimport"),
    ]
)
_STARTERS = re.compile(
    r"__import__|__builtins__|breakpoint|compile|create_subprocess\w*|dictConfig|eval|exec\w*"
    r"|fileConfig|fork\w*|getattr|globals|import_module|load_extension|locals|popen\w*"
    r"|posix_spawn\w*|spawn\w*|startfile|subprocess\w*|system|vars"
    r"|CGIHTTPRequestHandler|ForkingMixIn|IMAP4_stream|ProcessPoolExecutor"
)


class ScriptWord(msgspec.Struct, frozen=True):
    """
    `index` is the script's place among the words, or None if the script is the standard input.
    """

    kind: Kind
    index: int | None


def script_at(words: tuple[str | None, ...]) -> ScriptWord | str:
    """
    Return the place of the script's name among an interpreter's words, or why it is unknown.

    >>> script_at(("sh", "-eu", "x.sh", "now"))
    ScriptWord(kind='shell', index=2)
    >>> script_at(("python3", "-m", "x"))
    'python3 -m runs text or modules that no word names as a file'
    """
    name = words[0] or ""
    kind = kind_of(name)
    if kind is None:
        return f"{name} is not an interpreter that is followed"
    index = 1
    while index < len(words):
        word = words[index]
        if word is None:
            return f"{name} gets a word that the command computes"
        if word == "-" and kind != "shell":
            return ScriptWord(kind, None)
        if word == "-o" and kind == "shell" and words[index + 1 : index + 2] == ("pipefail",):
            index += 2
            continue
        if not word.startswith(("-", "+")):
            return ScriptWord(kind, index)
        flags = _PYTHON_FLAGS if kind == "python" else _FLAGS.get(name, "")
        if kind == "shell" and word == "-s":
            return ScriptWord(kind, None)
        if word.startswith("+") or not word[1:] or not set(word[1:]) <= set(flags):
            return f"{name} {word} runs text or modules that no word names as a file"
        index += 1
    return ScriptWord(kind, None)


def runs_text(reading: Reading) -> bool:
    """
    Whether an interpreter in the command gets its program as text, or from a place that no word
    names.

    Such a command deserves a second look: `sh -c`, `python3 -m`, `cat x | sh`, `eval`.
    """
    for command in reading.subcommands:
        words = tuple(word.text for word in command.words)
        name = (words[0] or "").rpartition("/")[2] if words else ""
        if name == "eval":
            return True
        if kind_of(name) is not None:
            found = script_at((name, *words[1:]))
            if not isinstance(found, ScriptWord) or found.index is None:
                return True
    return False


def kind_of(name: str) -> Kind | None:
    if name in _SHELLS:
        return "shell"
    if _PYTHON.fullmatch(name):
        return "python"
    return "other" if name in _OTHERS else None


def shebang_kind(data: bytes, is_system: Callable[[str], bool]) -> Kind | None:
    """
    Return the kind of a script by its first line, or None if that line names an unknown program.
    """
    found = _SHEBANG.match(data)
    if found is None:
        return None
    program, argument = (_text(part) for part in found.groups(default=b""))
    if program == "/usr/bin/env":
        return kind_of(argument) if is_system(argument) else None
    name = program.rpartition("/")[2]
    kind = kind_of(name)
    if kind is None or not program.startswith("/") or not is_system(program):
        return None
    if argument and (not argument.startswith("-") or isinstance(script_at((name, argument)), str)):
        return None
    return kind


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def asks_where_it_lies(kind: Kind, text: str) -> bool:
    """Return whether the script asks for its own place. It would then act differently in a copy."""
    return _WHERE_IT_LIES[kind].search(text) is not None


def modules_of(name: str, data: bytes) -> frozenset[str]:
    """
    Return the top-level name of each module that a Python file loads. Return an empty set if it is
    not Python.
    """
    if not name.endswith(".py") and "/" in name:
        return frozenset()
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return frozenset(found)


def why_more_python(name: str, data: bytes, beside: frozenset[str]) -> str | None:
    """
    Return why the script may run further files. `beside` are the modules of the copied folder. The
    text is read as Python reads it, in the encoding that it names, and never run.
    """
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return f"{name} can't be read as Python"
    known = sys.stdlib_module_names - _LOADERS | beside
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [each.name for each in names]
            case ast.ImportFrom(module=module, level=level, names=names):
                taken = [
                    each.name for each in names if _STARTERS.fullmatch(each.name) or module == "sys"
                ]
                if taken:
                    return f"{name} uses {taken[0]}, which can load or start any file"
                modules = [] if level else [module or ""]
            case ast.Name(id=word) | ast.Attribute(attr=word):
                if _STARTERS.fullmatch(word) or (word == "path" and _is_sys_path(node)):
                    return f"{name} uses {word}, which can load or start any file"
                continue
            case _:
                continue
        for each in modules:
            if each.partition(".")[0] not in known:
                return f"{name} loads {each}, which can load or start any file"
    return None


def _is_sys_path(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    )
