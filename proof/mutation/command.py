"""
Mutation testing of critical code: the journal, approvals, authority, policy, deciding, folding,
answering and gateway access.

Mutants (`mutation/mutants.py`) inside functions run in one warmed process
(`mutation/fork_server.py`). Mutants of import-time code run in a copy of the sources, each in its
own interpreter. A mutant that no test notices survives and is listed: either a test is missing or
the change has no meaning. `python -m proof.mutation.command` from the repository's root tries all
of them, `--count 300 --seed 1` a sample. `--report FILE` writes the survivors as a page, and
`--again FILE` tries those of such a page, even if their lines have moved.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from proof.mutation.fork_server import SECONDS_OF_TESTS_MAX, Judged, judge_warm
from proof.mutation.mutants import Mutant, left_out, mutants_of, mutated

SECONDS_MAX = (
    300.0  # the tests of a module take some seconds; a mutant that makes them hang is noticed
)


class Tests(NamedTuple):
    """
    Paths of tests: the set from which a mutant's tests are chosen, and the few that all run for
    import-time code, where lines do not show which tests depend on it.
    """

    chosen_from: tuple[str, ...]
    at_import: tuple[str, ...]


_JOURNAL = Tests(
    (
        "tests/unit/journal",
        "tests/proof/properties/test_journal_bytes.py",
        "tests/adapters/files/test_changed_bytes.py",
        "tests/adapters/files/test_format.py",
    ),
    ("tests/unit/journal", "tests/adapters/files/test_format.py"),
)
_SESSION = Tests(
    (
        "tests/unit/session",
        "tests/proof/scenarios",
        "tests/acceptance/runtime/test_pause_and_answer.py",
        "tests/acceptance/runtime/test_grants.py",
        "tests/acceptance/runtime/test_tightened_grants.py",
    ),
    (
        *(
            f"tests/unit/session/test_{name}.py"
            for name in ("authority", "policy", "grants", "answers", "recovery", "react")
        ),
        "tests/proof/scenarios",
    ),
)
_RENDERING = Tests(
    (
        "tests/adapters/tools/test_safe_text.py",
        "tests/adapters/tools/test_look_alikes.py",
        "tests/unit/session/test_policy.py",
    ),
    ("tests/adapters/tools/test_safe_text.py",),
)
_GATEWAY = Tests(("tests/unit/gateway",), ("tests/unit/gateway",))
_STORIES = (
    "pause_and_answer",
    "stopped_short",
    "last_look",
    "grants",
    "delegates",
    "secrets",
    "turns",
    "jobs",
    "reminders",
    "lists",
)
_RUNTIME = Tests(
    ("tests/unit/runtime", *(f"tests/acceptance/runtime/test_{name}.py" for name in _STORIES)),
    (
        "tests/acceptance/runtime/test_pause_and_answer.py",
        "tests/acceptance/runtime/test_stopped_short.py",
        "tests/acceptance/runtime/test_turns.py",
    ),
)
_NAMES = (
    ("session/authority", "approvals context policy grants restore", _SESSION),
    ("session/decide", "answers calls starts", _SESSION),
    ("journal", "fence anchor anchor_cases verify chain record segment strict", _JOURNAL),
    ("session/decide", "turns inputs lifecycle commit", _SESSION),
    ("session/features", "jobs/decide delegates/decide reminders/decide memory/decide", _SESSION),
    ("session", "call_results authority/legacy authority/plan next_steps", _SESSION),
    ("session/view", "safe_text look_alikes", _RENDERING),
    ("gateway", "http/request_guard http/authentication server/tokens server/rate_limit", _GATEWAY),
    ("runtime", "verbs/answer drive/turn drive/tool_call", _RUNTIME),
    ("session", "recovery react features/memory/items", _SESSION),
    (
        "session/evolve",
        "fold approvals running_turn turn model_calls inputs lifecycle view",
        _SESSION,
    ),
    ("session/features", "reminders/evolve jobs/evolve delegates/evolve", _SESSION),
)
MODULES: dict[str, Tests] = {
    f"{folder}/{name}.py": tests for folder, names, tests in _NAMES for name in names.split()
}
"""The most important modules come first."""


def sampled(
    root: Path, *, count: int | None, seed: int, modules: Sequence[str] = tuple(MODULES)
) -> list[Mutant]:
    """Return a sample in the order of the modules, or all mutants without a count."""
    every = [mutant for module in modules for mutant in mutants_of(module, _source(root, module))]
    if count is None or count >= len(every):
        return every
    return [every[index] for index in sorted(random.Random(seed).sample(range(len(every)), count))]


def _source(root: Path, module: str) -> str:
    return (root / "src/holdfast" / module).read_text()


def judge_cold(root: Path, tests: Sequence[str], mutants: Sequence[Mutant]) -> Iterator[Judged]:
    """
    Yield each verdict as it is found, each from its own interpreter. The unchanged sources run
    first: if they fail, no verdict means anything.
    """
    if not mutants:
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as name:
        copy = _Copy(root, Path(name))
        if not copy.tests_pass(tests):
            raise AssertionError("the tests fail without any mutant")
        for mutant in mutants:
            yield copy.judge(mutant, tests)


class _Copy:
    """
    A copy of the sources that is changed one module at a time. Tests, settings and golden files
    stay in their place.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        shutil.copytree(
            root / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )

    def judge(self, mutant: Mutant, tests: Sequence[str]) -> Judged:
        path = self._folder / "src/holdfast" / mutant.module
        before = path.read_text()
        path.write_text(ast.unparse(mutated(before, mutant)))
        try:
            return Judged(mutant, "survives" if self.tests_pass(tests) else "noticed", len(tests))
        finally:
            path.write_text(before)

    def tests_pass(self, tests: Sequence[str]) -> bool:
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-m",
            "not long",
            *tests,
        ]
        env = {
            **os.environ,
            "PYTHONPATH": str(self._folder / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            done = subprocess.run(
                [*words, f"--basetemp={self._folder / 'tmp'}"],
                cwd=self._root,
                env=env,
                capture_output=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


class _Tally:
    """
    Counts verdicts and prints each survivor at once, to the output stream from before the tests
    began.
    """

    def __init__(self, total: int) -> None:
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
        self._total = total
        self.judged: list[Judged] = []

    def take(self, judged: Judged) -> None:
        self.judged.append(judged)
        if judged.how != "noticed":
            self._out.write(f"{judged.how}: {judged.mutant} ({judged.tests} tests)\n")
        if len(self.judged) % 20 == 0:
            self._out.write(f"{len(self.judged)} of {self._total}, {len(self.survivors)} survive\n")

    @property
    def survivors(self) -> list[Mutant]:
        return [each.mutant for each in self.judged if each.how in ("survives", "never run")]

    def say(self, reasons: Counter[str]) -> None:
        counted = Counter(each.how for each in self.judged)
        self._out.write(
            f"{len(self.judged)} mutants: "
            f"{', '.join(f'{count} {how}' for how, count in counted.most_common())}\n"
        )
        self._out.writelines(f"left out: {count}, {why}\n" for why, count in reasons.most_common())
        self._out.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="mutation", description="Which small changes no test notices."
    )
    parser.add_argument("--count", type=int, help="a sample of so many; all without it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modules", nargs="*", choices=list(MODULES), default=list(MODULES))
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS_OF_TESTS_MAX,
        help="of tests for one mutant at most, as they take unchanged",
    )
    parser.add_argument("--again", type=Path, help="only those that this report lists")
    parser.add_argument("--report", type=Path, help="write the survivors here")
    options = parser.parse_args(arguments)
    root = Path.cwd()
    mutants = sampled(root, count=options.count, seed=options.seed, modules=options.modules)
    if options.again is not None:
        mutants = _listed(mutants, options.again.read_text())
    tally = _Tally(len(mutants))
    _judge(root, mutants, tally.take, seconds_max=options.seconds)
    tally.say(sum((left_out(_source(root, module)) for module in options.modules), Counter()))
    if options.report is not None:
        options.report.write_text(
            "".join(
                f"- `{each.module}`, line {each.line}: {each.what}.\n" for each in tally.survivors
            )
        )
    return 0


def _listed(mutants: Sequence[Mutant], report: str) -> list[Mutant]:
    listed = {
        (module, what)
        for module, what in re.findall(r"^- `(.+?)`, line \d+: (.+)\.$", report, re.MULTILINE)
    }
    return [each for each in mutants if (each.module, each.what) in listed]


def _judge(
    root: Path, mutants: Sequence[Mutant], tell: Callable[[Judged], None], *, seconds_max: float
) -> None:
    for tests in dict.fromkeys(MODULES[each.module] for each in mutants):
        theirs = [each for each in mutants if MODULES[each.module] == tests]
        judge_warm(
            root,
            tests.chosen_from,
            [each for each in theirs if each.function is not None],
            tell=tell,
            seconds_max=seconds_max,
        )
        for judged in judge_cold(
            root, tests.at_import, [each for each in theirs if each.function is None]
        ):
            tell(judged)


if __name__ == "__main__":
    sys.exit(main())
