"""
A home in PostgreSQL against the same server without us: appends against bare INSERT and COMMIT, many
sessions against bare inserts over a pool, a turn against the bare commits that it makes, and against
LangGraph's saver; lists of 100,000 sessions, and two nodes against one.

The server is a fresh one on this disk, durable as it is by default, reached through a Unix socket.
Ours and the limit are measured in turns. Server and clients share the machine's cores.
"""

import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench import postgres
from bench.database_lists import lists
from bench.database_nodes import nodes
from bench.ground import Ground, Row, Times, compared, timed
from bench.journals import LINE_BYTES, new_journal, one
from bench.turns import SOURCE, instant_service
from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.runtime.verbs.accept import Incoming

PART = "PostgreSQL"
BLOCK = 25
SESSIONS, TASKS, POOL, ROUNDS = 1_000, 64, 16, 3
SHORT, LONG = 10, 1_000
COMMITS = 5  # of a turn with one tool call: accepted, started, answered, tool started, ended
PEERS = Path(__file__).parents[1] / ".venv-peers/bin/python"


def measure(ground: Ground) -> list[Row]:
    try:
        with postgres.server(ground.folder) as facts:
            return _measured(ground, facts)
    except postgres.NoPostgres as exc:
        return [Row(PART, "left out", "", note=str(exc))]


def _measured(ground: Ground, facts: str) -> list[Row]:
    bare = BareTable(facts)
    home = Home(ground, facts, "bench")
    rows = asyncio.run(_appends(ground, home, bare))
    rows.append(asyncio.run(_many(ground, home, facts)))
    turns = asyncio.run(_turns(ground, home, bare))
    rows += _turn_rows(turns, _langgraph(ground, facts))
    rows += asyncio.run(lists(ground, Home(ground, facts, "crowd"), facts, home))
    rows += nodes(ground, [Home(ground, facts, "one"), *Home(ground, facts, "two").pair(ground)])
    bare.close()
    return rows


class BareTable:
    """The limit: one row of as many bytes, by one prepared statement that commits."""

    def __init__(self, facts: str) -> None:
        self._db = psycopg.connect(f"{facts} dbname=postgres", autocommit=True)
        self._db.prepare_threshold = 0
        self._db.execute("create table bare (id bigint primary key, line bytea)")
        self._db.execute("alter table bare alter column line set storage external")
        self._next, self._line = 0, os.urandom(LINE_BYTES)

    def insert(self) -> None:
        self._next += 1
        self._db.execute("insert into bare values (%s, %s)", (self._next, self._line))

    def close(self) -> None:
        self._db.close()


class Home:
    """A home in a schema of its own, with its node's folder."""

    def __init__(self, ground: Ground, facts: str, name: str) -> None:
        host = facts.split("host=")[1].split(maxsplit=1)[0]
        self.place = DatabaseAddress(f"postgresql:///postgres?host={host}&user=bench", f"hf_{name}")
        self.folder = ground.fresh(f"node-{name}")
        init_home(self.place, self.folder)
        self._write_settings(self.folder)

    def _write_settings(self, folder: Path) -> None:
        (folder / "holdfast.toml").write_text(
            f'[storage]\nurl = "{self.place.url}"\nschema = "{self.place.schema}"\n'
        )

    def pair(self, ground: Ground) -> tuple["Home", "Home"]:
        """This node, and a second one on the same home."""
        import copy
        import shutil

        second = copy.copy(self)
        second.folder = ground.fresh("node-second")
        shutil.copytree(self.folder / "keys", second.folder / "keys")
        self._write_settings(second.folder)
        init_home(self.place, second.folder)
        return self, second

    @asynccontextmanager
    async def store(self) -> AsyncIterator[PostgresStore]:
        store = await PostgresStore.open_home(self.place, self.folder)
        try:
            yield store
        finally:
            await store.close()


