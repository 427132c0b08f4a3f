"""
Stores of sessions' histories. Files, PostgreSQL and memory keep the same contract;
`holdfast.testing` has the suite that checks it.

A journal is a chain of records that only holders of the home's key can extend. One verb writes,
`Journal.append`: it takes the session's write lock, brings the caller up to the head, lets the
caller decide the new records, and makes them durable. Locking is inside. No lock is held when a
call returns, so none can be held over a model call, a tool, a prompt or a summary.

Errors and their meaning for durability:

* `Refused`, or any other error raised by the caller's `decide`: nothing of that caller was written;
  the error passes through unchanged.
* `Busy`: the lock could not be had in time; nothing was written. `NotSaved`: the write failed, and
  it is durably known that nothing was kept.
* `NewerVersion`: a genuine record that this program cannot read is in the way; nothing was written.
* `Fenced`: the given epoch is no longer that of the session's driver; nothing was written.
* `InDoubt`: the batch may or may not be durable; the handle is spent. Reopen the journal: the
  records found then are the truth.
* `Untrusted` (`Takeover`, `BrokenChain`, `CutShort`): the session is sealed, durably; nothing was
  written. Sticky for this handle.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from holdfast.errors import Busy
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Draft, Head, Record
from holdfast.session.home.events import SessionSealed

__all__ = [
    "Appended",
    "Check",
    "Claim",
    "Decide",
    "Draft",
    "Head",
    "Journal",
    "JournalStore",
    "Record",
    "SealMark",
    "Section",
]


class Check(Enum):
    """How much of the journal an append verifies first."""

    SHORT = "short"
    """
    Identity and size of the active segment, and every record past the handle's own position. For
    writes close together.
    """

    FENCE = "fence"
    """
    Also re-hash the active segment's whole prefix. For callers that return from a model, a tool, a
    prompt or a summary.
    """


class Section(msgspec.Struct, frozen=True):
    """The input of `decide`."""

    suffix: Sequence[Record]
    """
    Every record after `since`, in order and verified. It includes records of others, and those that
    this commit adds before ours.
    """

    now: int
    """The `at` that the drafts will get: Unix milliseconds, never before the last record."""


Decide = Callable[[Section], Sequence[Draft]]
"""
Called with the suffix up to a head, in the caller's thread or another. It is pure, quick and never
waits. It may be called again with a longer suffix if another writer was faster; then nothing of the
earlier call was kept. Drafts are kept only if they follow the head that they were decided on.
Without drafts nothing is written, and the append returns the current head. All drafts of one
decide are kept, or none. Appends that wait together are decided one after another, and made durable
by one write and one sync.
"""


class Appended(msgspec.Struct, frozen=True):
    head: Head
    suffix: tuple[Record, ...]
    """
    Every record after `since`, ours included, all durable. Fold these, and nothing else, to move
    on.
    """


Heads = Sequence[tuple[SessionId, InstanceId, int]]
"""Sessions with their instances and the numbers of their last acknowledged records."""


class Claim(Protocol):
    """
    The right to drive one session's turns. Over files it ends with the process and is never taken
    from a living one. A store whose claims are leases may hand it to another process once the lease
    is over; the epoch then keeps the old driver from writing.
    """

    @property
    def epoch(self) -> int:
        """Higher than the epoch of any record in the journal when the claim was made."""
        ...

    async def release(self) -> None:
        """Idempotent."""
        ...


class SealMark(msgspec.Struct, frozen=True):
    """Why a session refuses writes until a person unseals it."""

    code: str  # takeover, broken, cut_short
    detail: str
    at_seq: int | None = None  # the last record that verified


class Journal(Protocol):
    """
    One handle on one session's journal: its position and its fence. Attempts do not share a handle;
    any number may exist.
    """

    @property
    def session(self) -> SessionId: ...
    @property
    def instance(self) -> InstanceId: ...
    @property
    def head(self) -> Head:
        """The last record that this handle has verified or written."""
        ...

    @property
    def sealed(self) -> SealMark | None: ...

    async def is_at_head(self) -> bool:
        """
        True if no record was acknowledged after `head`, as of this call. False proves nothing: only
        an append finds out.

        Takes no lock and verifies no bytes; it costs at most one round trip. Use it to skip an
        append that would only catch up, never one that must verify.
        """
        ...

    async def load(self, fold: Callable[[Record], None], *, after: int = 0) -> Head:
        """
        Hand every verified record with seq > `after` to `fold`, in order, off the event loop.
        Return the head reached.

        Memory is bounded. Past the anchor, a record is made durable before it is handed on (the
        lock is taken for that). An error raised by `fold` stops the load. On a sealed session, load
        hands over the records that verify, up to the damage, and raises nothing. An ended instance
        is never reported as damaged: if its bytes are gone or damaged, it is refused as `unknown`.
        """
        ...

    async def append(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        """
        The one verb that writes; see the module docstring. `epoch` is a driver's; None is for every
        other participant (a message, an answer, a cancel, a mirror).
        """
        ...

    def append_now(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        """
        Like `append`, for synchronous callers; blocks the thread. Inside an append of the same
        thread it is refused as a bug instead of deadlocking.
        """
        ...

    async def claim(self) -> Claim | None:
        """
        Try to become the session's driver. Return None if there is another driver; never wait for
        it. On a sealed session, raise the error that sealed it.
        """
        ...

    async def seal(self, mark: SealMark) -> None:
        """
        Seal the session durably: its records are genuine but contradict each other. Idempotent; the
        first mark stays.
        """
        ...

    async def quarantine(self, kind: str, payload: bytes) -> str:
        """
        Keep bytes (a JSON object, UTF-8) that could not go into the journal, durably, beside it.
        Return the place, for people. Works on a sealed session.
        """
        ...

    async def quarantined(self) -> Sequence[str]:
        """
        The places of everything in quarantine, oldest first, from all instances of the session.
        Deleting the session deletes them.
        """
        ...

    async def read_quarantined(self, where: str) -> tuple[str, bytes]:
        """
        Return one quarantined item: its kind and its bytes.

        Raise Refused (`unknown`) if a deleted instance kept it. Raise BrokenChain if it was not
        written with our key, or was changed since.
        """
        ...

    async def authentic_after(self, seq: int) -> Sequence[Record]:
        """
        Records after `seq` past the damage of a sealed session, written in this instance with our
        key. They are for people to read and are never folded.

        Each verifies after the mac of the line before it. Records may be missing between them, and
        an empty result proves nothing.
        """
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """
        The stored lines, verbatim, oldest first: for export. Works on a sealed session, and without
        the key.
        """
        ...

    async def keep_output(self, data: bytes) -> str:
        """
        Keep a tool's full output durably beside the journal. Return its digest, by which `output`
        finds and checks it.
        """
        ...

    async def output(self, digest: str) -> bytes: ...

    def where(self) -> Sequence[str]:
        """The paths of the journal's files, oldest first; empty for stores without files."""
        ...

    def store_name(self) -> str | None:
        """The name of a store without files, such as `postgres:SCHEMA`; None if `where` tells."""
        ...

    async def sync_anchor(self) -> None:
        """
        Make the anchor durable too, at a turn's end or pause. Once begun, it completes before a
        cancellation continues.
        """
        ...

    async def close(self) -> None:
        """Idempotent; waits for a running append."""
        ...


