"""
Appends to many sessions at once, and says what came of each: `ack SESSION NUMBER`, `not_saved ...`,
`in_doubt ...`. For faults and crashes from outside.
"""

import asyncio
import os
import sys
from pathlib import Path

from holdfast.adapters.files import FileStore
from holdfast.adapters.files.session.journal import FileJournal
from holdfast.errors import InDoubt, NotSaved
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Draft

SESSIONS = 16


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")  # at once, by a call that no test injects faults into


async def work(journal: FileJournal, numbers: range) -> None:
    for number in numbers:
        try:
            await journal.append(
                lambda _, n=number: [Draft("note", 1, b'{"n":%d}' % n)], since=journal.head
            )  # type: ignore[misc]
            said = "ack"
        except NotSaved:
            said = "not_saved"
        except InDoubt:
            said = "in_doubt"
        say(f"{said} {journal.session} {number}")
        if said == "in_doubt":
            return


async def main(home: Path, numbers: range) -> None:
    store = await FileStore.open_home(home)
    names = [SessionId(f"ops/s{number}") for number in range(SESSIONS)]
    if not await store.sessions():
        for name in names:
            await store.create(name, InstanceId("i" * 26), [], origin="created", by="tests")
    journals = [await store.open(name) for name in names]
    say("born")
    await asyncio.gather(*(work(journal, numbers) for journal in journals))
    await store.close()
    say("done")


if __name__ == "__main__":
    count, first = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    asyncio.run(main(Path(sys.argv[1]), range(first, first + count)))
