"""D7: the fold and the reading of bytes use nothing that differs between two runs."""

import ast
from pathlib import Path

import pytest

import holdfast

PACKAGE = Path(holdfast.__file__).parent
SOURCES = sorted(path for part in ("session", "journal") for path in (PACKAGE / part).rglob("*.py"))
PURE = {
    *("binascii", "bisect", "blake3", "collections", "datetime", "enum", "functools", "holdfast"),
    *("itertools", "json", "math", "msgspec", "operator", "re", "struct", "types", "typing"),
    "unicodedata",
}
MOVING = {"now", "utcnow", "today", "open", "input", "id", "hash", "__import__"}


def modules(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def calls(tree: ast.AST) -> set[str]:
    """
    The names that are called: of a function, and of `datetime` or `date`. A `__hash__` of our own
    may call `hash`: its value stays in the process.
    """
    found: set[str] = set()
    ours = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    for each in ours:
        each.body = [] if each.name == "__hash__" else each.body
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="datetime" | "date"), attr=name)):
                found.add(name)
            case _:
                pass
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_replay_has_no_clock_no_chance_and_no_file(path: Path) -> None:
    """A list of the modules that are allowed, so that a new one is looked at before it is used."""
    tree = ast.parse(path.read_text())
    assert modules(tree) <= PURE
    assert not calls(tree) & MOVING
