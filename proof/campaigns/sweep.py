"""
A campaign as a program: many cases, a few at a time, with a progress bar, each broken promise as it
is found, and a table at the end.

A whole campaign takes a while. It can run in parts (`--part 2/5`) and continue after a stop
(`--notes FILE`: cases noted there as kept are not repeated).
"""

import argparse
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from proof.campaigns.syscalls import SyscallFault

Phase = Literal["send", "answer", "serve"]
"""
The command to disturb. `serve` is the gateway, with a client that sends and answers (see
`serve_campaign.py`).
"""
Tool = Literal["act", "shell"]

WORKERS = 2  # processes at once


class SweepCase(NamedTuple):
    tool: Tool
    phase: Phase
    fault: SyscallFault

    def __str__(self) -> str:
        return f"{self.tool}, {self.phase}: {self.fault}"


class CaseVerdict(NamedTuple):
    """
    `problems` is empty if every promise was kept. `hit` means that the fault changed the command's
    course.
    """

    case: SweepCase
    problems: tuple[str, ...]
    hit: bool
    in_doubt: bool
    sealed: bool


class CaseJudge(Protocol):
    """Tries cases, one after the other."""

    def judge(self, case: SweepCase) -> CaseVerdict: ...

    def close(self) -> None: ...


R = TypeVar("R", bound=CaseJudge)


def campaign(
    cases: Sequence[SweepCase],
    folder: Path,
    strace: str,
    *,
    rig: Callable[[Path, str], CaseJudge],
    workers: int = WORKERS,
    on_verdict: Callable[[CaseVerdict], None] | None = None,
) -> list[CaseVerdict]:
    """Try all cases, a few at a time."""
    rigs: SimpleQueue[CaseJudge] = SimpleQueue()
    told = threading.Lock()

    def judge(case: SweepCase) -> CaseVerdict:
        judging = rigs.get()
        try:
            verdict = judging.judge(case)
        finally:
            rigs.put(judging)
        with told:
            if on_verdict is not None:
                on_verdict(verdict)
        return verdict

    with ExitStack() as stack:
        for number in range(workers):
            rigs.put(stack.enter_context(closing(rig(folder / f"worker-{number}", strace))))
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(judge, cases))


def sweep(
    arguments: list[str] | None,
    *,
    name: str,
    rig: Callable[[Path, str], R],
    plan: Callable[[R, list[str], list[Tool]], Iterable[SweepCase]],
    calls: Sequence[str],
) -> int:
    from rich.console import Console
    from rich.progress import Progress

    options = _options(arguments, name, calls)
    console = Console(stderr=True)
    strace = shutil.which("strace")
    if strace is None:
        console.print("strace is not installed")
        return 2
    notes = Notes(options.notes)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-campaign-") as where,
        Progress(console=console) as progress,
    ):
        folder, began = Path(where), time.monotonic()
        with closing(rig(folder / "counting", strace)) as counting:
            wanted = chosen(
                list(plan(counting, options.calls, options.tools)),
                part=options.part,
                every=options.every,
                harms=options.harms,
            )
        cases = [each for each in wanted if each not in notes.kept]
        bar = progress.add_task("cases", total=len(cases))

        def tell(verdict: CaseVerdict) -> None:
            progress.advance(bar)
            notes.add(verdict)
            for problem in verdict.problems:
                progress.console.print(f"{verdict.case}: {problem}", markup=False)

        verdicts = campaign(cases, folder, strace, rig=rig, on_verdict=tell)
    return _tell_all(
        [*(notes.kept[each] for each in wanted if each in notes.kept), *verdicts],
        time.monotonic() - began,
        tried=len(verdicts),
    )


def _options(arguments: list[str] | None, name: str, calls: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m holdfast.testing.{name}",
        description="Something goes wrong at every system call of an approval turn.",
    )
    parser.add_argument(
        "--part",
        type=_part,
        default=(1, 1),
        metavar="K/N",
        help="the Kth of N parts, each spread evenly over places and harms",
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth case")
    parser.add_argument(
        "--calls",
        nargs="*",
        default=list(calls),
        metavar="CALL",
        help=f"only these kinds of calls, of {' '.join(calls)}",
    )
    parser.add_argument(
        "--tools",
        nargs="*",
        default=["act", "shell"],
        choices=["act", "shell"],
        help="only turns that call these",
    )
    parser.add_argument(
        "--harms",
        nargs="*",
        metavar="HARM",
        help="only these, such as kill, EIO, EIO+ (from there on) or lie",
    )
    parser.add_argument(
        "--notes",
        type=Path,
        metavar="FILE",
        help="write each verdict there as it comes; cases told there as kept are not tried again",
    )
    return parser.parse_args(arguments)


def _part(text: str) -> tuple[int, int]:
    which, _, of = text.partition("/")
    if not (which.isdecimal() and of.isdecimal() and 1 <= int(which) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text} is not a part: 2/5 is the second of five")
    return int(which), int(of)


def chosen(
    cases: Sequence[SweepCase],
    *,
    part: tuple[int, int] = (1, 1),
    every: int = 1,
    harms: Sequence[str] | None = None,
) -> list[SweepCase]:
    """
    Choose within each harm. Otherwise every second case would be every place of half of the harms.
    """
    which, of = part
    found = list(
        dict.fromkeys(
            each.fault.harm for each in cases if harms is None or each.fault.harm in harms
        )
    )
    ordered = [each for harm in found for each in cases if each.fault.harm == harm]
    return ordered[::every][which - 1 :: of]


class Notes:
    """
    Verdicts in a file, one per line, so that a stopped sweep can continue. Broken cases are tried
    again.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_bytes().splitlines() if path is not None and path.exists() else []
        self.kept = {
            each.case: each
            for each in (msgspec.json.decode(line, type=CaseVerdict) for line in lines)
            if not each.problems
        }

    def add(self, verdict: CaseVerdict) -> None:
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(verdict) + b"\n")


def _tell_all(verdicts: Sequence[CaseVerdict], seconds: float, *, tried: int) -> int:
    from rich.console import Console
    from rich.table import Table

    table = Table("call", "harm", "cases", "hit", "in doubt", "sealed", "broken promises")
    for row in summary(verdicts):
        table.add_row(*row)
    console = Console()
    console.print(table)
    bad = sum(bool(each.problems) for each in verdicts)
    console.print(
        f"{len(verdicts)} cases, {bad} with a broken promise; {tried} of them tried now, in "
        f"{seconds:.0f} s"
    )
    return 1 if bad else 0


def summary(verdicts: Sequence[CaseVerdict]) -> list[tuple[str, ...]]:
    columns: dict[str, Callable[[CaseVerdict], bool]] = {
        "cases": lambda _: True,
        "hit": lambda each: each.hit,
        "in doubt": lambda each: each.in_doubt,
        "sealed": lambda each: each.sealed,
        "broken": lambda each: bool(each.problems),
    }
    counted: dict[tuple[str, str], Counter[str]] = {}
    for each in verdicts:
        key = each.case.fault.call.partition(",")[0], each.case.fault.harm
        counted.setdefault(key, Counter()).update(
            name for name, counts in columns.items() if counts(each)
        )
    return [
        (call, harm, *(str(row[name]) for name in columns)) for (call, harm), row in counted.items()
    ]
