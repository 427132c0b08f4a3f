"""
What every peer is asked to do, and how it tells: one JSON object on stdout. Runs in the peers' environment, with nothing of ours.

    python bench/peer/NAME.py work FOLDER        everything but the cold resume
    python bench/peer/NAME.py resume FOLDER      a new process: go on with the paused session, and say when its tool ran
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

LENGTHS = (10, 100, 1_000, 10_000)
TURN_LENGTHS = (10, 1_000)
SESSIONS, TASKS, EACH = 200, 64, 4
PARKED = 200
APPENDS = 60
TURNS = 30
TEXT = "The service was restarted twice during the night; nothing is wrong with it now, as far as its log of the last hour tells. " * 2


def median_us(seconds):
    return statistics.median(seconds) * 1e6


def timed(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def imported(work):
    """Seconds to import what a program needs."""
    return timed(work)


def on_disk(folder):
    return sum(path.lstat().st_blocks * 512 for path in Path(folder).rglob("*"))


def pragmas(path):
    import sqlite3

    with sqlite3.connect(path) as db:
        mode = db.execute("PRAGMA journal_mode").fetchone()[0]
        sync = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[db.execute("PRAGMA synchronous").fetchone()[0]]
    return f"SQLite, journal_mode={mode}, synchronous={sync}"


def ran():
    """Called by a tool: in a cold resume this is the moment that counts."""
    if len(sys.argv) > 1 and sys.argv[1] == "resume":
        print(json.dumps({"ran": time.time()}), flush=True)
        sys.stdout.flush()


def main(work, resume):
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    folder = Path(sys.argv[2])
    if sys.argv[1] == "resume":
        resume(folder)
    else:
        print(json.dumps(work(folder)))
