"""
Try mutants in one warmed process. It collects the tests once. Each mutant is a fork of it in which
one function has other code.

No test runs in the process itself, so no thread or result of a test stays in it. The first fork
records which lines each test runs and how long it takes. A mutant meets only the tests that run its
statement, the quickest first, until one fails. A mutant that makes them hang is killed and counts
as noticed, listed apart as noticed by the clock. Only code inside functions can be tried here;
`mutation/command.py` tries import-time code.
"""

import ast
import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Literal, NamedTuple, Self

import pytest

from proof.mutation.mutants import Mutant, mutated

# Per mutant, as the tests take unchanged. Thousands of tests run a central decision, and the quick
# ones are the sharp ones.
SECONDS_OF_TESTS_MAX = 30.0
_WALL_SECONDS = (
    40.0  # plus ten times the unchanged tests' time: other programs may need the machine too
)
_CPU_SECONDS = 20

How = Literal["noticed", "by the clock", "survives", "never run"]


class Judged(NamedTuple):
    mutant: Mutant
    how: How
    tests: int  # how many tests could have noticed it


class _Test(NamedTuple):
    item: pytest.Item
    seconds: float
    lines: frozenset[tuple[str, int]]


def judge_warm(
    root: Path,
    tests: Sequence[str],
    mutants: Sequence[Mutant],
    *,
    tell: Callable[[Judged], None],
    seconds_max: float = SECONDS_OF_TESTS_MAX,
) -> None:
    """
    Yield each verdict as it is found. All mutants are inside functions. The tests run from `root`
    against the sources that this process imports, which must be those of `root`.
    """
    if not mutants:
        return
    plugin = _Warm(root, mutants, tell, seconds_max)
    words = [
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        "not long",
        "-o",
        "tmp_path_retention_policy=none",
    ]
    words += [
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]  # this module has imported our own plugin already
    code = pytest.main([*words, f"--rootdir={root}", *tests], plugins=[plugin])
    if plugin.fault is not None:
        raise plugin.fault
    if code != pytest.ExitCode.OK:
        raise AssertionError(f"the tests could not be collected ({code})")


class _Warm:
    """The pytest plugin that runs the tests in its own way."""

    def __init__(
        self,
        root: Path,
        mutants: Sequence[Mutant],
        tell: Callable[[Judged], None],
        seconds_max: float,
    ) -> None:
        self._sources = {
            each: (root / "src/holdfast" / each).read_text()
            for each in {mutant.module for mutant in mutants}
        }
        self._files = {str(root / "src/holdfast" / each): each for each in self._sources}
        self._mutants, self._tell, self._seconds_max = mutants, tell, seconds_max
        self._failed = False
        self.fault: Exception | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        try:
            with _silence():
                self._judge_all(session.items)
        except Exception as exc:  # noqa: BLE001  # pytest would print it and go on; the caller raises it
            self.fault = exc
        return True

    def _judge_all(self, items: Sequence[pytest.Item]) -> None:
        modules = {each: _imported(each, self._files) for each in self._sources}
        tests = list(self._noted(items))
        gc.collect()
        gc.freeze()
        for mutant in self._mutants:
            chosen = _chosen(tests, mutant, self._seconds_max)
            self._tell(
                Judged(
                    mutant,
                    self._judge(mutant, chosen, modules[mutant.module]) if chosen else "never run",
                    len(chosen),
                )
            )

    def _noted(self, items: Sequence[pytest.Item]) -> Iterator[_Test]:
        """Record the lines and time of each unchanged test."""
        reading, writing = os.pipe()

        def run_all() -> int:
            with os.fdopen(writing, "w") as out:
                for item in items:
                    lines: set[tuple[str, int]] = set()
                    _forget_what_was_remembered()
                    began = time.monotonic()
                    with _noting(self._files, lines):
                        failed = self._fails(item) and self._fails(
                            item
                        )  # one failure may be the machine: recording is slow, others use it
                    out.write(json.dumps([failed, time.monotonic() - began, sorted(lines)]) + "\n")
                out.write(
                    json.dumps([name for name in sys.modules if name.startswith("holdfast.")])
                )
            return 0

        with _Child(run_all) as child, os.fdopen(reading) as told:
            os.close(writing)
            *notes, imported = [json.loads(line) for line in told]
            child.wait(_WALL_SECONDS)
        for item, (failed, seconds, lines) in zip(items, notes, strict=True):
            if failed:
                raise AssertionError(f"{item.nodeid} fails without any mutant")
            yield _Test(item, seconds, frozenset((module, line) for module, line in lines))
        for name in imported:
            importlib.import_module(name)

    def _judge(self, mutant: Mutant, tests: Sequence[_Test], module: ModuleType) -> How:
        tree = mutated(self._sources[mutant.module], mutant)
        seconds = sum(test.seconds for test in tests)

        def try_it() -> int:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu := int(_CPU_SECONDS + 10 * seconds), cpu))
            graft(module, tree, mutant.function or "")
            return int(any(self._fails(test.item) for test in tests))

        with _Child(try_it) as child:
            status = child.wait(_WALL_SECONDS + 10 * seconds)
        if status is None or (
            os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        ):
            return "by the clock"
        return "survives" if status == 0 else "noticed"

    def _fails(self, item: pytest.Item) -> bool:
        self._failed = False
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        return self._failed


