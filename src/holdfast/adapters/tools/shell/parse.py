"""
Parses a command's text with a grammar: its simple commands, their words and their redirections.

Two readers need it. `remembered/commands.py` decides whether an approval may be remembered, and
`scripts/files.py` finds the files that a command runs. The shell itself gets the text, never this
reading.

`unreadable` follows an allowlist of shapes: literal words, quotes without expansion, `&&`, `||`,
`;`, pipes and redirections. Every other construct, and every byte that the grammar skipped, makes
the text unreadable. An unreadable text still lists the simple commands that were found in it.
"""

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

SUBCOMMANDS_MAX = 50  # an approver does not read more either
_DEPTH_MAX = 100  # of nested constructs that are followed

_JOINTS = frozenset({"program", "list", "pipeline", "redirected_statement"})
_SEQUENCES = frozenset({"program", "list", "redirected_statement", "compound_statement"})
_LITERALS = frozenset({"word", "number", "string", "raw_string", "concatenation"})
_TOKENS = frozenset(
    {"&&", "||", "|", ";", "\n", '"', ">", ">>", "<", ">&", "<&", "&>", "&>>", ">|"}
    | {"string_content", "file_descriptor"}
)
_NOT_LITERAL = frozenset("*?[]{}\\$`!^~")
_SAFE_CONTROL = frozenset("\n\t")
_REPEATED = frozenset(
    {"for_statement", "c_style_for_statement", "while_statement", "function_definition"}
)
_DESCRIPTOR_VARIABLE = re.compile(r"\{\w+\}\s*&?[<>]")
_MOVERS = frozenset({"cd", "pushd", "popd"})


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """
    `text` is the word that the shell passes on, or None if the shell computes it. The span is in
    bytes.
    """

    text: str | None
    start: int
    end: int


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    operator: str
    target: Word | None


class Subcommand(msgspec.Struct, frozen=True, kw_only=True):
    """
    One simple command.

    `moves` are the operands of each `cd` before it, in order, or None if its folder is unknown.
    `scattered` is set if words follow a redirection: the grammar takes them for targets.
    """

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()
    moves: tuple[str, ...] | None = ()
    assigns: bool = False
    scattered: bool = False

    def literals(self) -> tuple[str, ...] | None:
        """Return all words as text, or None if the shell computes one of them."""
        texts = [word.text for word in self.words]
        return None if None in texts else tuple(text for text in texts if text is not None)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """
    `broken` is set if the grammar cannot follow the text; then commands may be missing. `alters`
    names the variables that it sets and the functions that it defines, in any construct, and quoted
    text that the shell may run.
    """

    subcommands: tuple[Subcommand, ...]
    unreadable: str | None
    broken: bool = False
    alters: frozenset[str] = frozenset()
    repeats: bool = False  # has loops or functions: a later command may run before an earlier one


def read_command(text: str) -> Reading:
    """
    >>> [command.literals() for command in read_command("cd a && ls -l 'b c'").subcommands]
    [('cd', 'a'), ('ls', '-l', 'b c')]
    >>> read_command("ls $(id)").unreadable
    'it has command substitution'
    """
    raw = text.encode()
    root = syntax_tree(text)
    walk = _Walk()
    walk.follow(root, (), 0)
    commands = tuple(walk.found)
    why = _why_unreadable(text, raw, root, commands)
    broken = root.has_error or walk.too_deep or any(not each.words for each in commands)
    return Reading(
        subcommands=commands,
        unreadable=why,
        broken=broken,
        alters=_alters(root),
        repeats=_repeats(root),
    )


def _repeats(root: "Node") -> bool:
    return any(node.type in _REPEATED for node in all_nodes(root))


def _alters(root: "Node") -> frozenset[str]:
    """
    Return the altered names. An `export` or `declare` is named whole, because its words may be
    variables of any name.
    """
    found = set(_DESCRIPTOR_VARIABLE.findall((root.text or b"").decode(errors="replace")))
    for node in all_nodes(root):
        text = (node.text or b"").decode(errors="replace")
        match node.type:
            case "variable_assignment" | "function_definition":
                name = node.child_by_field_name("name")
                found.add((name.text or b"").decode(errors="replace") if name else text)
            case "for_statement" | "select_statement" | "c_style_for_statement":
                name = node.child_by_field_name("variable")
                found.add((name.text or b"").decode(errors="replace") if name else text)
            case "declaration_command" | "unset_command":
                found.add(text)
            case "expansion" if "=" in text:
                found.add(text)
            case "raw_string" if "$(" in text or "`" in text:
                found.add(text)  # arithmetic and tests run the content of a quoted subscript
    return frozenset(found)


def syntax_tree(text: str) -> "Node":
    """Return the root of the grammar's tree. Offsets in it count bytes of UTF-8."""
    return _parser().parse(text.encode()).root_node


