"""An append at the end of 10, 1,000, 100,000 and 1,000,000 records: it must not cost more."""

import asyncio

from bench.ground import BLOCK, Ground, RawFile, Row, Times, compared, timed
from bench.journals import LINE_BYTES, long_journal, one, open_store

PART = "session length"
LENGTHS = (10, 1_000, 100_000, 1_000_000)


def measure(ground: Ground) -> list[Row]:
    return asyncio.run(_measure(ground))


async def _measure(ground: Ground) -> list[Row]:
    lengths = [each for each in LENGTHS if each <= 1_000_000 * ground.scale or each <= 1000]
    async with open_store(ground.fresh("lengths")) as store:
        journals = {each: await long_journal(store, f"long{each}", each) for each in lengths}
        raw = RawFile(ground.folder, LINE_BYTES, "raw-lengths")
        found: dict[int, list[float]] = {0: [], **{each: [] for each in lengths}}
        for _ in range(ground.count(600, 2 * BLOCK) // BLOCK):
            found[0] += [timed(raw.append) for _ in range(BLOCK)]
            for length, journal in journals.items():
                found[length] += [
                    timed(lambda journal=journal: journal.append_now(one, since=journal.head))
                    for _ in range(BLOCK)
                ]
        raw.close()
    times = {length: Times(each) for length, each in found.items()}
    ground.series["holdfast"] = [(length, times[length].p50 * 1e6) for length in lengths]
    ground.series["write+fdatasync"] = [(length, times[0].p50 * 1e6) for length in lengths]
    shortest = times[lengths[0]].p50
    rows = []
    for length in lengths:
        goal = {"at_most": 1.1} if length == lengths[-1] else {}
        note = (
            "limit: the same at 10 records; history laid down directly, then opened and verified"
            if goal
            else ""
        )
        rows.append(
            compared(
                PART,
                f"append at {length:,} records, p50",
                times[length].p50,
                shortest,
                note=note,
                **goal,
            )
        )
    return rows
