"""
One session: a durable append, synchronous and asynchronous, against write and fdatasync of the same
bytes on the same disk.
"""

import asyncio

from bench.ground import Ground, RawFile, Row, Times, compared, timed
from bench.journals import LINE_BYTES, new_journal, one, open_store
from holdfast.adapters.files.session.journal import FileJournal

PART = "append"
# For a synchronous append. That of an asynchronous one is the best durable peer, in `bench.peers`.
GOAL = 1.4
BLOCK = 25


def measure(ground: Ground) -> list[Row]:
    return asyncio.run(_measure(ground))


async def _measure(ground: Ground) -> list[Row]:
    async with open_store(ground.fresh("append")) as store:
        journal = await new_journal(store, "one")
        raw, now, soon = await in_turns_async(ground, journal, ground.count(1500, 4 * BLOCK))
    size = f"{LINE_BYTES} bytes; at p10, where others disturb least, {now.p10 / raw.p10:.2f} x"
    hops = f"off the event loop: two changes of thread; at p10 {soon.p10 / raw.p10:.2f} x"
    return [
        compared(PART, "one session, synchronous, p50", now.p50, raw.p50, at_most=GOAL, note=size),
        compared(PART, "one session, asynchronous, p50", soon.p50, raw.p50, note=hops),
        compared(PART, "one session, synchronous, p99", now.p99, raw.p99),
        compared(PART, "one session, asynchronous, p99", soon.p99, raw.p99),
    ]


async def in_turns_async(
    ground: Ground, journal: FileJournal, times: int
) -> tuple[Times, Times, Times]:
    """Raw, synchronous, asynchronous."""
    raw = RawFile(ground.folder, LINE_BYTES, f"raw-{times}")
    found: tuple[list[float], ...] = ([], [], [])
    for _ in range(times // BLOCK):
        found[0].extend(timed(raw.append) for _ in range(BLOCK))
        found[1].extend(
            timed(lambda: journal.append_now(one, since=journal.head)) for _ in range(BLOCK)
        )
        found[2].extend(await append_soon(journal, BLOCK))
    raw.close()
    return Times(found[0]), Times(found[1]), Times(found[2])


async def append_soon(journal: FileJournal, times: int) -> list[float]:
    clock = asyncio.get_running_loop().time
    found = []
    for _ in range(times):
        started = clock()
        await journal.append(one, since=journal.head)
        found.append(clock() - started)
    return found
