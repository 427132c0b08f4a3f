"""
Coming back from a model call: the active segment is hashed again, and what others wrote meanwhile
is verified.
"""

import asyncio
import os

from blake3 import blake3

from bench.ground import Ground, Row, Times, compared, in_turns, timed
from bench.journals import DRAFT, LINE_BYTES, lay_down, new_journal, open_store
from holdfast.adapters.files import FileStore
from holdfast.adapters.files.session.journal import FileJournal
from holdfast.limits import SEGMENT_BYTES
from holdfast.ports.journal_store import Check
from holdfast.runtime.ledger.attempt import nothing

PART = "reacquire"


def measure(ground: Ground) -> list[Row]:
    return asyncio.run(_measure(ground))


def come_back(journal: FileJournal) -> None:
    journal.append_now(nothing, since=journal.head, check=Check.FENCE)


async def _measure(ground: Ground) -> list[Row]:
    home = ground.fresh("reacquire")
    async with open_store(home) as store, open_store(home) as other:
        journal = await _filled(store, "full", SEGMENT_BYTES // LINE_BYTES - 8)
        path = journal.files.paths()[-1]
        data, key = path.read_bytes(), bytes(32)
        fd = os.open(path, os.O_RDONLY)
        hashed, read, back = in_turns(
            ground.count(1500),
            lambda: blake3(data, key=key).digest(),
            lambda: blake3(os.pread(fd, len(data), 0), key=key).digest(),
            lambda: come_back(journal),
        )
        os.close(fd)
        size = f"active segment of {len(data) // 1024} KiB"
        behind = await _filled(store, "behind", SEGMENT_BYTES // LINE_BYTES // 4)
        rows = [
            compared(
                PART,
                "nothing new",
                back.p50,
                read.p50,
                at_most=1.5,
                note=f"{size}; limit: one read, one hash",
            ),
            compared(
                PART,
                "nothing new, against the hash alone",
                back.p50,
                hashed.p50,
                note="limit: bytes already in memory",
            ),
        ]
        theirs = await other.open(behind.session)
        for count in (1, 70):
            found = []
            for _ in range(3 if count > 1 else ground.count(60)):
                theirs.append_now(lambda _, count=count: [DRAFT] * count, since=theirs.head)
                found.append(timed(lambda: come_back(behind)))
            rows.append(
                compared(
                    PART,
                    f"{count} owned record{'s' if count > 1 else ''} of another handle",
                    Times(found).p50,
                    read.p50,
                )
            )
    return rows


async def _filled(store: FileStore, name: str, records: int) -> FileJournal:
    """A handle on a journal of one segment, which has come back once."""
    journal = await new_journal(store, name)
    lay_down(journal, records)
    journal = await store.open(journal.session)
    come_back(journal)
    return journal