class JournalStore(Protocol):
    """All sessions of one home."""

    async def create(
        self,
        session: SessionId,
        instance: InstanceId,
        first: Sequence[Draft],
        *,
        origin: str,
        by: str,
    ) -> Journal:
        """
        Create a session, whole or not at all: anchor, journal with its `first` records, then
        SessionCreated in the home's journal.

        If a session of that name exists, raise `Refused` with code `exists`. With origin `unseal`
        or `restore`, the new instance replaces the one before, whose bytes stay.
        """
        ...

    async def open(self, session: SessionId) -> Journal:
        """
        Verify closed segments by digest and the active one record by record. Raise `Refused` with
        code `unknown` if the session does not exist.
        """
        ...

    async def sessions(self) -> Sequence[SessionId]:
        """Every existing session, sorted, from the home's journal."""
        ...

    async def current(self, session: SessionId) -> InstanceId | None:
        """
        The instance that the home's journal names for this session now; None if the session does
        not exist.
        """
        ...

    async def heads(self, *, after: SessionId | None = None, limit: int | None = None) -> Heads:
        """
        Every existing session, sorted, with the number of its last acknowledged record, or one page
        of them. A cheap hint for caches: no journal is opened.
        """
        ...

    async def heads_of(self, sessions: Collection[SessionId]) -> Heads:
        """
        Like `heads`, of those of these sessions that exist. The cost does not depend on the number
        of other sessions.
        """
        ...

    async def recent_heads(self, *, within_seconds: float) -> Heads | None:
        """
        Like `heads`, of at least every session that was created or written to within this time:
        maybe of all. None if the store does not remember that long.
        """
        ...

    async def instances(self, sessions: Collection[SessionId]) -> Mapping[SessionId, InstanceId]:
        """Like `current`, of those of these sessions that exist."""
        ...

    async def unsettled(self) -> Sequence[SessionId]:
        """
        Existing sessions that hold more records than were acknowledged: a writer died in between,
        or writes just now. Opening one settles it. A hint, like `heads`.
        """
        ...

    async def held_by(
        self, session: SessionId, *, wait_seconds: float | None = None
    ) -> Busy | None:
        """
        Report the holder of the session's write lock if it keeps the lock for so long, or for as
        long as an append would wait. Return None if the lock can be had, or there is nothing to
        lock.

        For callers that skip a locked session instead of waiting. It is only a snapshot: the lock
        may be taken the next moment.
        """
        ...

    async def seals(self) -> Mapping[SessionId, SessionSealed]:
        """
        The marks of all sealed sessions, from the home's journal, up to its anchor. Takes no lock.
        A sealed home fails as for every write.
        """
        ...

    async def home(self) -> Journal:
        """
        The home's own journal (grants, tokens, registry): same contract, never rotated by unseal.
        """
        ...

    def gauges(self) -> Mapping[str, tuple[str, float]]:
        """
        Numbers for operators by name, each with a sentence that explains it. A name that ends with
        `_total` only grows while the process runs. Empty for a store without a server.
        """
        ...

    async def delete(self, session: SessionId, *, by: str, at_seq: int | None = None) -> None:
        """
        End the session's instance and remove its bytes. Raise `Busy` while another writer holds the
        lock, or if `at_seq` is given and is no longer the last record. Nothing is written in
        between.
        """
        ...

    async def close(self) -> None: ...
