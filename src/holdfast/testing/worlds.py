"""
Worlds for the conformance suite: one home that several processes share, and changes to its bytes by
other programs.

A store joins the suite by providing a world. Nothing in `World` depends on files: rows of a table
can be copied, put back and changed too.
"""

from typing import Any, Protocol

from holdfast.adapters.inmemory import InMemoryDisk, InMemoryStore
from holdfast.ids import SessionId
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import Draft, JournalStore


class StoreWorld(Protocol):
    """One home, and the changes that other programs can make to it."""

    async def store(self, *, clock: Clock | None = None) -> JournalStore:
        """Start a new process on this home."""
        ...

    async def die_driving(self, session: SessionId) -> int:
        """
        Let another process become the session's driver and die without a release. Return its epoch.
        """
        ...

    async def flip(self, session: SessionId, needle: bytes) -> None:
        """
        Change one byte of the stored record whose body contains `needle`. Nothing else changes,
        lengths included.
        """
        ...

    async def forge(self, session: SessionId, draft: Draft) -> None:
        """Append a row of perfect shape, made without the key."""
        ...

    async def copy(self, session: SessionId) -> Any:
        """Return the journal's current bytes, without its anchor."""
        ...

    async def put_back(self, session: SessionId, copy: Any) -> None:
        """Replace the journal's bytes by an earlier copy, of this instance or of another."""
        ...

    async def wipe_newer_slot(self, session: SessionId) -> None:
        """Zero the newer half of the journal's anchor."""
        ...

    async def copy_older_slot(self, session: SessionId) -> None:
        """Copy the older half of the journal's anchor over the newer."""
        ...

    def read_quarantined(self, where: str) -> bytes:
        """Return the bytes at a path that `quarantine` returned."""
        ...


class MemoryWorld:
    def __init__(self) -> None:
        self.disk = InMemoryDisk()

    async def store(self, *, clock: Clock | None = None) -> JournalStore:
        return InMemoryStore(self.disk, clock=clock)

    async def die_driving(self, session: SessionId) -> int:
        process = InMemoryStore(self.disk)
        claim = await (await process.open(session)).claim()
        assert claim is not None
        process.crash()
        return claim.epoch

    async def flip(self, session: SessionId, needle: bytes) -> None:
        entries = self.disk.living(session).entries
        (seq,) = (seq for seq, entry in enumerate(entries, 1) if needle in entry.body)
        self.disk.flip(session, seq)

    async def forge(self, session: SessionId, draft: Draft) -> None:
        self.disk.forge(session, draft)

    async def copy(self, session: SessionId) -> Any:
        return self.disk.copy(session)

    async def put_back(self, session: SessionId, copy: Any) -> None:
        self.disk.put_back(session, copy)

    async def wipe_newer_slot(self, session: SessionId) -> None:
        self.disk.wipe_newer_slot(session)

    async def copy_older_slot(self, session: SessionId) -> None:
        self.disk.copy_older_slot(session)

    def read_quarantined(self, where: str) -> bytes:
        for stored in self.disk.instances.values():
            for number, (kind, payload) in enumerate(stored.quarantine):
                if where == f"memory:{stored.session}/{stored.instance}/quarantine/{number}-{kind}":
                    return payload
        raise LookupError(where)
