"""A home of files in a folder of its own, closed when the test ends."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.adapters.files import FileStore
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Decide, Draft, Journal, Record

OPS = SessionId("ops/api")
INSTANCE = InstanceId("i1")


class Files:
    """Steps that the tests of this folder share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / "sessions/ops/api"

    @asynccontextmanager
    async def store(self, **settings: Any) -> AsyncIterator[FileStore]:
        store = await FileStore.open_home(self.path, **settings)
        try:
            yield store
        finally:
            await store.close()

    async def create(self, notes: int = 20, **settings: Any) -> None:
        """`ops/api` with so many notes, all acknowledged, and everybody gone."""
        async with self.store(**settings) as store:
            journal = await store.create(OPS, INSTANCE, [], origin="created", by="tests")
            for number in range(notes):
                await journal.append(self.says(number), since=journal.head)
            await journal.close()

    def open_descriptors(self) -> list[str]:
        """The files of this home that the process has open. Other tests' files do not count."""
        names = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # the descriptor of this very listing
                names.append(str(descriptor.readlink()))
        return sorted(name for name in names if Path(name).is_relative_to(self.path))

    @staticmethod
    def says(*numbers: int) -> Decide:
        return lambda _: [Draft("note", 1, b'{"n":%d}' % number) for number in numbers]

    @staticmethod
    async def numbers(journal: Journal) -> list[int]:
        records: list[Record] = []
        await journal.load(records.append)
        return Files.of(records)

    @staticmethod
    def of(records: Sequence[Record]) -> list[int]:
        return [
            msgspec.json.decode(record.body)["n"] for record in records if record.type == "note"
        ]

    @property
    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "home")
