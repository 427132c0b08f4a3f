"""`python -m holdfast.testing.simulate`: lives without end, or `--count` of them; `--seed N` repeats one."""

import argparse
import sys
import time
from itertools import count

from holdfast.testing.simulator import simulate


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simulate", description="Seeded lives of a session, with crashes anywhere.")
    parser.add_argument("--seed", type=int, help="live this one life, or start here")
    parser.add_argument("--count", type=int, help="how many lives; without --seed and --count: without end")
    parser.add_argument("--steps", type=int, default=60, help="things that happen before the faults stop")
    options = parser.parse_args(arguments)
    first = options.seed if options.seed is not None else time.time_ns() % 1_000_000_000
    how_many = options.count if options.count is not None else (1 if options.seed is not None else None)
    seeds = count(first) if how_many is None else range(first, first + how_many)
    started, lives, records, starts, crashes = time.monotonic(), 0, 0, 0, 0
    for seed in seeds:
        try:
            life = simulate(seed, steps=options.steps)
        except BaseException:
            sys.stderr.write(f"seed {seed} broke a promise; repeat it with --seed {seed} --steps {options.steps}\n")
            raise
        lives, records, starts, crashes = lives + 1, records + life.records, starts + life.starts, crashes + life.crashes
        if how_many == 1 or lives % 1000 == 0:
            sys.stdout.write(f"seed {seed}: {life.records} records, {life.turns} turns, {life.starts} starts, {life.crashes} crashes\n")
    sys.stdout.write(
        f"{lives} lives from seed {first}: {records} records, {starts} starts, {crashes} crashes, every promise kept, {time.monotonic() - started:.1f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
