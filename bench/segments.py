"""
How large a segment should be: what a reacquire re-hashes against what rotating costs. Chosen: 256
KiB.
"""

import asyncio
import statistics

from bench.ground import Ground, Row, Times, in_turns, timed, told
from bench.journals import LINE_BYTES, lay_down, long_journal, new_journal, one, open_store
from bench.reacquire import come_back
from holdfast.ids import SessionId
from holdfast.limits import KIB, SEGMENT_BYTES

PART = "segment size"
SIZES = (64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB)
RECORDS = 20_000


def measure(ground: Ground) -> list[Row]:
    return [asyncio.run(_one_size(ground, size)) for size in SIZES]


async def _one_size(ground: Ground, size: int) -> Row:
    async with open_store(ground.fresh("segment"), segment_bytes=size) as store:
        journal = await new_journal(store, "full")
        lay_down(journal, size // LINE_BYTES - 4)
        journal = await store.open(SessionId("bench/full"))
        come_back(journal)
        (back,) = in_turns(ground.count(300), lambda: come_back(journal))
        # Rotations included: enough appends for one at least.
        appended = [
            timed(lambda: journal.append_now(one, since=journal.head))
            for _ in range(max(ground.count(400), size // LINE_BYTES + 50))
        ]
        long = await long_journal(store, "long", ground.count(RECORDS))
        await long.close()
        opened = Times(
            [timed(lambda: store._directory.open(SessionId("bench/long"))) for _ in range(3)]
        )
    chosen = "chosen" if size == SEGMENT_BYTES else ""
    rotating = max(appended)
    ours = f"reacquire {told(back.p50)}, append mean {told(statistics.fmean(appended))}"
    return Row(
        PART,
        f"{size // KIB} KiB",
        ours,
        note=f"{chosen} full segment; worst append (rotation) {told(rotating)}; open {told(opened.p50)}".strip(),
    )
