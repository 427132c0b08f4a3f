"""
10,000 parked sessions: what listing them takes, in time and memory, and what each costs on disk
beyond its content.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import holdfast
from bench.ground import Ground, Row, Times, python, timed, under, without_syncs
from bench.turns import SOURCE, Instant
from holdfast.assembly.service import open_service
from holdfast.home import specs_from_agents
from holdfast.ids import SessionId
from holdfast.limits import KIB, MIB
from holdfast.ports.model import ModelRequest, OnText
from holdfast.ports.tools import Tool
from holdfast.runtime.context import AgentSpec
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.view.messages import ModelAnswer, ProposedCall

PART = "parked"
SESSIONS = 10_000
ONE_PARKED = SessionId("bench/one")
ONCE = {"keys", "reserve", "run"}  # a home has them once, however many sessions


@holdfast.tool
async def restart_service(service: str) -> str:
    """Restart one production service."""
    return f"{service} restarted"


class Asking(Instant):
    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:  # noqa: ARG002
        return ModelAnswer(
            text="", calls=(ProposedCall("restart_service", '{"service":"api"}', None),)
        )


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
    disk = _disk(home, sessions)
    kib = lambda each: f"{each / KIB:.2f} KiB"  # noqa: E731
    return [
        under(
            PART,
            f"approvals list of {sessions:,}, the whole command",
            Times(listed).p50,
            0.5,
            note="reads and checks every row, prints JSON",
        ),
        under(
            PART,
            "memory while listing",
            Times(peaks).p50,
            150 * MIB,
            lambda each: f"{each / MIB:.0f} MiB",
        ),
        under(
            PART,
            "disk a session, beyond its content, by size",
            disk.by_size,
            6 * KIB,
            kib,
            note=disk.shares,
        ),
        under(
            PART,
            "disk a session, by blocks, beyond those of its content",
            disk.by_blocks,
            6 * KIB,
            kib,
            note="st_blocks; 4 KiB is the folder",
        ),
        under(
            PART,
            "disk a session, by blocks, beyond the bytes of its content",
            disk.by_blocks + disk.rest_of_blocks,
            6 * KIB,
            kib,
            note=f"the empty rest of a journal's last block is {kib(disk.rest_of_blocks)} of it for these {disk.content:,.0f} bytes, "
            "and anything from 0 to 4 KiB for others",
        ),
        Row(
            PART,
            "made",
            f"{building / sessions * 1e3:.1f} ms each",
            note="by whole turns, with syncs switched off while building only",
        ),
    ]


def park_without_syncs(home: Path, sessions: int) -> float:
    """
    Whole turns up to the pause. Ten thousand would wait for the disk for minutes, which is measured
    elsewhere.
    """
    with without_syncs():
        return timed(lambda: asyncio.run(_park(home, sessions)))


def specs() -> tuple[Sequence[AgentSpec], Sequence[Tool], Asking]:
    """An agent that asks before its only tool runs."""
    agents, tools, _ = specs_from_agents(
        [holdfast.Agent("ops", model="instant", tools=[restart_service])]
    )
    return agents, tools, Asking()


async def _park(home: Path, sessions: int) -> None:
    agents, tools, models = specs()
    async with open_service(home, agents=agents, tools=tools, models=models) as service:
        for number in range(sessions):
            await _one(service, number)


async def _one(service: Service, number: int) -> None:
    turn = await service.send(f"bench/p{number}", Incoming(text="restart the api", source=SOURCE))
    assert turn.outcome == "waiting", turn


_WATCHED = """
import os, subprocess, sys, time
started = time.perf_counter()
process = subprocess.Popen(sys.argv[1:])
used = os.wait4(process.pid, 0)[2]
print(time.perf_counter() - started, used.ru_maxrss, file=sys.stderr)
"""


def _list(home: Path) -> tuple[float, float, int]:
    """
    (seconds, peak bytes, how many waited). Started by a small process: the peak of one counts from
    what its parent had when it was forked.
    """
    command = [python(), "-m", "holdfast", "--home", str(home), "--json", "approvals", "list"]
    done = subprocess.run(
        [python(), "-I", "-c", _WATCHED, *command], capture_output=True, check=True
    )
    seconds, kib = done.stderr.split()[-2:]
    return float(seconds), int(kib) * 1024, len(json.loads(done.stdout)["approvals"])


class Disk(NamedTuple):
    """Of one session, in bytes."""

    content: float  # its journal
    by_size: float  # everything else, as long as it is
    by_blocks: float  # everything else, in blocks of the disk
    rest_of_blocks: float  # what the journal's last block has left
    shares: str


def _disk(home: Path, sessions: int) -> Disk:
    content = content_blocks = size = blocks = 0
    shares: dict[str, int] = {}
    for root, folders, files in os.walk(home):
        for name in [*folders, *files]:
            path = Path(root, name)
            status = path.lstat()
            share = path.relative_to(home).parts[0]
            if share in ONCE:
                continue
            if share == "sessions" and name.endswith(".jsonl"):
                content += status.st_size
                content_blocks += status.st_blocks * 512
                continue
            size += status.st_size
            blocks += status.st_blocks * 512
            shares[share] = shares.get(share, 0) + status.st_size
    told = ", ".join(
        f"{name} {each / sessions:,.0f}"
        for name, each in sorted(shares.items(), key=lambda each: -each[1])[:4]
    )
    return Disk(
        content / sessions,
        size / sessions,
        blocks / sessions,
        (content_blocks - content) / sessions,
        f"bytes: {told}",
    )
