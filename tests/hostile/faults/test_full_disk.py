"""
A file system that is really full, and a limit on the size of files (`ulimit -f`). The answer to a
writer is what is kept, and a tool that fills the disk has its outcome in the journal.
"""

import asyncio
import os
import resource
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.hostile.faults.test_disk import COUNT, WRITER, check, said_of
from tests.hostile.faults.test_reserve import fill

import holdfast
from holdfast.adapters.files.home.reserve import RESERVE_BYTES
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop

ROOM_FOR_A_HOME = 1024  # bytes: the largest file of a home with one session, before any record
ROOM_FOR_ALL = 4096  # more than the largest segment and its last record
ALICE = holdfast.MessageSource.local("alice")


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(
    tmp_path: Path, request: pytest.FixtureRequest, needs: Callable[[str], str]
) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    size = 5 * RESERVE_BYTES
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
    if request.param == "ext4":
        image = tmp_path / "image"
        image.touch()
        os.truncate(image, 4 * size)
        subprocess.run([needs("mkfs.ext4"), "-q", "-F", str(image)], check=True)
        options = ["-o", "loop", str(image)]
    mounted = subprocess.run(
        [needs("mount"), *options, str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.needs_system("mount", "mkfs.ext4")
@pytest.mark.parametrize("way", ["in its record", "beside the journal"])
@in_loop
async def test_the_outcome_of_a_tool_that_filled_the_disk_is_kept(disk: Path, way: str) -> None:
    """D5: a full disk leaves no finished call in doubt, whether or not its output has room."""
    times = 5_000 if way == "in its record" else 30_000  # the second is more than a record takes

    @holdfast.tool(mode="auto")
    def hoard(what: str) -> str:
        """Fill the disk."""
        fill(disk)
        return what * times

    agent = holdfast.Agent("ops", model="demo", tools=[hoard])
    async with holdfast.open(disk / "home", agents=[agent]) as home:
        turn = await home.send("ops/api", "hoard what=gold", source=ALICE)
        assert turn.outcome == "completed"
    assert (disk / "home/reserve").stat().st_blocks == 0
    (disk / "filler").unlink()
    async with holdfast.open(disk / "home", agents=[agent]) as home:
        await home.resume()
        (call,) = await home.calls("ops/api", turn.turn)
    assert call.outcome == "ok"
    assert "goldgold" in call.text
    assert ("could not be kept" in call.text) is (way == "beside the journal")


@pytest.mark.needs_system("mount", "mkfs.ext4")
@pytest.mark.parametrize("way", ["in its record", "beside the journal"])
@in_loop
async def test_the_end_of_a_job_that_filled_the_disk_is_kept(disk: Path, way: str) -> None:
    """D5: the turn of the job is over, and nobody drives the session when the job ends."""
    times = 5_000 if way == "in its record" else 30_000
    is_submitted, is_ended = asyncio.Event(), asyncio.Event()

    @holdfast.tool(mode="auto", background=True)
    async def hoard(what: str) -> str:
        """Fill the disk."""
        await is_submitted.wait()
        fill(disk)
        is_ended.set()
        return what * times

    agent = holdfast.Agent("ops", model="demo", tools=[hoard])
    async with holdfast.open(disk / "home", agents=[agent]) as home:
        turn = await home.send("ops/api", "hoard what=gold", source=ALICE)
        assert turn.outcome == "completed"
        (job,) = await home.jobs(by=ALICE)
        is_submitted.set()
        await is_ended.wait()
    (disk / "filler").unlink()
    async with holdfast.open(disk / "home", agents=[agent]) as home:
        await home.resume()
        over = await home.job(job.id, by=ALICE)
    assert (over.state, over.outcome) == ("ended", "ok")
    assert "goldgold" in (over.text or "")
    assert ("could not be kept" in (over.text or "")) is (way == "beside the journal")


@pytest.mark.needs_system("mount", "mkfs.ext4")
@in_loop
async def test_the_report_of_a_command_that_filled_the_disk_is_kept(disk: Path) -> None:
    """D5, T2: a job's supervisor sets room for its report aside before the command begins."""
    workspace = disk / "work"
    workspace.mkdir()
    agent = holdfast.Agent("ops", model="demo", tools=["shell"])
    os.mkfifo(workspace / "go")
    text = "shell command='cat go; exit 3' background=true"
    async with holdfast.open(disk / "home", agents=[agent]) as home:
        asked = await home.send("ops/api", text, source=ALICE, workspace=workspace)
        await home.answer(asked.approvals[0], "approve_once", by=ALICE)
        (job,) = await home.jobs(by=ALICE)
    (folder,) = (disk / "home/jobs").iterdir()
    supervisor = os.pidfd_open(int(folder.name.split(".")[-2]))
    fill(disk)
    (workspace / "go").write_bytes(b"")
    assert select.select([supervisor], [], [], 60)[0]
    os.close(supervisor)
    async with holdfast.open(disk / "home", agents=[agent]) as home:
        await home.resume()
        over = await home.job(job.id, by=ALICE)
    assert (over.outcome, over.text) == ("error", "[exit 3]")
    (disk / "filler").unlink()


@pytest.mark.needs_system("mount", "mkfs.ext4")
@pytest.mark.parametrize("way", ["its text", "its framework's form"])
@in_loop
async def test_the_outcome_of_a_loops_tool_that_filled_the_disk_is_kept(
    disk: Path, way: str
) -> None:
    """D5: what lies beside the journal has no room, and the outcome is recorded without it."""

    def hoard(_: object) -> holdfast.LoopResult:
        fill(disk)
        if way == "its text":
            return holdfast.LoopResult("gold" * 30_000)
        return holdfast.LoopResult("gold", blob=b"gold" * 30_000, adapter="ours/1")

    schema = {"type": "object", "properties": {}}
    agent = holdfast.Agent("ops", tools=[holdfast.SchemaTool("hoard", schema, mode="auto")])
    async with (
        holdfast.open(disk / "home", agents=[agent]) as home,
        home.turn("ops/api", "hoard", source=ALICE) as turn,
    ):
        gate = await turn.call(await turn.gate("hoard", {}), hoard)
        assert (gate.outcome, gate.text[:4], gate.result) == ("ok", "gold", None)
        assert ("could not be kept" in gate.text) is (way == "its text")
        (disk / "filler").unlink()


@in_loop
async def test_the_report_of_a_delegate_is_kept_where_its_whole_text_is_not(tmp_path: Path) -> None:
    """D5: something lies in the way of the parent's outputs, and the call ends all the same."""
    long = "gold" * 10_000

    @holdfast.tool(mode="auto")
    def block(what: str) -> str:
        """Put a file where the outputs belong."""
        (tmp_path / "home/sessions/ops/api/outputs").write_text(what)
        return what

    lines = [{"call": [{"tool": "block", "args": {"what": "it"}}]}, {"say": long}]
    miner = holdfast.Agent("miner", model=ScriptModel(lines), tools=[block])
    lines = [{"call": [{"tool": "delegate_miner", "args": {"task": "dig"}}]}, {"say": "done"}]
    lead = holdfast.Agent("lead", model=ScriptModel(lines), tools=[block], delegates=[miner])
    async with holdfast.open(tmp_path / "home", agents=[lead]) as home:
        turn = await home.send("ops/api", "dig", source=ALICE)
        assert (turn.outcome, turn.reply) == ("completed", "done")
        (call,) = await home.calls("ops/api", turn.turn)
    assert (call.outcome, call.text[:4], "could not be kept" in call.text) == ("ok", "gold", True)


@pytest.mark.parametrize("limit", [0, 300, 700, 1024, 1500, 2048, 2500, 4096])
@in_loop
async def test_a_limit_on_the_size_of_files_loses_nothing_that_was_acknowledged(
    tmp_path: Path, limit: int
) -> None:
    """D5: the kernel ends a write in its middle (`ulimit -f`); every record is there or refused."""
    home = tmp_path / "home"

    def run(limit: int) -> list[str]:
        done = subprocess.run(
            [sys.executable, str(WRITER), str(home), str(COUNT)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout.splitlines()

    said = run(limit)
    assert (said[-1] == "done") is (limit >= ROOM_FOR_A_HOME), said
    assert limit >= ROOM_FOR_ALL or len(said_of(said, "ack")) < COUNT
    await check(home, said)
