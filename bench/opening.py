"""
Opening and verifying 1,000, 10,000 and 100,000 records against hashing the same bytes, one call per
segment; and the memory it takes.
"""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

from blake3 import blake3

from bench.ground import Ground, Row, Times, compared, python, timed, under
from bench.journals import bytes_of, long_journal, open_store
from holdfast.adapters.files import FileStore
from holdfast.ids import SessionId
from holdfast.limits import MIB

PART = "open"
LENGTHS = (1_000, 10_000, 100_000)
MEMORY_GOAL = (
    16 * MIB
)  # beyond an opened home; all records of 100,000 would be four times as much and more


def measure(ground: Ground) -> list[Row]:
    return asyncio.run(_measure(ground))


async def _measure(ground: Ground) -> list[Row]:
    home = ground.fresh("open")
    rows: list[Row] = []
    async with open_store(home) as store:
        for length in LENGTHS:
            rows += await _one_length(ground, store, home, length)
    return rows


async def _one_length(ground: Ground, store: FileStore, home: Path, length: int) -> list[Row]:
    session = SessionId(f"bench/open{length}")
    journal = await long_journal(store, f"open{length}", length)
    paths, size = [Path(each) for each in journal.where()], bytes_of(journal)
    await journal.close()
    hashed, opened, verified = [], [], []
    for _ in range(ground.count(9 if length < 100_000 else 5, 3)):
        hashed.append(timed(lambda: [blake3(path.read_bytes()).digest() for path in paths]))
        opened.append(timed(lambda: store._directory.open(session)))
    verified += [
        timed(lambda: store._survey.verify(session, None))
        for _ in range(3 if length < 100_000 else 1)
    ]
    limit, ours, walked = (
        size / Times(hashed).p50,
        size / Times(opened).p50,
        size / Times(verified).p50,
    )

    def speed(rate: float) -> str:
        return f"{rate / MIB:,.0f} MiB/s"

    goal = {"at_least": 0.5} if length >= 10_000 else {}
    note = f"{size / MIB:.1f} MiB; {Times(opened).told()}"
    if not goal:
        note += "; mostly the active segment, which is walked record by record"
    rows = [
        compared(
            PART,
            f"open, {length:,} records",
            ours,
            limit,
            ours_told=speed(ours),
            limit_told=speed(limit),
            note=note,
            **goal,
        ),
        compared(
            PART,
            f"verify (every record), {length:,} records",
            walked,
            limit,
            ours_told=speed(walked),
            limit_told=speed(limit),
        ),
    ]
    if length == LENGTHS[-1]:
        grown = _memory(home, session)
        rows.append(
            under(
                PART,
                f"memory to open {length:,} records",
                grown,
                MEMORY_GOAL,
                lambda each: f"{each / MIB:.1f} MiB",
            )
        )
    return rows


def _memory(home: Path, session: SessionId) -> float:
    asked = subprocess.run(
        [python(), "-m", "bench.opening", str(home), session],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(asked.stdout))


def _peak() -> int:
    """
    The most memory this process had in RAM so far. Not ru_maxrss, which a child inherits from who
    started it.
    """
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0])


async def _probe(home: Path, session: SessionId) -> None:
    """
    In a process of its own: how much the peak grows when that session is opened and streamed, once
    the home is open.
    """
    async with open_store(home) as store:
        before = _peak()
        journal = await store.open(session)
        await journal.load(lambda _: None)
        print(_peak() - before)


if __name__ == "__main__":
    asyncio.run(_probe(Path(sys.argv[1]), SessionId(sys.argv[2])))
