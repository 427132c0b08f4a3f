"""
C1 at every await of a drive: a node is stopped there past its lease, another one goes on, and the
first one wakes up. The tool ran at most once, each epoch has one driver, and the turn ends.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld
from tests.adapters.postgres.stopped_driver import LEASE_SECONDS, OPTIONS, SESSION, service_at

from holdfast.ids import SessionId
from holdfast.runtime.service import Service

DRIVER = Path(__file__).with_name("stopped_driver.py")
OF_A_DRIVER = {"model_call_started", "model_answered", "tool_started", "call_finished"}
# In `make test`; `make test-postgres` tries every place until the turn has none left.
SHARE = (9, 22)
PLACES_MAX = 80


def _world(postgres: Cluster, folder: Path) -> PostgresWorld:
    world = PostgresWorld(postgres.url(), f"hf_{uuid.uuid4().hex[:12]}", folder)
    settings = f'[storage]\nurl = "{world.place.url}"\nschema = "{world.place.schema}"\n'
    (folder / "holdfast.toml").write_text(settings)
    return world


def _start(world: PostgresWorld, marker: Path, place: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(world.folder), str(marker), str(place)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def _is_stopped(process: "subprocess.Popen[str]") -> bool:
    """Wait until the process has stopped itself, or has ended without."""
    status = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return status is not None and status.si_code == os.CLD_STOPPED


def _records(world: PostgresWorld) -> list[dict[str, Any]]:
    journal = world.journal(SessionId(SESSION))
    rows = world.rows("select line from record where journal = %s order by seq", journal)
    return [json.loads(line) for (line,) in rows]


def _count(world: PostgresWorld, kind: str) -> int:
    return sum(each["type"] == kind for each in _records(world))


async def _go_on(world: PostgresWorld, service: Service) -> None:
    """Drive whatever is owed, as a server does, until no turn is open and no lease is over."""
    async with asyncio.timeout(60):
        while True:
            await service.drive_all(SessionId(SESSION))
            (left,) = world.rows("select count(*) from process where lease_until > now()")
            if _count(world, "turn_ended") == _count(world, "turn_started") and left[0] <= 1:
                return
            await asyncio.sleep(0.1)


async def _stop_at(world: PostgresWorld, marker: Path, place: int) -> bool:
    """Return False if the turn has no such place."""
    with _start(world, marker, place) as process:
        try:
            return await _stop(world, marker, place, process)
        finally:
            process.kill()


async def _stop(
    world: PostgresWorld, marker: Path, place: int, process: "subprocess.Popen[str]"
) -> bool:
    is_stopped = await asyncio.to_thread(_is_stopped, process)
    if is_stopped:
        async with service_at(world.folder, marker) as service:
            await _go_on(world, service)
            process.send_signal(signal.SIGCONT)
            said, _ = await asyncio.to_thread(process.communicate, timeout=60)
            assert said.startswith("ended"), (place, said)
            await _go_on(world, service)
            verdict = await service.runtime.world.store.verify_session(SessionId(SESSION))  # type: ignore[attr-defined]
        _check(world, marker, f"{place}: {said}", verdict.verdict)
    else:
        said, _ = await asyncio.to_thread(process.communicate, timeout=60)
        assert said == "ended completed\n"
    return is_stopped


def _check(world: PostgresWorld, marker: Path, said: str, verdict: str) -> None:
    records = _records(world)
    told = [(each["type"], each["epoch"], each["writer"]) for each in records]
    ran = marker.read_text().splitlines() if marker.exists() else []
    assert verdict == "holds", (said, told)
    assert len(ran) <= 1, (said, told)
    assert len(ran) <= _count(world, "tool_started"), (said, told)
    # A driver that was fenced before the message was kept says so, and nothing of it is there.
    is_refused = ": ended Fenced" in said and _count(world, "input_accepted") == 0
    assert _count(world, "turn_ended") == int(not is_refused), (said, told)
    drivers: dict[int, set[str]] = {}
    for kind, epoch, writer in told:
        if kind in OF_A_DRIVER:
            drivers.setdefault(epoch, set()).add(writer)
    assert is_refused or drivers, (said, told)
    assert all(len(writers) == 1 for writers in drivers.values()), (said, told)


@pytest.mark.parametrize("place", SHARE)
def test_a_node_that_is_stopped_in_a_drive_is_replaced_and_writes_nothing_after(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setitem(OPTIONS, "lease_seconds", LEASE_SECONDS)
    world = _world(postgres, tmp_path / "node")
    assert asyncio.run(_stop_at(world, tmp_path / "ran", place))
    world.close()


@pytest.mark.beyond_share
@pytest.mark.timeout(1800)
def test_a_node_is_stopped_at_each_await_of_a_drive(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIONS, "lease_seconds", LEASE_SECONDS)
    for place in range(1, PLACES_MAX):
        folder = tmp_path / f"{place}"
        folder.mkdir()
        world = _world(postgres, folder / "node")
        is_stopped = asyncio.run(_stop_at(world, folder / "ran", place))
        world.close()
        if not is_stopped:
            break
    assert 20 < place < PLACES_MAX - 1
