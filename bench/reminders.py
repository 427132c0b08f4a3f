"""
100,000 reminders that stand: what a server that waits for them holds in tasks, timers and memory,
against one with none; and how late one comes.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import holdfast
from bench.ground import Ground, Row, Times, compared, python, resident_bytes, told, under
from holdfast.assembly.service import open_service
from holdfast.gateway.server.drive_scheduler import DriveScheduler
from holdfast.ids import SessionId, reminder_id
from holdfast.limits import MIB, REMINDERS_PER_SESSION_MAX
from holdfast.runtime.reports.announcer import write_row
from holdfast.runtime.service import Service
from holdfast.session.codec import decode
from holdfast.session.commands import SetReminder
from holdfast.session.events import ReminderFired
from holdfast.session.features.reminders.schedule import Every, Once

PART = "reminders"
REMINDERS = 100_000
LOOKS = 200
ALICE = holdfast.MessageSource.local("alice")


def measure(ground: Ground) -> list[Row]:
    sessions = ground.count(REMINDERS // REMINDERS_PER_SESSION_MAX, 20)
    count = sessions * REMINDERS_PER_SESSION_MAX
    folder = ground.fresh("reminders")
    building = _without_syncs(folder / "full", sessions)
    _without_syncs(folder / "none", 0)
    none, full = _serve(folder / "none"), _serve(folder / "full")
    late = Times(full["late"])
    return [
        compared(
            PART,
            f"tasks and timers with {count:,} standing",
            full["held"],
            none["held"],
            at_most=1.0,
            **_counts(full, none),
        ),
        under(
            PART,
            "finding the next one due",
            Times(full["looks"]).p50,
            0.001,
            note=f"p99 {told(Times(full['looks']).p99)}; checks its mac",
        ),
        under(
            PART,
            "memory beyond a server's with none",
            max(0, full["memory"] - none["memory"]),
            64 * MIB,
            lambda each: f"{each / MIB:.1f} MiB",
        ),
        Row(
            PART,
            "from its time to its durable input",
            late.told(),
            note="one more reminder in another session; with the sync, and Python's own timer",
        ),
        Row(
            PART,
            "made",
            f"{building / count * 1e6:.0f} us each",
            note="a hundred in a commit, with syncs switched off while building only",
        ),
    ]


def _counts(full: dict[str, Any], none: dict[str, Any]) -> dict[str, str]:
    return {
        "ours_told": f"{full['held']}",
        "limit_told": f"{none['held']}",
        "note": "of the whole process; the limit is a server with no reminders",
    }


def _without_syncs(home: Path, sessions: int) -> float:
    real = os.fsync, os.fdatasync
    os.fsync = os.fdatasync = lambda _: None
    started = time.perf_counter()
    try:
        asyncio.run(_set_many(home, sessions))
    finally:
        os.fsync, os.fdatasync = real
    return time.perf_counter() - started


async def _set_many(home: Path, sessions: int) -> None:
    async with open_service(home) as service:
        await service.create("bench/once", by="alice")
        for number in range(sessions):
            await service.create(f"bench/r{number}", by="alice")
            async with service.runtime.sessions.use(SessionId(f"bench/r{number}")) as ledger:
                await ledger.commit(
                    *(
                        _wish(ledger.instance, number, each)
                        for each in range(REMINDERS_PER_SESSION_MAX)
                    )
                )
                await write_row(service.runtime.world, ledger)


def _wish(instance: Any, session: int, each: int) -> SetReminder:
    schedule = Every(7200 + 13 * session + each, 0)
    return SetReminder(
        reminder=reminder_id(instance, str(each)),
        text="look",
        schedule=schedule,
        source=ALICE,
        agent="assistant",
        model="demo",
    )


# --- in a process of its own


def _serve(home: Path) -> dict[str, Any]:
    done = subprocess.run(
        [python(), "-m", "bench.reminders", str(home)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def _waiting(home: Path) -> dict[str, Any]:
    """A server's drives, at rest: what is held while they wait, then how late a few come."""
    async with open_service(home) as service, asyncio.TaskGroup() as group:
        drives = DriveScheduler(service)
        running = group.create_task(drives.run())
        while not drives.rescans:  # noqa: ASYNC110  # a bench may look
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        loop: Any = asyncio.get_running_loop()
        held = len(asyncio.all_tasks()) + len(loop._scheduled)
        now = service.runtime.world.clock.now_ms()
        index = service.runtime.world.index
        looks = [await _timed(lambda: index.next_reminder(after=now)) for _ in range(LOOKS)]
        memory = resident_bytes()
        late = [await _one(service, drives, number) for number in range(5)]
        running.cancel()
    return {"held": held, "looks": looks, "memory": memory, "late": late}


async def _timed(work: Any) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def _one(service: Service, drives: DriveScheduler, number: int) -> float:
    """Seconds from its time to the durable record of its firing, as the journal has it."""
    session = SessionId("bench/once")
    async with service.runtime.sessions.use(session) as ledger:
        wish = _wish(ledger.instance, 0, 0)
        at = service.runtime.world.clock.now_ms() + 300
        command = SetReminder(
            reminder=reminder_id(ledger.instance, f"once {number}"),
            text="help",
            schedule=Once(at),
            source=ALICE,
            agent=wish.agent,
            model=wish.model,
        )
        seq = ledger.state.seq
        await ledger.commit(command)
        await write_row(service.runtime.world, ledger)
        drives.wake(session)
        watch = ledger.watch()
        while True:
            fired = [event for event in _events(ledger, seq) if isinstance(event[1], ReminderFired)]
            if fired:
                ledger.unwatch(watch)
                return (fired[0][0] - at) / 1000
            watch.clear()
            await watch.wait()


def _events(ledger: Any, after: int) -> list[tuple[int, Any]]:
    return [
        (record.at, decode(record.type, record.version, record.body))
        for record in ledger.recent
        if record.seq > after
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_waiting(Path(sys.argv[1])))))
