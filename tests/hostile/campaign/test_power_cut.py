"""
The power fails in the middle of a turn: a real ext4 in a loop image is shut down under the process,
without flushing, and mounted again.

Needs root, mkfs.ext4 and loop devices; skipped with the reason without them. The tool's effects are kept on another disk, as the world does.
"""

import asyncio
import fcntl
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from proof.checkers.history import History, read_history

from holdfast.adapters.files import FileStore
from holdfast.ports.journal_store import Record

WORKER = Path(__file__).with_name("worker.py")
CROWD = Path(__file__).parent.parent / "crash" / "crowd.py"
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
FREE_SECONDS_MAX = 60
NO_FLUSH = 2  # what was not synced is gone, the filesystem's own journal included


class Disk:
    """An ext4 that can lose its power."""

    def __init__(self, folder: Path, mkfs: str) -> None:
        self._image, self.place = folder / "disk.img", folder / "disk"
        self.place.mkdir()
        with self._image.open("wb") as image:
            image.truncate(48 * 1024 * 1024)
        subprocess.run([mkfs, "-q", "-F", str(self._image)], check=True)

    def mount(self) -> None:
        done = subprocess.run(
            ["mount", "-o", "loop", str(self._image), str(self.place)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no loop mounts here: {done.stderr.strip()}")

    def unmount(self) -> None:
        """
        Until the device is free: a sandbox that was started meanwhile has a copy of the mount, and
        would keep the dead disk alive for the next one.
        """
        if os.path.ismount(self.place):
            subprocess.run(["umount", str(self.place)], check=True)
        until = time.monotonic() + FREE_SECONDS_MAX
        while subprocess.run(
            ["losetup", "-j", str(self._image)], capture_output=True, check=True
        ).stdout:
            assert time.monotonic() < until, "something still holds the disk"
            time.sleep(0.05)

    def cut_power(self) -> None:
        fd = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_FLUSH))
        except OSError as exc:
            pytest.skip(f"this kernel can't shut an ext4 down: {exc}")
        finally:
            os.close(fd)


@contextmanager
def disk_in(folder: Path, needs: Callable[[str], str]) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    needs("mount")
    needs("losetup")
    disk = Disk(folder, needs("mkfs.ext4"))
    try:
        yield disk
    finally:
        disk.unmount()


