"""The store, the index and the memory in PostgreSQL keep the contracts of their ports."""

import asyncio
from collections.abc import Callable, Generator

import pytest
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.lists.index import PostgresIndex
from holdfast.adapters.postgres.lists.memory import PostgresMemory
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.index import IndexSuite
from holdfast.testing.conformance.memory import MemorySuite
from holdfast.testing.conformance.store import JournalStoreSuite


@pytest.fixture
def world(
    postgres_world: Callable[[], PostgresWorld],
) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


class TestPostgresStore(JournalStoreSuite):
    @pytest.fixture
    def world(
        self, postgres_world: Callable[..., PostgresWorld]
    ) -> Generator[PostgresWorld, None, None]:
        """Its home is older than any clock of the suite: no session begins before the home."""
        world = postgres_world(clock=ManualClock(now_ms=0))
        yield world
        world.close()


class TestPostgresIndex(IndexSuite):
    @pytest.fixture
    def index(self, world: PostgresWorld) -> PostgresIndex:
        return PostgresIndex(asyncio.run(world.store()))


class PostgresPlace:
    def __init__(self, world: PostgresWorld) -> None:
        self._world = world

    def open(self) -> PostgresMemory:
        return PostgresMemory(asyncio.run(self._world.store()))

    def forge(self, name: str, body: bytes) -> None:
        self._world.rows("update memory set body = %s where id = %s", body, name)


class TestPostgresMemory(MemorySuite):
    @pytest.fixture
    def place(self, world: PostgresWorld) -> PostgresPlace:
        return PostgresPlace(world)