def _chosen(tests: Sequence[_Test], mutant: Mutant, seconds_max: float) -> list[_Test]:
    """
    Return the tests that run the statement, the quickest first, within the bound; at least one.
    """
    lines = {(mutant.module, line) for line in range(mutant.lines[0], mutant.lines[1] + 1)}
    able = sorted(
        (test for test in tests if not test.lines.isdisjoint(lines)), key=lambda test: test.seconds
    )
    taken: list[_Test] = []
    left = seconds_max
    for test in able:
        left -= test.seconds
        if left < 0 and taken:
            break
        taken.append(test)
    return taken


def graft(module: ModuleType, tree: ast.Module, function: str) -> None:
    """
    Give the living function the code that it has in the tree. Every holder of the function then
    runs the mutant.
    """
    whole = compile(tree, module.__file__ or "", "exec")
    found = [code for code in _codes(whole) if code.co_qualname == function]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} functions are called {function}")
    living: Any = module
    for name in function.split("."):
        living = vars(living)[name]
    while not isinstance(living, FunctionType):  # a property, a class method or a cached function
        living = next(
            inner
            for each in ("fget", "__func__", "__wrapped__")
            if (inner := getattr(living, each, None)) is not None
        )
    living.__code__ = found[0]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _imported(name: str, files: dict[str, str]) -> ModuleType:
    module = importlib.import_module(f"holdfast.{name.removesuffix('.py').replace('/', '.')}")
    if module.__file__ not in files:
        raise AssertionError(f"{name} was imported from {module.__file__}, not from here")
    return module


def _forget_what_was_remembered() -> None:
    """
    Clear caches. A result cached in one test would hide that the next test depends on the function
    too.
    """
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("holdfast.")]
    for each in [each for module in ours for each in list(vars(module).values())]:
        if callable(forget := getattr(each, "cache_clear", None)):
            forget()


class _noting:  # noqa: N801  # used like a function
    """
    Records every line of these files that runs meanwhile, in any thread that starts meanwhile.
    """

    def __init__(self, files: dict[str, str], lines: set[tuple[str, int]]) -> None:
        self._files, self._lines = files, lines

    def __enter__(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        module = self._files.get(frame.f_code.co_filename)
        if module is None:
            return None
        lines = self._lines

        def ran(frame: FrameType, event: str, _: object) -> Any:
            if event == "line":
                lines.add((module, frame.f_lineno))
            return ran

        return ran(frame, event, argument)


class _Child:
    """
    A fork that runs one function and exits with its result. Leaving the context kills it with its
    whole process group.
    """

    def __init__(self, run: Callable[[], int]) -> None:
        self._pid = os.fork()
        if self._pid == 0:
            code = 2
            try:
                os.setpgid(0, 0)
                code = run()
            finally:
                os._exit(code)
        self._status: int | None = None

    def __enter__(self) -> Self:
        return self

    def wait(self, seconds: float) -> int | None:
        """Return the status as `os.waitpid` gives it, or None if it was not done in time."""
        handle = os.pidfd_open(self._pid)
        try:
            ready, _, _ = select.select([handle], [], [], seconds)
        finally:
            os.close(handle)
        if ready:
            _, self._status = os.waitpid(self._pid, 0)
        return self._status

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if self._status is None:
            os.waitpid(self._pid, 0)


class _silence:  # noqa: N801  # used like a function
    """Discards everything that tests print."""

    def __enter__(self) -> None:
        self._kept = [os.dup(1), os.dup(2)]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(nowhere, number)
        os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        for number, kept in zip((1, 2), self._kept, strict=True):
            os.dup2(kept, number)
            os.close(kept)
