"""
Mutants: each is one small change of one module (an inverted comparison, a removed guard, a changed
constant, a missing return value).

A change of a text for people, or of how but not which value is made, is not a mutant; `left_out`
counts those by reason. Pure: source text in, changed source out. `mutation/command.py` tries them.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_MEANS_NOTHING = {
    "frozen": "a struct that nobody changes is frozen or not",
    "kw_only": "how a struct is filled in, which the type checker sees",
    "maxsize": "the size of a cache",
}


class Mutant(NamedTuple):
    module: str
    line: int
    what: str
    place: int  # of the node, in the order of `ast.walk`
    number: int  # of the change, among those of its node
    function: str | None = (
        # The outermost function around it, as `Class.name`; None for import-time code.
        None
    )
    lines: tuple[int, int] = (
        0,
        0,
    )  # of its statement, first and last: a test that runs none of them can't notice it

    def __str__(self) -> str:
        return f"{self.module}, line {self.line}: {self.what}"


class _Place(NamedTuple):
    function: str | None
    lines: tuple[int, int]
    left_out: str | None


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    tree = ast.parse(source)
    places = _places(tree)
    for place, node in enumerate(ast.walk(tree)):
        where = places[node]
        if where.left_out is None:
            for number, (what, _) in enumerate(_changes(node)):
                yield Mutant(
                    module,
                    getattr(node, "lineno", 0),
                    what,
                    place,
                    number,
                    where.function,
                    where.lines,
                )


def left_out(source: str) -> Counter[str]:
    """Count the changes that are not tried, by reason."""
    tree = ast.parse(source)
    places = _places(tree)
    return Counter(
        why
        for node in ast.walk(tree)
        if (why := places[node].left_out) is not None
        for _ in _changes(node)
    )


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """Return the changed module. Every line stays in its place."""
    tree = ast.parse(source)
    target = next(each for index, each in enumerate(ast.walk(tree)) if index == mutant.place)
    _, change = list(_changes(target))[mutant.number]
    _replace(tree, target, ast.copy_location(change, target))
    return ast.fix_missing_locations(tree)


def _places(tree: ast.Module) -> dict[ast.AST, _Place]:
    """
    Return for every node its function, the lines of its statement, and the reason if it is left
    out.
    """
    found: dict[ast.AST, _Place] = {}

    def visit(node: ast.AST, where: _Place, scope: str) -> None:
        found[node] = where
        for field, child in _children(node):
            inner = where
            if isinstance(child, ast.stmt):
                inner = inner._replace(lines=_lines(child))
            if (
                where.function is None
                and field == "body"
                and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ):
                inner = inner._replace(function=scope)
            if isinstance(child, ast.JoinedStr):
                inner = inner._replace(left_out="a text for people")
            if isinstance(child, ast.keyword) and child.arg in _MEANS_NOTHING:
                inner = inner._replace(left_out=_MEANS_NOTHING[child.arg])
            named = (
                child.name
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                else None
            )
            visit(child, inner, scope if named is None else f"{scope}.{named}".lstrip("."))

    visit(tree, _Place(None, (0, 0), None), "")
    return found


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield field, each


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """Return the lines of the statement; for a compound statement, only those of its head."""
    inner = [
        each.lineno
        for each in ast.walk(statement)
        if isinstance(each, ast.stmt) and each is not statement
    ]
    return statement.lineno, (
        max(statement.lineno, min(inner) - 1) if inner else statement.end_lineno or statement.lineno
    )


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield each possible error here: its description, and the node that replaces this one."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=right) if type(op) in _TURNED:
            turned = ast.Compare(left, [_TURNED[type(op)]()], right)
            yield f"`{ast.unparse(node)}` becomes `{ast.unparse(turned)}`", turned
        case ast.BoolOp(op=op, values=values):
            other = ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            yield f"`{ast.unparse(node)}` becomes `{ast.unparse(other)}`", other
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"`{ast.unparse(node)}` becomes `{ast.unparse(operand)}`", operand
        case ast.If(test=test, body=[ast.Return() | ast.Raise(), *_], orelse=[]):
            yield f"the guard `if {ast.unparse(test)}` is taken out", ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield f"`{ast.unparse(node)}` returns nothing", ast.Return(ast.Constant(None))
        case ast.Constant(value=bool(value)):
            yield f"`{value}` becomes `{not value}`", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield f"`{value}` becomes `{value + 1}`", ast.Constant(value + 1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            other_op: ast.operator = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
            yield (
                f"`{ast.unparse(node)}` becomes `{ast.unparse(ast.BinOp(left, other_op, right))}`",
                ast.BinOp(left, other_op, right),
            )
        case _:
            return


def _replace(tree: ast.AST, target: ast.AST, by: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, by)
                return
            if isinstance(value, list) and any(each is target for each in value):
                setattr(parent, name, [by if each is target else each for each in value])
                return
