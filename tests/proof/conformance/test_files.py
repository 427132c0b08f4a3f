"""The store of files keeps the port's contract."""

from collections.abc import Generator
from pathlib import Path

import pytest
from proof.rigs.files_world import FilesWorld

from holdfast.testing.conformance.store import JournalStoreSuite


class TestFileStore(JournalStoreSuite):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Generator[FilesWorld, None, None]:
        world = FilesWorld(tmp_path / "home")
        yield world
        world.close()
