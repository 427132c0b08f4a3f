"""
One writer of the history campaign: a few tasks that append to random sessions, as a driver or as
anybody, and note before and after each append what they know, and when.

The tasks share a store, so the lanes send the appends of several sessions as one statement.
"""

import asyncio
import os
import random
import sys
import time
from pathlib import Path

from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Fenced, HoldfastError, InDoubt
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Check
from holdfast.testing.journal_notes import say

TASKS = 6


class Writer:
    def __init__(self, notes: str, who: str, sessions: int) -> None:
        self._fd = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._who, self._sessions, self._dice = who, sessions, random.Random(who)
        self._numbers = [0] * TASKS

    def note(self, *words: object) -> None:
        line = " ".join(map(str, (*words, time.monotonic_ns())))
        os.write(self._fd, f"{line}\n".encode())

    async def write(self, store: PostgresStore, task: int) -> None:
        while True:
            name = SessionId(f"ops/s{self._dice.randrange(self._sessions)}")
            journal = await store.open(name)
            claim = await journal.claim() if self._dice.random() < 0.5 else None
            for _ in range(self._dice.randrange(1, 24)):
                if not await self._append(journal, task, claim.epoch if claim else None):
                    break
            if claim is not None:
                await claim.release()
            await journal.close()

    async def _append(self, journal: object, task: int, epoch: int | None) -> bool:
        self._numbers[task] += 1
        text = f"{self._who}-{task}.{self._numbers[task]}"
        check = Check.FENCE if self._dice.random() < 0.3 else Check.SHORT
        name = journal.session  # type: ignore[attr-defined]
        self.note("sent", name, text)
        try:
            await say(journal, text, check=check, epoch=epoch)  # type: ignore[arg-type]
        except Fenced:
            self.note("fenced", name, text)
        except InDoubt:
            self.note("doubt", name, text)
        except HoldfastError:
            self.note("refused", name, text)
        else:
            self.note("kept", name, text)
            return True
        return False


async def main(url: str, schema: str, folder: str, notes: str, who: str, sessions: int) -> None:
    writer = Writer(notes, who, sessions)
    while True:
        store = None
        try:
            store = await PostgresStore.open_home(
                DatabaseAddress(url, schema), Path(folder), ahead_ms=None, lease_seconds=1.5
            )
            async with asyncio.TaskGroup() as group:
                for task in range(TASKS):
                    group.create_task(writer.write(store, task))
        except* HoldfastError:
            await asyncio.sleep(0.1)
        finally:
            if store is not None:
                await store.close()


asyncio.run(main(*sys.argv[1:6], int(sys.argv[6])))
