"""Both indexes keep the port's contract."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.inmemory import InMemoryIndex
from holdfast.adapters.sqlite.index import SqliteIndex
from holdfast.testing.conformance.index import IndexSuite


class TestInMemoryIndex(IndexSuite):
    @pytest.fixture
    def index(self) -> InMemoryIndex:
        return InMemoryIndex()


_KEY = os.urandom(32)


def _keys() -> tuple[bytes, ...]:
    return (_KEY,)


class TestSqliteIndex(IndexSuite):
    @pytest.fixture
    def index(self, tmp_path: Path) -> Iterator[SqliteIndex]:
        index = SqliteIndex(tmp_path / "index.db", _keys)
        yield index
        index.close()


class TestBypassedSqliteIndex(IndexSuite):
    """A file that can't be used at all: what this process was told, it still knows."""

    @pytest.fixture
    def index(self, tmp_path: Path) -> Iterator[SqliteIndex]:
        (tmp_path / "index.db").mkdir()
        index = SqliteIndex(tmp_path / "index.db", _keys)
        yield index
        index.close()
