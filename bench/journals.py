"""
Homes and journals to measure on. Long journals are laid down by direct writing of whole segments,
framed by the very code that appends (`Fence.write`), and then opened by the store like any other:
building a million records by a million syncs would measure nothing new.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from holdfast.adapters.files import FileStore
from holdfast.adapters.files.session.journal import FileJournal
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Draft, Section

BODY_TEXT = "The service was restarted twice during the night; nothing is wrong with it now, as far as its log of the last hour tells. "
BODY = msgspec.json.encode(
    {"turn": "t12", "call": "c-t12-3-0", "run": 1, "outcome": "ok", "text": BODY_TEXT * 2}
)
DRAFT = Draft("tool_finished", 1, BODY)
LINE_BYTES = len(BODY) + 190  # with header and mac, give or take a digit


@asynccontextmanager
async def open_store(path: Path, **settings: int) -> AsyncIterator[FileStore]:
    store = await FileStore.open_home(path, **settings)
    try:
        yield store
    finally:
        await store.close()


async def new_journal(store: FileStore, name: str) -> FileJournal:
    session = SessionId(f"bench/{name}")
    return await store.create(
        session,
        InstanceId(name.replace("/", "-")),
        [Draft("session_born", 1, b"{}")],
        origin="created",
        by="bench",
    )


def one(_: Section) -> list[Draft]:
    return [DRAFT]


async def long_journal(store: FileStore, name: str, records: int) -> FileJournal:
    """A journal of that many records, verified by the store's own opening."""
    journal = await new_journal(store, name)
    lay_down(journal, records)
    await journal.close()
    return await store.open(SessionId(f"bench/{name}"))


def lay_down(journal: FileJournal, records: int) -> None:
    """Fill segments as appends would have, one write each, and move the anchor."""
    files, fence = journal.files, journal.fence
    now, writer = fence.at, "bench"
    with files.locked() as folder:
        fd = files.open_segment(folder, fence.number, os.O_RDWR)
        lines: list[bytes] = []
        start = fence.offset
        while fence.seq < records:
            if fence.offset >= files.segment_bytes:
                lines.append(fence.close_segment(at=now, writer=writer))
                os.pwrite(fd, b"".join(lines), start)
                os.close(fd)
                fence.enter_next()
                fd = os.open(
                    files.name(fence.number),
                    os.O_RDWR | os.O_CREAT | os.O_EXCL,
                    0o600,
                    dir_fd=folder,
                )
                lines, start = (
                    [fence.open_segment(generation=files.generation(), at=now, writer=writer)],
                    0,
                )
            lines.append(fence.write(DRAFT, at=now, epoch=0, writer=writer)[0])
        os.pwrite(fd, b"".join(lines), start)
        os.fsync(fd)
        os.close(fd)
        os.fsync(folder)
        anchor = files.anchor.read(files.keys)
        assert anchor is not None
        files.anchor.write(files.anchor_at(fence, anchor.counter + 1, 0), files.keys)
        files.anchor.sync()
    os.sync()


def bytes_of(journal: FileJournal) -> int:
    return sum(Path(path).stat().st_size for path in journal.where())
