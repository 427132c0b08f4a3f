"""
What every peer is asked to do, and how it tells: one JSON object on stdout. Runs in the peers'
environment, with nothing of ours.

    python bench/peer/NAME.py import FOLDER      seconds to import what a program needs
    python bench/peer/NAME.py work FOLDER        everything but the cold resume
    python bench/peer/NAME.py resume FOLDER      a new process: go on with the paused session, and say when its tool ran

A number is what was measured, a text says why there is none. BENCH_SCALE below 1 makes everything
smaller, for a quick look.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path

SCALE = float(os.environ.get("BENCH_SCALE", "1"))


def _count(wanted, least):
    return max(least, int(wanted * SCALE))


LENGTHS = (10, 100, 1_000, 10_000) if SCALE >= 0.1 else (10, 100, 1_000)
TURN_LENGTHS = (10, 1_000)
SESSIONS, TASKS = _count(1_000, 64), 64
MANY_SECONDS = 3 * min(
    1, SCALE
)  # every session has one append, and more follow until these are over
# whoever is slower than that does not get through all of them, and its rate is told all the same
MANY_SECONDS_MAX = 20
PARKED = _count(200, 10)
APPENDS = _count(60, 20)
TURNS = _count(30, 5)
LOADS = 10
TEXT = (
    "The service was restarted twice during the night; nothing is wrong with it now, as far as its log of the last hour tells. "
    * 2
)

NOT_OFFERED = "not offered"


# --- measuring
# --------------------------------------------------------------------------------------------------------


def median_us(seconds):
    return statistics.median(seconds) * 1e6


def timed(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


async def atimed(work):
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def many(append):
    """
    Appends a second: 64 tasks share the sessions, each goes through its own at least once and on
    until the time is up.
    """
    done = 0
    started = time.perf_counter()

    async def task(mine):
        nonlocal done
        limit = MANY_SECONDS_MAX
        while time.perf_counter() - started < limit:
            for session in mine:
                if time.perf_counter() - started < limit:
                    await append(session)
                    done += 1
            limit = MANY_SECONDS

    try:
        async with asyncio.TaskGroup() as group:
            for start in range(TASKS):
                group.create_task(task(range(start, SESSIONS, TASKS)))
    except BaseExceptionGroup as exc:  # told in the table as it is
        first = exc.exceptions[0]
        return f"failed: {str(first).splitlines()[0][:40] or type(first).__name__}"
    return done / (time.perf_counter() - started)


def on_disk(folder):
    return sum(path.lstat().st_blocks * 512 for path in Path(folder).rglob("*"))


def bare_append_us(folder):
    """What this disk asks for the same bytes just now: write and fdatasync, nothing else."""
    fd = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append():
        os.write(fd, b"x" * 640)
        os.fdatasync(fd)

    try:
        return median_us([timed(append) for _ in range(_count(100, 20))])
    finally:
        os.close(fd)
        (folder / "bare").unlink()


def pragmas(path):
    import sqlite3

    with sqlite3.connect(path) as db:
        mode = db.execute("PRAGMA journal_mode").fetchone()[0]
        sync = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[
            db.execute("PRAGMA synchronous").fetchone()[0]
        ]
    return f"SQLite, journal_mode={mode}, synchronous={sync}"


# --- telling
# ----------------------------------------------------------------------------------------------------------


def asked():
    return sys.argv[1] if len(sys.argv) > 1 else ""


def imported(work):
    """
    Asked for the import, tell how long it takes and leave; otherwise nothing. Stands before
    anything else of the peer is imported.
    """
    if asked() == "import":
        print(json.dumps({"import": timed(work) * 1e6}), flush=True)
        os._exit(0)


def ran():
    """Called by a tool: in a cold resume this is the moment that counts."""
    if asked() == "resume":
        print(json.dumps({"ran": time.time()}), flush=True)


def main(work, resume):
    folder = Path(sys.argv[2])
    if asked() == "resume":
        resume(folder)
    else:
        print(json.dumps(work(folder)), flush=True)
