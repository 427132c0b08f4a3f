"""
Stories over every store: a process is one opening of a home, a restart is the next one on the same
bytes.

`kill` drops a process as kill -9 would, as far as that can be done inside one: nothing it holds is
released in order.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import pytest
from proof.rigs.postgres_world import PostgresWorld

import holdfast
from holdfast.adapters.files import FileStore
from holdfast.adapters.files.notify import FileNotifier
from holdfast.adapters.inmemory import (
    InMemoryDisk,
    InMemoryIndex,
    InMemoryMemory,
    InMemoryNotifier,
    InMemoryStore,
)
from holdfast.adapters.inmemory.jobs import InMemoryJobs
from holdfast.adapters.postgres.lists.index import PostgresIndex
from holdfast.adapters.postgres.lists.memory import PostgresMemory
from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.adapters.sqlite.index import SqliteIndex
from holdfast.adapters.sqlite.memory import SqliteMemory
from holdfast.adapters.zones import find_zone
from holdfast.assembly.agents import delegates_of
from holdfast.assembly.home_path import folder_identity
from holdfast.assembly.lazy_adapters import LazyTools
from holdfast.home import Agent, Home, specs_from_agents
from holdfast.runtime.context import ModelTimes, Tuning, World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.service import Service
from holdfast.session.authority.policy import Policy
from holdfast.session.codec import decode
from holdfast.settings import Settings
from holdfast.testing import ManualClock, ScriptModel

alice = holdfast.MessageSource.local("alice")
bob = holdfast.MessageSource.local("bob")
carol = holdfast.MessageSource.local("carol")


@pytest.fixture(autouse=True)
def what_was_decided_is_what_the_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In every story: the state that a ledger moves to is the one that whoever reads the journal will
    fold, whichever way it got there.
    """
    monkeypatch.setattr(Ledger, "checks_folds", True)


class Effects:
    """The effects of tools, in order; survives restarts as the world does."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self._begun: dict[str, asyncio.Event] = {}

    def begun(self, what: str) -> asyncio.Event:
        """Set once the slow tool has begun that."""
        return self._begun.setdefault(what, asyncio.Event())

    def tools(self) -> list[Any]:
        @holdfast.tool
        def act(what: str) -> str:
            """Do something that can't be undone."""
            self.done.append(what)
            return f"did {what}"

        @holdfast.tool(contract="pure", mode="auto")
        def look(at: str = "") -> str:
            """Only look."""
            self.done.append(f"look {at}".strip())
            return f"saw {at}"

        @holdfast.tool(mode="auto")
        async def slow(what: str) -> str:
            """Takes until somebody lets it go."""
            self.done.append(f"began {what}")
            self.begun(what).set()
            await self.gates.setdefault(what, asyncio.Event()).wait()
            self.done.append(what)
            return f"did {what}"

        @holdfast.tool(mode="auto")
        def fail() -> str:
            """Always fails."""
            raise ValueError("no such thing")

        return [act, look, slow, fail, "ask_person", "now"]


class Stage:
    """One home through all its processes."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.place: DatabaseAddress | None = None  # of a home in PostgreSQL
        self.disk = InMemoryDisk()
        self.clock = ManualClock()
        self.effects = Effects()
        self.policy = Policy()
        self.tuning = Tuning()
        self.index = InMemoryIndex()
        self.model_times = ModelTimes(retry_seconds=0.0)
        self.watch_memory: Callable[[Any], Any] = lambda memory: memory

    def agent(self, lines: Sequence[dict[str, Any]], *, name: str = "ops") -> Agent:
        return Agent(name, model=ScriptModel(list(lines)), tools=self.effects.tools())

    def open(self, *agents: Agent, wrap: Callable[[Any], Any] | None = None) -> Home:
        specs, tools, models = specs_from_agents(agents)
        settings = Settings()

        @asynccontextmanager
        async def opened() -> AsyncGenerator[Service, None]:
            if self.kind == "memory":
                store: Any = InMemoryStore(self.disk, clock=self.clock)
                index: Any = InMemoryIndex()
                notifier: Any = InMemoryNotifier(self.disk)
                kept: Any = InMemoryMemory(self.disk)
            elif self.place is not None:
                store = await PostgresStore.open_home(
                    self.place, self.folder, clock=self.clock, ahead_ms=None
                )
                index, notifier = PostgresIndex(store), store.notices
                kept = PostgresMemory(store)
            else:
                store = await FileStore.open_home(self.folder, clock=self.clock)
                index = SqliteIndex(self.folder / "index.db", store.index_keys)
                notifier = FileNotifier(self.folder)
                kept = SqliteMemory(self.folder / "memory.db", store.memory_key)
            memory = self.watch_memory(kept)
            world = World(
                store=wrap(store) if wrap else store,
                models=models,
                tools=LazyTools(
                    tools, settings, memory, delegates=delegates_of(specs), now_ms=self.clock.now_ms
                ),
                notifier=notifier,
                clock=self.clock,
                index=index,
                memory=memory,
                recall_seconds=30.0,  # as slow as a test machine may be
                agents={**settings.agents(), **{each.name: each for each in specs}},
                default_agent=specs[0].name if specs else "assistant",
                policy=lambda: self.policy,
                folder_identity=folder_identity,
                zones=find_zone,
                model_times=self.model_times,
                jobs=InMemoryJobs(),
                tuning=self.tuning,
            )
            async with Service(world) as service:
                yield service

        return Home(opened)

    async def events(self, session: str) -> list[Any]:
        """Everything in the journal, decoded."""
        found: list[Any] = []
        async with self.open() as home:
            journal = await home.service.runtime.world.store.open(session)
            await journal.load(
                lambda record: found.append(decode(record.type, record.version, record.body))
            )
            await journal.close()
        return found


async def seen(home: Home, session: str, kind: type[Any], **fields: Any) -> Any:
    """Follow a session until an event of that kind, with those fields, is in its journal."""
    async for piece in home.follow(session, after=0):
        if isinstance(piece, holdfast.Record):
            event = decode(piece.type, piece.version, piece.body)
            if isinstance(event, kind) and all(
                getattr(event, name) == value for name, value in fields.items()
            ):
                return event
    raise AssertionError("following never ends")


POSTGRES_SHARE = 10  # one of so many stories is told over PostgreSQL in `make test`


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Every story is told over PostgreSQL too: a fixed share in `make test`, the others in
    `make test-postgres`.
    """
    for item in items:
        given = getattr(item, "callspec", None)
        if given is None or given.params.get("stage") != "postgres":
            continue
        if crc32(item.nodeid.encode()) % POSTGRES_SHARE:
            item.add_marker(pytest.mark.beyond_share)


@pytest.fixture(params=["memory", "files", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Stage, None, None]:
    if request.param != "postgres":
        yield Stage(request.param, tmp_path / "home")
        return
    cluster = request.getfixturevalue("postgres")
    stage = Stage("postgres", tmp_path / "home")
    schema = f"hf_{uuid4().hex[:12]}"
    world = PostgresWorld(cluster.url(), schema, stage.folder, clock=stage.clock)
    stage.place = world.place
    yield stage
    world.close()
