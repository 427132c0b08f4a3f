"""10,000 parked sessions: what listing them takes, in time and memory, and what each costs on disk beyond its content."""

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path

import holdfast
from bench.ground import Ground, Row, Times, python, under
from bench.turns import SOURCE, Instant
from holdfast.home import specs_from_agents
from holdfast.limits import KIB, MIB
from holdfast.ports.model import ModelRequest, OnText
from holdfast.runtime.service import Service
from holdfast.session.messages import ModelAnswer, ProposedCall
from holdfast.wiring import open_service

PART = "parked"
SESSIONS = 10_000
ONCE = {"keys", "reserve", "run"}  # a home has them once, however many sessions


@holdfast.tool
async def restart_service(service: str) -> str:
    """Restart one production service."""
    return f"{service} restarted"


class Asking(Instant):
    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:  # noqa: ARG002
        return ModelAnswer(text="", calls=(ProposedCall("restart_service", '{"service":"api"}', None),))


def measure(ground: Ground) -> list[Row]:
    sessions = ground.count(SESSIONS, 200)
    home = ground.fresh("parked") / "home"
    building = park_without_syncs(home, sessions)
    listed, peaks = [], []
    for _ in range(3):
        seconds, peak, waiting = _list(home)
        assert waiting == sessions, (waiting, sessions)
        listed.append(seconds)
        peaks.append(peak)
    disk, content, shares = _disk(home)
    beyond = (disk - content) / sessions
    return [
        under(PART, f"approvals list of {sessions:,}, the whole command", Times(listed).p50, 0.5, note="reads and checks every row, prints JSON"),
        under(PART, "memory while listing", Times(peaks).p50, 150 * MIB, lambda each: f"{each / MIB:.0f} MiB"),
        under(PART, "disk a session, beyond its content", beyond, 6 * KIB, lambda each: f"{each / KIB:.2f} KiB", note=shares),
        Row(PART, "made", f"{building / sessions * 1e3:.1f} ms each", note="by whole turns, with syncs switched off while building only"),
    ]


def park_without_syncs(home: Path, sessions: int) -> float:
    """Whole turns up to the pause. Ten thousand would wait for the disk for minutes, which is measured elsewhere."""
    real = os.fsync, os.fdatasync
    os.fsync = os.fdatasync = lambda _: None  # type: ignore[assignment]
    started = time.perf_counter()
    try:
        asyncio.run(_park(home, sessions))
    finally:
        os.fsync, os.fdatasync = real
    return time.perf_counter() - started


async def _park(home: Path, sessions: int) -> None:
    specs, tools, _ = specs_from_agents([holdfast.Agent("ops", model="instant", tools=[restart_service])])
    async with open_service(home, agents=specs, tools=tools, models=Asking()) as service:
        for number in range(sessions):
            await _one(service, number)


async def _one(service: Service, number: int) -> None:
    turn = await service.send(f"bench/p{number}", "restart the api", source=SOURCE)
    assert turn.outcome == "waiting", turn


def _list(home: Path) -> tuple[float, float, int]:
    """(seconds, peak bytes, how many waited)."""
    command = [python(), "-m", "holdfast", "--home", str(home), "--json", "approvals", "list"]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return time.perf_counter() - started, used.ru_maxrss * 1024, len(json.loads(out)["approvals"])


def _disk(home: Path) -> tuple[int, int, str]:
    """(bytes on disk, bytes of journal lines, where the rest lies)."""
    content = on_disk = 0
    shares: dict[str, int] = {}
    for root, folders, files in os.walk(home):
        for name in [*folders, *files]:
            path = Path(root, name)
            status = path.lstat()
            share = path.relative_to(home).parts[0]
            if share in ONCE:
                continue
            on_disk += status.st_blocks * 512
            in_session = root.startswith(str(home / "sessions"))
            if in_session and name.endswith(".jsonl"):
                content += status.st_size
            shares[share] = shares.get(share, 0) + status.st_blocks * 512
    top = sorted(shares.items(), key=lambda each: -each[1])[:4]
    return on_disk, content, "on disk: " + ", ".join(f"{name} {size / MIB:.1f} MiB" for name, size in top) + f"; content {content / MIB:.1f} MiB"
