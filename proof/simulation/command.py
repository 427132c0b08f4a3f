"""
`python -m proof.simulation.command`: run simulations without end, or `--count` of them; `--seed N`
repeats one.

There are two kinds. `home` is the whole runtime in simulated time, with several processes on one
disk. `session` is the pure core, with a crash at any record. Without `--only`, both run.
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from proof.simulation.simulator import Lived, simulate
from proof.simulation.world.instances import simulate_home


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logger = logging.getLogger("holdfast")
    before = logger.level
    logger.setLevel(logging.CRITICAL)  # otherwise every fault would be logged
    try:
        return _live(options)
    finally:
        logger.setLevel(before)


def _live(options: argparse.Namespace) -> int:
    kinds: dict[str, Callable[[int], Lived]] = {
        "home": simulate_home,
        "session": partial(simulate, steps=options.steps),
    }
    chosen = {name: live for name, live in kinds.items() if options.only in (None, name)}
    first = options.seed if options.seed is not None else time.time_ns() % 1_000_000_000
    how_many = (
        options.count if options.count is not None else (1 if options.seed is not None else None)
    )
    seeds = count(first) if how_many is None else range(first, first + how_many)
    started, total = time.monotonic(), Lived(first, 0, 0, 0, 0)
    runs = 0
    for seed in seeds:
        for kind, live in chosen.items():
            lived = _lived(kind, live, seed, options.steps)
            runs, total = runs + 1, _sum(total, lived)
            if how_many == 1 or runs % 1000 == 0:
                sys.stdout.write(f"seed {seed} ({kind}): {_report(lived)}\n")
                sys.stdout.flush()
    sys.stdout.write(
        f"{runs} runs from seed {first}: {_report(total)}, every promise kept, "
        f"{time.monotonic() - started:.1f} s\n"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simulate",
        description="Seeded runs of a home and of a session, with faults anywhere.",
    )
    parser.add_argument("--seed", type=int, help="run this one seed, or start here")
    parser.add_argument(
        "--count", type=int, help="how many seeds; without --seed and --count: without end"
    )
    parser.add_argument("--only", choices=["home", "session"], help="only runs of this kind")
    parser.add_argument(
        "--steps",
        type=int,
        default=60,
        help="of a session: things that happen before the faults stop",
    )
    return parser


def _lived(kind: str, live: Callable[[int], Lived], seed: int, steps: int) -> Lived:
    try:
        return live(seed)
    except BaseException:
        repeat = f"--only {kind} --seed {seed}" + (f" --steps {steps}" if kind == "session" else "")
        sys.stderr.write(f"seed {seed} broke a promise; repeat it with {repeat}\n")
        raise


def _sum(total: Lived, lived: Lived) -> Lived:
    return Lived(
        total.seed, *(one + other for one, other in zip(total[1:], lived[1:], strict=True))
    )


def _report(lived: Lived) -> str:
    return (
        f"{lived.records} records, {lived.turns} turns, {lived.starts} starts, {lived.crashes}"
        f" crashes, {lived.faults} other faults"
    )


if __name__ == "__main__":
    sys.exit(main())
