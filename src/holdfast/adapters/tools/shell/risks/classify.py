"""
Marks the parts of a command whose effect deserves a second look, by effect and with a reason.

The text is read with the shell's grammar. Each simple command is judged by the table of verbs, by
the direction of its transfers and by the paths that it writes. A wrapper is judged by the command
that it starts. Text in quotes is data: `echo "rm -rf /"` deletes nothing.

A mark warns the approver. It decides nothing, and a command without a mark may still do harm: a
script or a program that is not in the table can do anything.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.tools.shell.parse import (
    all_nodes,
    read_command,
    syntax_tree,
)
from holdfast.adapters.tools.shell.risks.always import ALWAYS
from holdfast.adapters.tools.shell.risks.code import DATABASE_CLIENTS, code_effects, sql_effects
from holdfast.adapters.tools.shell.risks.dry_runs import changes_nothing
from holdfast.adapters.tools.shell.risks.money import money_effects
from holdfast.adapters.tools.shell.risks.nodes import (
    NESTING_MAX,
    SUBSTITUTIONS,
    is_value,
    simple_command,
    source,
    unquoted,
)
from holdfast.adapters.tools.shell.risks.paths import is_outside, written_paths
from holdfast.adapters.tools.shell.risks.simple import (
    SHELLS,
    code_of,
    inner_commands,
    is_interpreter,
    name_of,
)
from holdfast.adapters.tools.shell.risks.transfers import transfer_effects
from holdfast.adapters.tools.shell.risks.unknown_programs import verb_effects
from holdfast.adapters.tools.shell.risks.verbs import VALUED, VERBS
from holdfast.session.authority.plan import Risk, RiskKind

if TYPE_CHECKING:
    from tree_sitter import Node

_MARKS_MAX = 50  # the same bound as the commands that are read
_RUNS_INPUT = "runs whatever text arrives on its input."
_REMOTE_WORDS = 3  # git remote add NAME
_FORK_BOMB = re.compile(r"(?<!\S)(\S{1,20}?) ?\(\) ?\{[^}]{0,40}\1 ?\| ?\1 ?&")
_RAW_DEVICE = re.compile(r"/dev/(sd|hd|nvme|vd|xvd|mmcblk|disk|mapper/|md)\S*")


class _Where(NamedTuple):
    cwd: str
    roots: Sequence[str]
    moves: Mapping[int, tuple[str, ...]] = {}  # the operands of `cd` before the word at this byte

    def at(self, start: int) -> str:
        """Return the folder of the word that begins here, as if each `cd` before it works."""
        return posixpath.normpath(posixpath.join(self.cwd, *self.moves.get(start, ())))


Effect = tuple[RiskKind, str]


def risks_of(command: str, *, cwd: str, roots: Sequence[str]) -> tuple[Risk, ...]:
    """
    Return the marks with offsets in characters of the command. `roots` are the folders that it may
    write.

    >>> [(risk.kind, "rm -rf ./build && ls"[risk.start:risk.end])
    ...     for risk in risks_of("rm -rf ./build && ls", cwd="/w", roots=["/w"])]
    [('destructive', 'rm -rf ./build')]
    """
    raw = command.encode()
    where = _Where(cwd, roots)
    found: dict[tuple[str, int, int], Risk] = {}
    for kind, text, start, end in _marks(command, where, 0):
        at, until = len(raw[:start].decode(errors="ignore")), len(raw[:end].decode(errors="ignore"))
        found.setdefault((kind, at, until), Risk(kind=kind, text=text, start=at, end=until))
    return tuple(sorted(found.values(), key=lambda each: (each.start, each.end)))[:_MARKS_MAX]


class _Mark(NamedTuple):
    kind: RiskKind
    text: str
    start: int
    end: int


def _marks(command: str, where: _Where, depth: int) -> Iterator[_Mark]:
    root = syntax_tree(command)
    if root.has_error:
        text = "Holdfast cannot read this command to its end, so it cannot say what runs."
        yield _Mark("runtime_code", text, root.start_byte, root.end_byte)
    if _FORK_BOMB.search(command):
        text = "This starts copies of itself until the machine stops."
        yield _Mark("destructive", text, root.start_byte, root.end_byte)
    new_remotes: set[str] = set()
    where = where._replace(moves=_moves(command))
    for node in all_nodes(root):
        if node.type == "command":
            yield from _new_remote_marks(node, new_remotes)
            yield from _command_marks(node, where, depth)
        elif node.type in SUBSTITUTIONS and not is_value(node):
            text = f"`{source(node)[:60]}` decides only when it runs what this command does."
            yield _Mark("runtime_code", text, node.start_byte, node.end_byte)
        elif node.type == "file_redirect":
            yield from _redirect_marks(node, where)


def _moves(command: str) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for each in read_command(command).subcommands:
        words = [*each.words, *(redirect.target for redirect in each.redirects)]
        if each.moves:
            found |= {word.start: each.moves for word in words if word is not None}
    return found


def _new_remote_marks(node: "Node", known: set[str]) -> Iterator[_Mark]:
    """A push to a server that the same text has just named sends the history somewhere new."""
    words, start, end, _ = simple_command(node)
    plain = [word for word in words if not word.startswith("-")]
    if len(plain) > _REMOTE_WORDS and plain[:2] == ["git", "remote"]:
        if plain[2] in ("add", "set-url"):
            known.add(plain[3])
    elif plain[:2] == ["git", "push"] and known.intersection(plain[2:]):
        text = "`git` sends the history to a server that this command names."
        yield _Mark("upload", text, start, end)


def _command_marks(node: "Node", where: _Where, depth: int) -> Iterator[_Mark]:
    words, start, end, is_computed = simple_command(node)
    if not words:
        return
    is_fed = _is_fed(node)
    if is_computed:
        text = f"{words[0]} decides only when it runs which program starts."
        yield _Mark("runtime_code", text, start, end)
    if is_fed and (name_of(words[0]) in DATABASE_CLIENTS):
        fed = source(_pipeline(node))
        yield from _placed("This", sql_effects(fed), start, end)
    yield from _effects(words, where, depth, start, end, is_fed=is_fed)


def _effects(
    words: tuple[str, ...], where: _Where, depth: int, start: int, end: int, *, is_fed: bool
) -> Iterator[_Mark]:
    """Judge the words of one command, then of the command that it starts."""
    name, rest = name_of(words[0]), words[1:]
    said = f"`{name}`"
    yield from _placed(said, _table_effects(name, rest), start, end)
    yield from _placed(said, money_effects(name, rest), start, end)
    yield from _placed(said, transfer_effects(name, rest, is_fed=is_fed), start, end)
    yield from _placed(said, _runtime_effects(name, rest, words, is_fed=is_fed), start, end)
    if name in DATABASE_CLIENTS:
        yield from _placed(said, sql_effects(" ".join(rest)), start, end)
    code = code_of(words)
    if code is not None:
        yield from _placed(said, code_effects(code), start, end)
    for path in written_paths(name, rest):
        if _RAW_DEVICE.fullmatch(path):
            yield _Mark("destructive", f"{said} overwrites the disk {path}.", start, end)
        elif is_outside(path, cwd=where.at(start), roots=where.roots):
            text = f"{said} writes {path}, outside the workspace."
            yield _Mark("outside", text, start, end)
    for inner in inner_commands(words) if depth < NESTING_MAX else ():
        if inner.text is None:
            yield from _effects(inner.words, where, depth + 1, start, end, is_fed=is_fed)
            continue
        # The nested text has no place of its own on the screen: its marks are on the whole command.
        moved = _Where(where.at(start), where.roots)
        for mark in _marks(inner.text, moved, depth + 1):
            yield mark._replace(start=start, end=end)


def _placed(said: str, effects: Sequence[Effect], start: int, end: int) -> Iterator[_Mark]:
    for kind, text in effects:
        yield _Mark(kind, f"{said} {text}", start, end)


def _table_effects(name: str, rest: tuple[str, ...]) -> list[Effect]:
    found: list[Effect] = []
    if changes_nothing(name, rest):
        return found
    base = "mkfs" if name.startswith("mkfs.") else name
    if base in ALWAYS:
        found.append(ALWAYS[base])
    elif name not in VERBS and name not in SHELLS and not is_interpreter(name):
        return verb_effects(name, rest)
    options, plain = _split(rest, VALUED.get(name, frozenset()))
    text = " ".join(plain)
    for verb in VERBS.get(name, ()):
        if verb.words is not None and not re.match(verb.words, text):
            continue
        if verb.option is not None and not any(re.fullmatch(verb.option, each) for each in options):
            continue
        if verb.unless is not None and any(re.fullmatch(verb.unless, each) for each in options):
            continue
        effect = (verb.kind, verb.text)
        if effect not in found:
            found.append(effect)
    return found


def _split(rest: Sequence[str], valued: frozenset[str]) -> tuple[list[str], list[str]]:
    """Separate options from other words. `--` stays with the words: `git checkout -- FILE`."""
    options: list[str] = []
    plain: list[str] = []
    skip = False
    for at, word in enumerate(rest):
        if skip:
            skip = False
        elif word in valued and not plain:
            skip = True
        elif word == "--":
            plain += rest[at:]
            break
        elif word.startswith("-") and len(word) > 1:
            options.append(word)
            if word in ("-X", "--method") and at + 1 < len(rest):
                options.append(f"{word}{'' if word == '-X' else '='}{rest[at + 1]}")
            if word == "--replicas" and at + 1 < len(rest):
                options.append(f"{word}={rest[at + 1]}")
        else:
            plain.append(word)
    return options, plain


def _runtime_effects(
    name: str, rest: Sequence[str], words: Sequence[str], *, is_fed: bool
) -> list[Effect]:
    text = "runs text that is known only when it runs."
    if name == "eval":
        return [("runtime_code", text)]
    operands = [word for word in rest if not word.startswith("-")]
    reads_input = is_fed and (not operands or rest[:1] == ("-",) or "-s" in rest or "-" in rest)
    if (name in SHELLS or is_interpreter(name)) and code_of(words) is None and reads_input:
        return [("runtime_code", _RUNS_INPUT)]
    if is_fed and name == "ssh" and operands and not inner_commands(words):
        return [("runtime_code", _RUNS_INPUT)]
    if is_fed and name == "make" and "-" in rest:
        return [("runtime_code", _RUNS_INPUT)]
    is_script = name in SHELLS or is_interpreter(name)
    if is_script and code_of(words) is None and operands[:1] and operands[0].startswith("$"):
        return [("runtime_code", "decides only when it runs which script starts.")]
    texts = [inner.text or "" for inner in inner_commands(words)] if name in SHELLS else []
    if any(each.lstrip().startswith("$") or "{}" in each for each in texts):
        return [("runtime_code", text)]  # `xargs -I{} sh -c '{}'`: the input becomes the text
    return []


def _redirect_marks(node: "Node", where: _Where) -> Iterator[_Mark]:
    operator = next((each.type for each in node.children if not each.is_named), "")
    target = node.child_by_field_name("destination")
    if target is None or ">" not in operator or operator in (">&", "<&"):
        return
    path = unquoted(node, target.start_byte, target.end_byte)
    start, end = node.start_byte, node.end_byte
    if path.startswith(("/dev/tcp/", "/dev/udp/")):
        yield _Mark("upload", f"{path} sends data to another machine.", start, end)
    elif _RAW_DEVICE.fullmatch(path):
        yield _Mark("destructive", f"This overwrites the disk {path}.", start, end)
    elif is_outside(path, cwd=where.at(target.start_byte), roots=where.roots):
        yield _Mark("outside", f"This writes {path}, outside the workspace.", start, end)
    if operator in (">", ">|", "&>") and _empties(node) and not path.startswith("/dev/"):
        yield _Mark("destructive", f"This empties the file {path}.", start, end)


def _empties(node: "Node") -> bool:
    """`> FILE`, `: > FILE`, `true > FILE`, `cat /dev/null > FILE`: nothing is written into it."""
    parent = node.parent
    body = parent.child_by_field_name("body") if parent is not None else None
    if parent is None or parent.type != "redirected_statement":
        return False
    if body is None:
        return True
    words = source(body).split()
    return words in ([":"], ["true"], ["cat", "/dev/null"], ["echo", "-n"])


def _is_fed(node: "Node") -> bool:
    """Return whether the command's input is a pipe, a here-document or a file."""
    parent = node.parent
    while parent is not None and parent.type in ("redirected_statement", "pipeline"):
        if parent.type == "pipeline" and parent.children and parent.children[0] != node:
            first = parent.children[0]
            if not (first.start_byte <= node.start_byte < first.end_byte):
                return True
        if any(
            child.type in ("heredoc_redirect", "herestring_redirect")
            or (child.type == "file_redirect" and any(each.type == "<" for each in child.children))
            for child in parent.children
        ):
            return True
        parent = parent.parent
    return any(child.type == "herestring_redirect" for child in node.children)


def _pipeline(node: "Node") -> "Node":
    found = node
    while found.parent is not None and found.parent.type in ("redirected_statement", "pipeline"):
        found = found.parent
    return found
