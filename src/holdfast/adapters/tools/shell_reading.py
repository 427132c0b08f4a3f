"""
Reading a command to know whether a remembered approval may cover it. For that alone: what runs is the text, not our reading.

The reading is an allow-list of shapes: literal words, quotes without expansion, `&&`, `||`, `;`, pipes, redirections to literal
paths. Whatever else the grammar knows, whatever it does not, and every byte it skipped makes the text unreadable: ask each time.
"""

import functools
from typing import TYPE_CHECKING

import msgspec

from holdfast.adapters.tools.shell_words import why_not_covered

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

SUBCOMMANDS_MAX = 50  # more is not read by a person either

_JOINTS = frozenset({"program", "list", "pipeline", "redirected_statement"})
_TOKENS = frozenset({"&&", "||", "|", ";", "\n", '"', ">", ">>", "<", ">&", "<&", "&>", "&>>", ">|", "string_content", "file_descriptor"})
_NOT_LITERAL = frozenset("*?[]{}\\$`!^")
_SAFE_CONTROL = frozenset("\n\t")


class Subcommand(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command; `words` are None where they are not literal."""

    words: tuple[str | None, ...]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """`unreadable` says why no remembered approval can cover the text; None if one can, as far as its shape goes."""

    subcommands: tuple[Subcommand, ...]
    unreadable: str | None


def read_command(text: str) -> Reading:
    raw = text.encode()
    root = _parser().parse(raw).root_node
    commands = [_subcommand(node) for node in _all_commands(root)]
    return Reading(subcommands=tuple(commands), unreadable=_why_unreadable(text, raw, root, commands))


def why_unreadable_words(reading: Reading, real_names: dict[str, str | None]) -> str | None:
    """By the programs: wrappers and interpreters are never covered."""
    seen_cd = False
    for command in reading.subcommands:
        words = tuple(word for word in command.words if word is not None)
        if not words or len(words) != len(command.words):
            return "a word is not literal"
        why = why_not_covered(words, real_names.get(words[0]))
        if why is not None:
            return why
        if seen_cd and "/" in words[0] and not words[0].startswith("/"):
            return "a program is named relative to a folder that the command changes"
        seen_cd = seen_cd or words[0] == "cd"
    return None


@functools.cache
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _why_unreadable(text: str, raw: bytes, root: "Node", commands: list[Subcommand]) -> str | None:
    if root.has_error:
        return "it does not parse"
    if not all(char.isprintable() or char in _SAFE_CONTROL for char in text):
        return "it has invisible characters"
    if len(commands) > SUBCOMMANDS_MAX:
        return f"it has {len(commands)} commands (at most {SUBCOMMANDS_MAX} are read)"
    if not commands:
        return "it has no command"
    leaves: list[Node] = []
    why = _why_shape(root, leaves)
    if why is not None:
        return why
    covered = 0
    for leaf in leaves:
        if raw[covered : leaf.start_byte].strip(b" \t\n"):
            return "a part of it was not understood"
        covered = leaf.end_byte
    return "a part of it was not understood" if raw[covered:].strip(b" \t\n") else None


def _why_shape(root: "Node", leaves: "list[Node]") -> str | None:
    """Walks without recursion: the text may nest as deep as it likes."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type in _JOINTS or node.type in ("command", "command_name", "file_redirect"):
            stack.extend(reversed(node.children))
            if not node.children:
                leaves.append(node)
        elif node.type in ("word", "number", "string", "raw_string", "concatenation"):
            if _literal(node) is None:
                return "it has expansions, patterns or escapes"
            leaves.append(node)
        elif node.type in _TOKENS:
            leaves.append(node)
        else:
            return f"it has {node.type.replace('_', ' ') if node.is_named else repr(node.type)}"
    return None


def _all_commands(root: "Node") -> "list[Node]":
    found: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "command":
            found.append(node)
        stack.extend(reversed(node.children))
    return found


def _subcommand(node: "Node") -> Subcommand:
    words: list[str | None] = []
    for child in node.children:
        if child.type == "command_name":
            words.append(_literal(child.children[0]) if child.children else None)
        elif child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
            continue
        elif child.is_named:
            words.append(_literal(child))
    return Subcommand(words=tuple(words))


def _literal(node: "Node") -> str | None:
    """The word as the shell would pass it on; None if it would compute it."""
    text = (node.text or b"").decode()
    match node.type:
        case "word" | "number":
            tilde = text.startswith("~") and not (text == "~" or text.startswith("~/"))
            return None if tilde or not _NOT_LITERAL.isdisjoint(text) else text
        case "raw_string":
            return text[1:-1]
        case "string":
            inner = text[1:-1]
            plain = all(child.type in ('"', "string_content") for child in node.children)
            return inner if plain and "\\" not in inner and "$" not in inner and "`" not in inner else None
        case "concatenation":
            parts = [_literal(child) for child in node.children]
            return None if None in parts else "".join(part for part in parts if part is not None)
        case _:
            return None
