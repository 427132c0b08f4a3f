"""
Writers under faults: stopped past their lease, killed, their backends terminated, the server killed
or replaced by its synchronous standby.

Every acknowledged record is there once; a fenced or refused one is not there; one in doubt is there
at most once. The order is linearizable: a record that was acknowledged before another one was sent
stands before it. Every journal verifies, which also means that epochs never fall.
"""

import asyncio
import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_pair import Pair
from proof.rigs.postgres_world import PostgresWorld

from holdfast.ids import InstanceId, SessionId
from holdfast.testing.journal_notes import create_session, everything, texts

WRITERS = 4
SESSIONS = 8
FAULTS = ("stop", "stop", "kill", "backends", "backends", "backend", "server")
FAILOVERS = ("stop", "kill", "backends", "backend", "server", "failover", "failover")
WORKER = Path(__file__).with_name("history_worker.py")


class Writers:
    def __init__(self, world: PostgresWorld, notes: Path) -> None:
        self._world, self._notes = world, notes
        self._started = 0
        self.processes: list[subprocess.Popen[bytes]] = [self._start() for _ in range(WRITERS)]

    def _start(self) -> "subprocess.Popen[bytes]":
        self._started += 1
        who = f"w{self._started}"
        return subprocess.Popen(
            [
                *(sys.executable, str(WORKER), *self._world.place[:2], str(self._world.folder)),
                *(str(self._notes / who), who, str(SESSIONS)),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def kill_one(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start()

    def stop_one(self, number: int, seconds: float) -> None:
        self.processes[number].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.processes[number].send_signal(signal.SIGCONT)

    def end(self) -> None:
        for each in self.processes:
            each.kill()
            each.wait()


def _faults(
    server: Cluster | Pair, writers: Writers, seconds: float, dice: random.Random
) -> Counter[str]:
    faults, done = FAILOVERS if isinstance(server, Pair) else FAULTS, Counter[str]()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(dice.uniform(0.1, 0.8))
        fault = dice.choice(faults)
        done[fault] += 1
        number = dice.randrange(WRITERS)
        if fault == "stop":
            writers.stop_one(number, dice.uniform(0.5, 2.5))
        elif fault == "kill":
            writers.kill_one(number)
        elif fault == "failover":
            assert isinstance(server, Pair)
            server.fail_over()
            time.sleep(dice.uniform(1, 3))  # so that something is written between two of them
        else:
            _harm(server, fault, dice)
    return done


def _harm(server: Cluster | Pair, fault: str, dice: random.Random) -> None:
    if fault == "backends":
        _at_backends(server, "select pg_terminate_backend(pid)")
    elif fault == "backend":
        pids = _at_backends(server, "select pid")
        if pids:  # the server takes a killed backend for a crash, and recovers
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(dice.choice(pids), signal.SIGKILL)
    else:
        server.kill()
        server.start()


def _at_backends(server: Cluster | Pair, what: str) -> list[int]:
    try:
        with psycopg.connect(server.url(), autocommit=True) as owner:
            found = owner.execute(
                f"{what} from pg_stat_activity where application_name = 'holdfast'"
            )
            return [row[0] for row in found]
    except psycopg.OperationalError:
        return []  # it still recovers


class Note(NamedTuple):
    """The last state that a writer knew of one append, and its times by one clock of the machine."""

    state: str
    sent_at: int
    known_at: float = math.inf


def wrong_with(written: list[str], noted: dict[str, Note]) -> list[str]:
    """Compare a journal with what its writers noted of the texts that they sent there."""
    counts = Counter(written)
    found = [f"{text} is there {count} times" for text, count in counts.items() if count > 1]
    found += [
        f"{text} was acknowledged and is missing"
        for text, each in noted.items()
        if each.state == "kept" and text not in counts
    ]
    found += [
        f"{text} was {each.state} and is there"
        for text, each in noted.items()
        if each.state in {"fenced", "refused"} and text in counts
    ]
    found += [f"{text} was never sent" for text in counts if text not in noted]
    return found + _out_of_order([(text, noted[text]) for text in written if text in noted])


def _out_of_order(written: list[tuple[str, Note]]) -> list[str]:
    """A record that was acknowledged before another one was sent stands before it."""
    found: list[str] = []
    later = "nothing", math.inf
    for text, each in reversed(written):
        if later[1] < each.sent_at:
            found.append(f"{text} stands before {later[0]}, which was acknowledged before it")
        later = min(later, (text, each.known_at), key=lambda pair: pair[1])
    return found


def _noted(folder: Path) -> dict[str, dict[str, Note]]:
    found: dict[str, dict[str, Note]] = {}
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            state, session, text, at = line.split()
            notes = found.setdefault(session, {})
            sent = notes.get(text)
            notes[text] = Note(state, sent.sent_at, int(at)) if sent else Note(state, int(at))
    return found


def _kept(folder: Path) -> int:
    return sum(each.read_bytes().count(b"kept ") for each in folder.iterdir())


def test_the_checker_sees_what_it_should() -> None:
    noted = {
        "w1.1": Note("kept", 1, 2),
        "w1.2": Note("kept", 3, 6),
        "w1.3": Note("fenced", 7, 8),
        "w1.4": Note("doubt", 9, 12),
        "w2.1": Note("kept", 4, 5),
    }
    assert wrong_with(["w1.1", "w1.2", "w2.1", "w1.4"], noted) == []
    assert wrong_with(["w1.1", "w2.1", "w1.2"], noted) == []  # both were under way
    assert wrong_with(["w1.1"], noted) != []
    assert wrong_with(["w1.2", "w1.1", "w2.1"], noted) != []
    assert wrong_with(["w2.1", "w1.1", "w1.2"], noted) != []  # another writer's order counts too
    assert wrong_with(["w1.1", "w1.2", "w1.2", "w2.1"], noted) != []
    assert wrong_with(["w1.1", "w1.2", "w2.1", "w1.3"], noted) != []
    assert wrong_with(["w1.1", "w1.2", "w2.1", "w9.1"], noted) != []


@pytest.mark.parametrize(
    ("seconds", "kept_min"),
    [
        pytest.param(15, 100, id="short"),
        pytest.param(40, 500, id="whole", marks=pytest.mark.beyond_share),
        pytest.param(
            *(3000, 100_000), id="long", marks=(pytest.mark.long, pytest.mark.timeout(3600))
        ),
    ],
)
def test_no_acknowledged_record_is_lost_or_doubled_under_faults(
    cluster: Cluster, tmp_path: Path, seconds: int, kept_min: int
) -> None:
    """The long one goes on until so many records were acknowledged; `seconds` bounds it."""
    _campaign(cluster, tmp_path, seconds, kept_min)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seconds", "kept_min"),
    [
        pytest.param(40, 300, id="whole", marks=pytest.mark.beyond_share),
        pytest.param(1200, 20_000, id="long", marks=pytest.mark.long),
    ],
)
def test_no_acknowledged_record_is_lost_or_doubled_by_failovers(
    postgres: Cluster, tmp_path: Path, seconds: int, kept_min: int
) -> None:
    """The standby is synchronous, so it has whatever was acknowledged. No session is sealed."""
    pair = Pair(postgres.bin)
    try:
        _campaign(pair, tmp_path, seconds, kept_min)
    finally:
        pair.remove()


def _campaign(server: Cluster | Pair, tmp_path: Path, seconds: int, kept_min: int) -> None:
    world = PostgresWorld(server.url(), "hf", tmp_path / "node")
    notes = tmp_path / "notes"
    notes.mkdir()

    async def begin() -> None:
        store = await world.store()
        for number in range(SESSIONS):
            await create_session(
                store, SessionId(f"ops/s{number}"), instance=InstanceId(f"i{number}")
            )
        await store.close()

    asyncio.run(begin())
    writers = Writers(world, notes)
    try:
        time.sleep(3)
        done, dice, ends = Counter[str](), random.Random(11), time.monotonic() + seconds
        while time.monotonic() < ends and (not done or _kept(notes) < kept_min):
            done += _faults(server, writers, min(seconds, 60), dice)
        time.sleep(2)
    finally:
        writers.end()
        world.outsider.close()

    async def judge() -> list[str]:
        store, noted, found = await world.store(), _noted(notes), []
        for number in range(SESSIONS):
            name = SessionId(f"ops/s{number}")
            verdict = await store.verify_session(name)
            if verdict.verdict != "holds" or verdict.sealed:
                found.append(f"{name}: {verdict}")
            written = texts(await everything(await store.open(name)))[1:]
            found += wrong_with(written, noted.get(name, {}))
        await store.close()
        return found

    assert asyncio.run(judge()) == []
    if isinstance(server, Cluster):  # a crash takes back nothing that was synced
        with psycopg.connect(server.url()) as owner:
            assert owner.execute("select number from hf.era").fetchall() == [(1,)]
    states = Counter(note.state for noted in _noted(notes).values() for note in noted.values())
    print(dict(states), dict(done))  # noqa: T201  how much was tried
    assert states["kept"] > kept_min
