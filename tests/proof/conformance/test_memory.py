"""The store in memory keeps the port's contract."""

import pytest

from holdfast.testing.conformance.store import JournalStoreSuite
from holdfast.testing.worlds import MemoryWorld


class TestInMemoryStore(JournalStoreSuite):
    @pytest.fixture
    def world(self) -> MemoryWorld:
        return MemoryWorld()
