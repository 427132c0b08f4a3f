"""Both memories keep the port's contract."""

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.adapters.inmemory import InMemoryDisk, InMemoryMemory
from holdfast.adapters.sqlite.memory import SqliteMemory
from holdfast.testing.conformance.memory import MemorySuite


class InMemoryPlace:
    def __init__(self) -> None:
        self.disk = InMemoryDisk()

    def open(self) -> InMemoryMemory:
        return InMemoryMemory(self.disk)

    def forge(self, name: str, body: bytes) -> None:
        self.disk.memory[name] = (body, self.disk.memory[name][1])


class SqlitePlace:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = os.urandom(32)
        self.opened: list[SqliteMemory] = []

    def open(self) -> SqliteMemory:
        self.opened.append(SqliteMemory(self.path, lambda generation: (generation or 1, self.key)))
        return self.opened[-1]

    def forge(self, name: str, body: bytes) -> None:
        db = apsw.Connection(str(self.path))
        db.execute("UPDATE items SET body = ? WHERE id = ?", (body, name))
        db.close()

    def close(self) -> None:
        for memory in self.opened:
            memory.close()


class TestInMemoryMemory(MemorySuite):
    @pytest.fixture
    def place(self) -> InMemoryPlace:
        return InMemoryPlace()


class TestSqliteMemory(MemorySuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[SqlitePlace]:
        place = SqlitePlace(tmp_path / "memory.db")
        yield place
        place.close()
