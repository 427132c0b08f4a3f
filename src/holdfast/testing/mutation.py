"""
Mutation testing of what must not be wrong: the journal, approvals, authority, policy and the deciding of calls.

Each mutant is one small change of one module (a comparison turned, a guard taken out, a constant moved, a value not returned) in a copy of the sources; the tests
that go with that module run against the copy. A mutant that no test notices survives, and is listed: either a test is missing, or the change means nothing.
`python -m holdfast.testing.mutation --count 300 --seed 1` from the repository's root takes a sample; `--report FILE` writes the survivors as a page.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

WORKERS = 2
SECONDS_MAX = 300.0  # the tests of a module take a few seconds; a mutant that makes them hang is noticed
_JOURNAL = ("tests/unit/journal", "tests/properties/test_journal_bytes.py", "tests/files/test_changed_bytes.py", "tests/files/test_format.py")
_SESSION = ("tests/unit/session", "tests/scenarios", "tests/runtime/test_pause_and_answer.py", "tests/runtime/test_grants.py")
MODULES: dict[str, tuple[str, ...]] = {
    **{f"journal/{name}.py": _JOURNAL for name in ("anchor", "chain", "fence", "record", "segment", "strict", "verify")},
    **{f"session/{name}.py": _SESSION for name in ("approvals", "authority", "decide_answers", "decide_calls", "policy", "restoring")},
}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


class Mutant(NamedTuple):
    module: str
    line: int
    what: str
    place: int  # of the node, in the order of `ast.walk`
    number: int  # of the change, among those of its node

    def __str__(self) -> str:
        return f"{self.module}, line {self.line}: {self.what}"


class Judged(NamedTuple):
    mutant: Mutant
    survives: bool


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    for place, node in enumerate(ast.walk(ast.parse(source))):
        for number, (what, _) in enumerate(_changes(node)):
            yield Mutant(module, getattr(node, "lineno", 0), what, place, number)


def mutated(source: str, mutant: Mutant) -> str:
    tree = ast.parse(source)
    target = next(each for index, each in enumerate(ast.walk(tree)) if index == mutant.place)
    _, change = list(_changes(target))[mutant.number]
    _replace(tree, target, change)
    return ast.unparse(ast.fix_missing_locations(tree))


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What could be wrong here: in words, and as the node that would stand in its place."""
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
            yield f"`{ast.unparse(node)}` becomes `{ast.unparse(ast.BinOp(left, other_op, right))}`", ast.BinOp(left, other_op, right)
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


def sampled(root: Path, *, count: int, seed: int, modules: Sequence[str] = tuple(MODULES)) -> list[Mutant]:
    every = [mutant for module in modules for mutant in mutants_of(module, (root / "src/holdfast" / module).read_text())]
    return sorted(random.Random(seed).sample(every, min(count, len(every))), key=lambda each: (each.module, each.line, each.what))


class Copy:
    """The sources, to be changed one module at a time; tests, settings and golden files stay where they are."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        shutil.copytree(root / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))

    def judge(self, mutant: Mutant) -> Judged:
        path = self._folder / "src/holdfast" / mutant.module
        before = path.read_text()
        path.write_text(mutated(before, mutant))
        try:
            return Judged(mutant, self._tests_pass(MODULES[mutant.module]))
        finally:
            path.write_text(before)

    def _tests_pass(self, tests: Sequence[str]) -> bool:
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not long", *tests]
        env = {**os.environ, "PYTHONPATH": str(self._folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(  # noqa: S603
                [*words, f"--basetemp={self._folder / 'tmp'}"], cwd=self._root, env=env, capture_output=True, timeout=SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def judged(root: Path, mutants: Sequence[Mutant], *, workers: int = WORKERS) -> Iterator[Judged]:
    """Each as it is done; the unchanged sources first, or nothing that is said of mutants means anything."""
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as name:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(workers):
            copies.put(Copy(root, Path(name) / f"copy-{number}"))
        first = copies.get()
        if not all(first._tests_pass(tests) for tests in {MODULES[each.module] for each in mutants}):  # noqa: SLF001  # its own
            raise AssertionError("the tests fail without any mutant")
        copies.put(first)
        told = threading.Lock()

        def judge(mutant: Mutant) -> Judged:
            taken = copies.get()
            try:
                return taken.judge(mutant)
            finally:
                with told:
                    copies.put(taken)

        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(judge, mutants)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mutation", description="Which small changes no test notices.")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modules", nargs="*", choices=list(MODULES), default=list(MODULES))
    parser.add_argument("--report", type=Path, help="write the survivors here")
    options = parser.parse_args(arguments)
    root = Path.cwd()
    mutants = sampled(root, count=options.count, seed=options.seed, modules=options.modules)
    survivors: list[Mutant] = []
    for number, (mutant, survives) in enumerate(judged(root, mutants), 1):
        if survives:
            survivors.append(mutant)
            sys.stdout.write(f"survives: {mutant}\n")
        if number % 20 == 0:
            sys.stdout.write(f"{number} of {len(mutants)}, {len(survivors)} survive\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(mutants)} mutants, {len(survivors)} survive\n")
    if options.report is not None:
        lines = [f"- `{each.module}`, line {each.line}: {each.what}." for each in survivors]
        options.report.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