def work_until_cut(disk: Disk, work: list[str], lines: int) -> list[str]:
    """Let it work until it has said so many lines, then cut; what it said in all."""
    process = subprocess.Popen(
        [sys.executable, *work], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        said = [process.stdout.readline().strip() for _ in range(lines)]
        disk.cut_power()
    finally:
        process.kill()
        rest, _ = process.communicate()
    return [*said, *rest.splitlines()]


def told(said: list[str], word: str) -> set[str]:
    return {line.split()[1] for line in said if line.startswith(f"{word} ")}


def check(history: History, said: list[str], effects: list[str]) -> None:
    """
    Acknowledged is a subset of recovered, and nothing ran without its durable consent and start.
    """
    assert (history.verdict.verdict in {"holds", "torn_tail"}, history.verdict.sealed) == (
        True,
        False,
    ), history.verdict
    accepted = {
        each.body["text"].removeprefix("act what=") for each in history.of("input_accepted")
    }
    assert told(said, "sent") <= accepted
    numbers = {
        each.body["call"]: each.body["arguments"].split('"')[3]
        for each in history.of("tool_started")
    }
    finished = {
        numbers[each.body["call"]]
        for each in history.of("call_finished")
        if each.body["call"] in numbers
    }
    assert told(said, "answered") <= finished
    assert set(effects) <= set(numbers.values()), "a tool ran whose start is not there"
    assert len(effects) == len(set(effects)), "a tool ran twice"
    answered = {each.body["call"] for each in history.of("approval_answered")}
    assert set(numbers) <= answered
    asked = {
        each.body["call"]: each.body["arguments"].split('"')[3]
        for each in history.of("approval_requested")
    }
    assert told(said, "taken") <= {asked[call] for call in answered}


def cut_again_and_again(folder: Path, needs: Callable[[str], str], times: int) -> None:
    effects = folder / "effects"
    with disk_in(folder, needs) as disk:
        for number in range(times):
            disk.mount()
            home = disk.place / "home"
            said = work_until_cut(
                disk, [str(WORKER), "turns", str(home), str(effects), "50"], 1 + number % 7
            )
            disk.unmount()
            disk.mount()
            history = asyncio.run(read_history(home, "ops/api"))
            assert history is not None
            ran = effects.read_text().splitlines() if effects.exists() else []
            check(history, said, ran)
            resumed = subprocess.run(
                [sys.executable, "-c", RESUME, str(WORKER.parent), str(home), str(effects)],
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert (resumed.returncode, resumed.stderr) == (0, ""), resumed
            after = asyncio.run(read_history(home, "ops/api"))
            assert after is not None
            assert (after.verdict.verdict, after.verdict.sealed, after.owes) == ("holds", False, ())
            check(after, [], effects.read_text().splitlines() if effects.exists() else [])
            disk.unmount()


RESUME = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
import holdfast
from pathlib import Path
from worker import agent

async def main():
    async with holdfast.open(sys.argv[2], agents=[agent(Path(sys.argv[3]), "ask")]) as home:
        await home.resume("ops/api")
        for approval in await home.approvals():
            await home.answer(approval, "approve_once", by=holdfast.MessageSource.local("alice"))

asyncio.run(main())
"""


@pytest.mark.needs_system("mkfs.ext4", "mount")
@pytest.mark.xdist_group("power")
def test_five_power_cuts_lose_nothing_acknowledged(
    tmp_path: Path, needs: Callable[[str], str]
) -> None:
    """D1, D2, T2, P11."""
    cut_again_and_again(tmp_path, needs, 5)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.needs_system("mkfs.ext4", "mount")
@pytest.mark.xdist_group("power")
def test_fifty_power_cuts(tmp_path: Path, needs: Callable[[str], str]) -> None:
    cut_again_and_again(tmp_path, needs, 50)


def cut_a_crowd(folder: Path, needs: Callable[[str], str], times: int) -> None:
    """
    Each cut later than the one before, in the middle of commits that many sessions make at once.
    """
    with disk_in(folder, needs) as disk:
        disk.mount()
        home = disk.place / "home"
        subprocess.run(
            [sys.executable, str(CROWD), str(home), "0"], check=True, stdout=subprocess.DEVNULL
        )
        for number in range(times):
            first = 1000 * number
            said = work_until_cut(
                disk, [str(CROWD), str(home), "400", str(first)], 100 + 60 * number
            )
            disk.unmount()
            disk.mount()
            asyncio.run(
                check_crowd(home, [line.split() for line in said if line.startswith("ack ")])
            )
        disk.unmount()


async def check_crowd(home: Path, acknowledged: list[list[str]]) -> None:
    store = await FileStore.open_home(home)
    try:
        for session in await store.sessions():
            journal = await store.open(session)
            records: list[Record] = []
            await journal.load(records.append)
            assert (await store.verify_session(session)).verdict == "holds"
            found = {
                msgspec.json.decode(record.body)["n"] for record in records if record.type == "note"
            }
            lost = {int(number) for _, of, number in acknowledged if of == session} - found
            assert not lost, f"{session}: {len(lost)} acknowledged and gone"
    finally:
        await store.close()


@pytest.mark.needs_system("mkfs.ext4", "mount")
@pytest.mark.xdist_group("power")
def test_a_power_cut_under_a_crowd_loses_nothing_acknowledged(
    tmp_path: Path, needs: Callable[[str], str]
) -> None:
    """D1: also where one sync is for many sessions."""
    cut_a_crowd(tmp_path, needs, 2)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.needs_system("mkfs.ext4", "mount")
@pytest.mark.xdist_group("power")
def test_thirty_power_cuts_under_a_crowd(tmp_path: Path, needs: Callable[[str], str]) -> None:
    cut_a_crowd(tmp_path, needs, 30)