async def seconds_of(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def _appends(ground: Ground, home: Home, bare: BareTable) -> list[Row]:
    async with home.store() as store:
        journal: Any = await new_journal(store, "one")
        limit: list[float] = []
        now: list[float] = []
        soon: list[float] = []
        for _ in range(max(1, ground.count(1500) // BLOCK)):
            limit += [timed(bare.insert) for _ in range(BLOCK)]
            now += [
                timed(lambda: journal.append_now(one, since=journal.head)) for _ in range(BLOCK)
            ]
            soon += [
                await seconds_of(lambda: journal.append(one, since=journal.head))
                for _ in range(BLOCK)
            ]
    ours, other, bare_times = Times(now), Times(soon), Times(limit)
    return [
        compared(
            PART,
            "append, synchronous, against bare INSERT and COMMIT, p50",
            ours.p50,
            bare_times.p50,
            at_most=1.6,
            note=f"{LINE_BYTES} bytes, one statement each; at p10 {ours.p10 / bare_times.p10:.2f} x",
        ),
        compared(
            PART,
            "append, asynchronous, against bare INSERT and COMMIT, p50",
            other.p50,
            bare_times.p50,
            note=f"off the event loop: two changes of thread; at p10 {other.p10 / bare_times.p10:.2f} x",
        ),
    ]


# --- many at once


async def _many(ground: Ground, home: Home, facts: str) -> Row:
    sessions, each = ground.count(SESSIONS, 64), 8
    pool = await Pool.open(facts)
    async with home.store() as store:
        journals: list[Any] = [await new_journal(store, f"m{number}") for number in range(sessions)]
        ours, limit = [], []
        for _ in range(ROUNDS):
            limit.append(sessions * each / await _by_tasks(sessions, each, pool.insert))
            ours.append(
                sessions
                * each
                / await _by_tasks(
                    sessions, each, lambda at: journals[at].append(one, since=journals[at].head)
                )
            )
    await pool.close()
    rate, bare = statistics.median(ours), statistics.median(limit)
    return compared(
        PART,
        f"{sessions:,} sessions by {TASKS} tasks, against bare inserts",
        rate,
        bare,
        at_least=1.5,
        ours_told=f"{rate:,.0f}/s",
        limit_told=f"{bare:,.0f}/s",
        note=f"limit: {TASKS} tasks, bare INSERT and COMMIT over a pool of {POOL} connections",
    )


async def _by_tasks(sessions: int, each: int, append: Callable[[int], Awaitable[object]]) -> float:
    async def work(start: int) -> None:
        for _ in range(each):
            for at in range(start, sessions, TASKS):
                await append(at)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for start in range(TASKS):
            group.create_task(work(start))
    return time.perf_counter() - started


class Pool:
    """Connections that tasks share, each with a prepared insert."""

    def __init__(self, free: "asyncio.Queue[psycopg.AsyncConnection[Any]]") -> None:
        self._free, self._line, self._next = free, os.urandom(LINE_BYTES), 0

    @classmethod
    async def open(cls, facts: str) -> "Pool":
        free: asyncio.Queue[psycopg.AsyncConnection[Any]] = asyncio.Queue()
        for _ in range(POOL):
            wire = await psycopg.AsyncConnection.connect(
                f"{facts} dbname=postgres", autocommit=True, prepare_threshold=0
            )
            free.put_nowait(wire)
        wire = await free.get()
        await wire.execute("create table pooled (id bigint primary key, line bytea)")
        await wire.execute("alter table pooled alter column line set storage external")
        free.put_nowait(wire)
        return cls(free)

    async def insert(self, _: int) -> None:
        wire = await self._free.get()
        self._next += 1
        try:
            await wire.execute("insert into pooled values (%s, %s)", (self._next, self._line))
        finally:
            self._free.put_nowait(wire)

    async def close(self) -> None:
        while not self._free.empty():
            await self._free.get_nowait().close()


# --- turns


async def _turns(ground: Ground, home: Home, bare: BareTable) -> dict[str, Times]:
    limit: list[float] = []
    found: dict[int, list[float]] = {SHORT: [], LONG: []}
    async with instant_service(home.folder) as service:

        async def say(session: str, text: str) -> None:
            await service.send(session, Incoming(text=text, source=SOURCE))

        for _ in range(LONG // 2):
            await say("bench/long", "say something")
        for number in range(ground.count(60)):
            for _ in range(SHORT // 2):
                await say(f"bench/short{number}", "say something")
            limit.append(timed(lambda: [bare.insert() for _ in range(COMMITS)]))
            for length, session in ((SHORT, f"bench/short{number}"), (LONG, "bench/long")):
                found[length].append(await seconds_of(lambda name=session: say(name, "look")))
    return {"bare": Times(limit), "short": Times(found[SHORT]), "long": Times(found[LONG])}


def _turn_rows(turns: dict[str, Times], saver: dict[str, float] | str) -> list[Row]:
    bare, short, long = turns["bare"], turns["short"], turns["long"]
    rows = [
        compared(
            PART,
            "turn with one tool call at 10 messages, against its five bare commits, p50",
            short.p50,
            bare.p50,
            at_most=3,
            note=f"at p10 {short.p10 / bare.p10:.2f} x",
        ),
        compared(PART, "turn at 1,000 messages against 10", long.p50, short.p50),
    ]
    if isinstance(saver, str):
        return [*rows, Row(PART, "turn against LangGraph's PostgreSQL saver", "", note=saver)]
    for length, ours, most in ((SHORT, short, 0.5), (LONG, long, 0.1)):
        rows.append(
            compared(
                PART,
                f"turn with one tool call at {length:,} messages, against LangGraph's saver",
                ours.p50,
                saver[str(length)] / 1e6,
                at_most=most,
                note="its PostgreSQL saver, on the same server, right after ours",
            )
        )
    return rows


def _langgraph(ground: Ground, facts: str) -> dict[str, float] | str:
    """Microseconds of a turn by its history's length, or why there are none."""
    if not PEERS.exists():
        return "needs the environment of `make bench-peers`"
    done = subprocess.run(
        [
            PEERS,
            Path(__file__).parent / "peer/langgraph_postgres.py",
            "turns",
            ground.fresh("saver"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "BENCH_POSTGRES": facts, "BENCH_SCALE": str(ground.scale)},
    )
    if done.returncode != 0:
        return f"failed: {done.stderr.strip().splitlines()[-1][:160]}"
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])["turn"]
    return found
