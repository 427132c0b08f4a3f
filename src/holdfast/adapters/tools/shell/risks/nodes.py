"""
Nodes of the shell's grammar: the words of a simple command, and substitutions that give a value.

A substitution gives only a value if its programs print and if nothing reads its output as code.
Wrappers run the program after them, so `timeout 5 bash <(...)` is judged as `bash <(...)`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.tools.shell.parse import all_nodes, subcommand_of
from holdfast.adapters.tools.shell.risks.simple import (
    AWKS,
    SHELLS,
    code_of,
    inner_commands,
    is_interpreter,
    name_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution"})
NESTING_MAX = 5  # wrappers in wrappers; a person follows no more either
_RUNNERS = frozenset({"eval", "source", ".", "exec", "xargs", "parallel", "watch", "trap", "alias"})
# Programs whose output is a value, not code, where it is an argument of another program.
_VALUES = frozenset(
    {"date", "pwd", "nproc", "whoami", "id", "hostname", "uname", "basename", "dirname", "git"}
    | {"realpath", "readlink", "which", "wc", "seq", "echo", "printf", "tput", "arch", "mktemp"}
    | {"cat", "head", "tail", "grep", "cut", "tr", "sort", "uniq", "awk", "sed", "jq", "ls", "expr"}
    | {"find", "pgrep", "docker", "kubectl", "stat", "du", "node", "npm", "go", "python3", "lsof"}
)


class SimpleCommand(NamedTuple):
    """The words of a simple command, and where the first begins and the last ends."""

    words: tuple[str, ...]
    start: int
    end: int
    is_computed: bool  # the program itself is known only when it runs


def simple_command(node: "Node") -> SimpleCommand:
    command = subcommand_of(node, ())
    words = tuple(
        unquoted(node, word.start, word.end) if word.text is None else word.text
        for word in command.words
    )
    if not words:
        return SimpleCommand((), node.start_byte, node.end_byte, is_computed=False)
    first, end = command.words[0], max(word.end for word in command.words)
    is_computed = first.text is None and words[0].startswith(("$", "`", '"$'))
    return SimpleCommand(words, first.start, end, is_computed)


def is_value(node: "Node") -> bool:
    """Return whether a substitution only gives a value: nothing runs its output as code."""
    above = _command_above(node)
    if above is None:
        return False
    started = [] if above == () else list(_started(above))
    programs = {name_of(words[0]) for words in started}
    if programs & (SHELLS | _RUNNERS) or any(each.startswith("$") for each in programs):
        return False
    if node.type == "process_substitution":
        return "make" not in programs and not any(map(is_interpreter, programs))
    printed = [name_of(source(each)) for each in all_nodes(node) if each.type == "command_name"]
    is_code = any(_is_code(words) for words in started)
    return not is_code and all(name in _VALUES for name in printed)


def _is_code(words: Sequence[str]) -> bool:
    """Return whether an interpreter gets a code that begins with a substitution."""
    code = None if name_of(words[0]) in AWKS else code_of(words)
    return code is not None and code.startswith(("$(", "`"))


def _started(words: Sequence[str], depth: int = 0) -> Iterator[Sequence[str]]:
    """Give the words of a command and of those that it starts."""
    yield words
    for inner in inner_commands(words) if depth < NESTING_MAX else ():
        if inner.words:
            yield from _started(inner.words, depth + 1)


def _command_above(node: "Node") -> tuple[str, ...] | None:
    """Return the words of the command whose argument this is; None if this is its program."""
    above = node.parent
    below = node
    while above is not None:
        if above.type == "command_name":
            return None
        if above.type in ("variable_assignment", "for_statement", "test_command"):
            return ()
        if above.type == "command":
            name = above.child_by_field_name("name")
            return None if name is None or name == below else simple_command(above).words or None
        below, above = above, above.parent
    return ()


def source(node: "Node") -> str:
    return (node.text or b"").decode(errors="replace")


def unquoted(node: "Node", start: int, end: int) -> str:
    """Return a word that the shell computes, without its quotes: enough to recognise it."""
    text = (node.text or b"")[start - node.start_byte : end - node.start_byte]
    return re.sub(r"[\"']", "", text.decode(errors="replace"))
