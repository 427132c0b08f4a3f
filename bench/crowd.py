"""
Many at once: 1,000 sessions by 64 tasks against 64 threads on plain files; two processes on one
session and on two.
"""

import asyncio
import json
import os
import subprocess
import threading
import time
from pathlib import Path

from bench.ground import Ground, RawFile, Row, compared, python
from bench.journals import LINE_BYTES, new_journal, one, open_store
from holdfast.adapters.files.session.journal import FileJournal
from holdfast.ids import SessionId

PART = "many at once"
SESSIONS = 1000
TASKS = 64
ROUNDS = 3


def measure(ground: Ground) -> list[Row]:
    return [asyncio.run(_crowd(ground)), *_two_processes(ground)]


async def _crowd(ground: Ground) -> Row:
    sessions, each = ground.count(SESSIONS, 64), 8
    folder = ground.fresh("crowd")
    raw = [RawFile(folder, LINE_BYTES, f"raw-{number}") for number in range(sessions)]
    async with open_store(folder / "home") as store:
        journals = [await new_journal(store, f"s{number}") for number in range(sessions)]
        ours, limit = [], []
        for _ in range(ROUNDS):
            limit.append(sessions * each / await asyncio.to_thread(_by_threads, raw, each))
            ours.append(sessions * each / await _by_tasks(journals, each))
    ours_rate, limit_rate = sorted(ours)[ROUNDS // 2], sorted(limit)[ROUNDS // 2]
    return compared(
        PART,
        f"{sessions:,} sessions by {TASKS} tasks",
        ours_rate,
        limit_rate,
        at_least=0.6,
        ours_told=f"{ours_rate:,.0f}/s",
        limit_told=f"{limit_rate:,.0f}/s",
        note=f"limit: {TASKS} threads, bare write+fdatasync on as many files",
    )


def _by_threads(files: list[RawFile], each: int) -> float:
    def work(mine: list[RawFile]) -> None:
        for _ in range(each):
            for file in mine:
                file.append()

    threads = [threading.Thread(target=work, args=(files[start::TASKS],)) for start in range(TASKS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


async def _by_tasks(journals: list[FileJournal], each: int) -> float:
    async def work(mine: list[FileJournal]) -> None:
        for _ in range(each):
            for journal in mine:
                await journal.append(one, since=journal.head)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for start in range(TASKS):
            group.create_task(work(journals[start::TASKS]))
    return time.perf_counter() - started


# --- two processes
# ----------------------------------------------------------------------------------------------------


def _two_processes(ground: Ground) -> list[Row]:
    times = ground.count(1000)
    home = ground.fresh("two") / "home"

    async def prepare() -> None:
        async with open_store(home) as store:
            for name in ("shared", "own0", "own1"):
                await (await new_journal(store, name)).close()

    asyncio.run(prepare())
    limit = _rate(home, ["raw", "raw"], times)
    rows = []
    for what, names in (
        ("two processes, a session each", ["own0", "own1"]),
        ("two processes, one session", ["shared", "shared"]),
    ):
        rate = _rate(home, names, times)
        note = "limit: two processes, bare write+fdatasync on a file each"
        rows.append(
            compared(
                PART,
                what,
                rate,
                limit,
                ours_told=f"{rate:,.0f}/s",
                limit_told=f"{limit:,.0f}/s",
                note=note,
            )
        )
    return rows


def _rate(home: Path, names: list[str], times: int) -> float:
    """
    Appends per second of all of them together, from when the first begins to when the last ends.
    """
    command = [python(), "-m", "bench.crowd", str(home)]
    working = [
        subprocess.Popen(
            [*command, name, str(times)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in names
    ]
    spans = []
    for process in working:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    for process in working:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in working:
        out, _ = process.communicate()
        spans.append(json.loads(out))
    return len(names) * times / (max(end for _, end in spans) - min(start for start, _ in spans))


async def _work(home: Path, name: str, times: int) -> None:
    if name == "raw":
        raw = RawFile(home.parent, LINE_BYTES, f"raw-{os.getpid()}")
        return _go(raw.append, times)
    async with open_store(home) as store:
        journal = await store.open(SessionId(f"bench/{name}"))
        return _go(lambda: journal.append_now(one, since=journal.head), times)


def _go(work, times: int) -> None:
    print("ready", flush=True)
    input()
    started = time.monotonic()
    for _ in range(times):
        work()
    print(json.dumps([started, time.monotonic()]))


if __name__ == "__main__":
    import sys

    asyncio.run(_work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