@functools.cache
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _Walk:
    """Collects simple commands in the order of the text, each with its folder."""

    def __init__(self) -> None:
        self.found: list[Subcommand] = []
        self.too_deep = False

    def follow(
        self, node: "Node", moves: tuple[str, ...] | None, depth: int
    ) -> tuple[str, ...] | None:
        """Return the folder after this node."""
        if depth > _DEPTH_MAX:
            self.too_deep = True
            return None
        if node.type == "command":
            return self._command(node, moves, depth)
        if node.type in _SEQUENCES:
            for child in node.children:
                moves = self.follow(child, moves, depth + 1)
                if node.type == "list" and child.type == "||" and _moves_within(node):
                    moves = None  # the next command runs only if an earlier one failed
            if node.type == "redirected_statement":
                self._attach(node)
            return moves
        if node.type in ("pipeline", "subshell"):
            inside = moves
            for child in node.children:
                after = self.follow(child, inside, depth + 1)
                inside = after if node.type == "subshell" else moves
            return moves
        # Control flow, functions, substitutions: a `cd` inside leaves the folder unknown.
        if _moves_within(node):
            moves = None
        for child in node.children:
            self.follow(child, moves, depth + 1)
        return moves

    def _command(
        self, node: "Node", moves: tuple[str, ...] | None, depth: int
    ) -> tuple[str, ...] | None:
        command = subcommand_of(node, moves)
        self.found.append(command)
        for child in node.children:
            self.follow(child, moves, depth + 1)  # substitutions in its words
        name = command.words[0].text if command.words else None
        if name not in _MOVERS:
            return moves
        words = command.literals()
        plain = name == "cd" and words is not None and len(words) == 2  # noqa: PLR2004
        if moves is None or words is None or not plain or words[1].startswith("-"):
            return None
        return (*moves, words[1])

    def _attach(self, node: "Node") -> None:
        """A redirection behind a command belongs to the last simple command before it."""
        body = node.child_by_field_name("body")
        if body is None:  # a redirection alone still creates its file
            self.found.append(Subcommand(words=(), redirects=redirects_of(node)[0]))
            return
        if body.type not in ("command", "list", "pipeline") or not self.found:
            return
        redirects, more = redirects_of(node)
        last = self.found[-1]
        self.found[-1] = msgspec.structs.replace(
            last,
            words=(*last.words, *more),
            redirects=(*last.redirects, *redirects),
            scattered=last.scattered or bool(more),
        )


def _moves_within(node: "Node") -> bool:
    return any(
        (each.text or b"").decode(errors="replace") in _MOVERS
        for each in all_nodes(node)
        if each.type == "command_name"
    )


def all_nodes(root: "Node") -> "Iterator[Node]":
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def subcommand_of(node: "Node", moves: tuple[str, ...] | None) -> Subcommand:
    words: list[Word] = []
    assigns = False
    for child in node.children:
        if child.type == "command_name":
            words.append(_word(child.children[0] if child.children else child))
        elif child.type == "variable_assignment":
            assigns = True
        elif child.is_named and not child.type.endswith("_redirect"):
            words.append(_word(child))
    redirects, more = redirects_of(node)
    return Subcommand(
        words=(*words, *more),
        redirects=redirects,
        moves=moves,
        assigns=assigns,
        scattered=bool(more),
    )


def redirects_of(node: "Node") -> tuple[tuple[Redirect, ...], tuple[Word, ...]]:
    """Return the redirections of a node, and the words that the grammar took for targets."""
    found: list[Redirect] = []
    more: list[Word] = []
    for child in node.children:
        if child.type == "file_redirect":
            operator = next((each.type for each in child.children if not each.is_named), "")
            targets = [_word(each) for each in child.children_by_field_name("destination")]
            if _is_odd(child):
                more.append(Word(text=None, start=child.start_byte, end=child.end_byte))
            found.append(Redirect(operator=operator, target=targets[0] if targets else None))
            more += targets[1:]
        elif child.type.endswith("_redirect"):
            found.append(Redirect(operator=child.type, target=None))
            more += [_word(each) for each in child.children_by_field_name("argument")]
    return tuple(found), tuple(more)


def _is_odd(redirect: "Node") -> bool:
    """
    Return whether the shell may read the redirection differently from the grammar.

    The grammar takes `-l2` in `ls -l2>&1` for a descriptor, and `0` in `echo 0< a` for a word.
    """
    before = redirect.prev_sibling
    number = redirect.child_by_field_name("descriptor")
    is_number = number is None or (number.text or b"").isdigit()
    return not is_number or (before is not None and before.end_byte == redirect.start_byte)


def _word(node: "Node") -> Word:
    return Word(text=_literal(node), start=node.start_byte, end=node.end_byte)


def _literal(node: "Node") -> str | None:
    """Return the word as the shell passes it on, or None if the shell computes it."""
    text = (node.text or b"").decode()
    match node.type:
        case "word" | "number":
            return None if not _NOT_LITERAL.isdisjoint(text) else text
        case "raw_string":
            return text[1:-1]
        case "string":
            inner = text[1:-1]
            plain = all(child.type in ('"', "string_content") for child in node.children)
            return inner if plain and not {"\\", "$", "`"} & set(inner) else None
        case "concatenation":
            parts = [_literal(child) for child in node.children]
            return None if None in parts else "".join(part for part in parts if part is not None)
        case _:
            return None


def _why_unreadable(
    text: str, raw: bytes, root: "Node", commands: tuple[Subcommand, ...]
) -> str | None:
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
    """Walk without recursion, because the text may nest to any depth."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type in _JOINTS or node.type in ("command", "command_name", "file_redirect"):
            stack.extend(reversed(node.children))
            if not node.children:
                leaves.append(node)
        elif node.type in _LITERALS:
            if _literal(node) is None:
                return "it has expansions, patterns or escapes"
            leaves.append(node)
        elif node.type in _TOKENS:
            leaves.append(node)
        else:
            return f"it has {node.type.replace('_', ' ') if node.is_named else repr(node.type)}"
    return None
