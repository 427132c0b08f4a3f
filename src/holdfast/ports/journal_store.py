"""
Where sessions' histories live. Files, PostgreSQL and memory keep the same contract;
`holdfast.testing` has the suite that checks it.

A journal is a chain of records that only holders of the home's key can extend. There is one verb
that writes, `Journal.append`: it takes the session's write lock, brings the caller up to the head,
lets the caller decide what to add, and makes that durable. Locking is inside; no lock is held when
a call returns, so none can be held over a model call, a tool, a prompt or a summary.

What an error means for durability:

* `Refused`, or anything else raised by the caller's own `decide`: nothing of that caller was written; it passes through unchanged.
* `Busy`: the lock could not be had in time; nothing was written.   `NotSaved`: the write failed, and it is durably known that nothing was kept.
* `NewerVersion`: a genuine record that this program can't read is in the way; nothing was written.
* `Fenced`: the epoch given is not the session's driver's any more; nothing was written.
* `InDoubt`: the batch may or may not be durable; the handle is spent. Reopen: what is found then is the truth.
* `Untrusted` (`Takeover`, `BrokenChain`, `CutShort`): the session is sealed, durably; nothing was written. Sticky for this handle.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

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
    """How much of the journal an append looks at before it believes it."""

    SHORT = "short"
    """
    Identity and size of the active segment, and every record past the handle's own position. For
    writes close together.
    """

    FENCE = "fence"
    """
    Also re-hash the active segment's whole prefix: for whoever comes back from a model, a tool, a
    prompt or a summary.
    """


class Section(NamedTuple):
    """What `decide` is given, with the write lock held."""

    suffix: Sequence[Record]
    """
    Every record after `since`, others' and those that this very commit adds before ours, in order.
    All verified.
    """

    now: int
    """The `at` that the drafts will get: Unix milliseconds, never before the last record."""


Decide = Callable[[Section], Sequence[Draft]]
"""
Called once, with the lock held, in the caller's thread or another: pure, quick, never waiting. No
drafts: nothing is written, and the append returns the head as it is. All drafts of one decide are
kept or none is. Appends that wait together are decided one after another, and made durable by one
write and one sync.
"""


class Appended(NamedTuple):
    head: Head
    suffix: tuple[Record, ...]
    """
    Every record after `since`, ours included: fold these, and nothing else, to move on. Durable,
    all of them.
    """


class Claim(Protocol):
    """
    The right to drive one session's turns. Dies with the process; never taken from a living one.
    """

    @property
    def epoch(self) -> int:
        """Higher than that of any record of the journal when the claim was made."""
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
    One handle on one session's journal: its position, and its fence. Not shared between attempts;
    any number may exist.
    """

    @property
    def session(self) -> SessionId: ...
    @property
    def instance(self) -> InstanceId: ...
    @property
    def head(self) -> Head:
        """The last record this handle has verified or written."""
        ...

    @property
    def sealed(self) -> SealMark | None: ...

    def is_at_head(self) -> bool:
        """
        True: nobody's record was acknowledged after `head`, as of this call. False says nothing; an
        append tells.

        Takes no lock, waits for nothing, and checks no bytes: a way to leave out an append that
        would only look, never one that must verify.
        """
        ...

    async def load(self, fold: Callable[[Record], None], *, after: int = 0) -> Head:
        """
        Hand every verified record with seq > `after` to `fold`, in order, off the event loop;
        return the head reached.

        Bounded memory. Past the anchor nothing is handed on before it has been made durable (the
        lock is taken for that). An error raised by `fold` stops it. On a sealed session it hands
        over what verifies, up to the damage, and raises nothing. An instance that has ended is
        never accused: one whose bytes are gone or damaged is refused as `unknown`.
        """
        ...

    async def append(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        """
        The one verb that writes; see the module's law. `epoch` is a driver's; None is anyone's (a
        message, an answer, a cancel, a mirror).
        """
        ...

    def append_now(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        """
        The same, for synchronous callers; blocks the thread. Inside an append of the same thread it
        is refused as a bug, not deadlocked.
        """
        ...

    async def claim(self) -> Claim | None:
        """
        Try to become the session's driver; None when somebody else is. Never waits for them.
        Refused where it is sealed, as what sealed it.
        """
        ...

    async def seal(self, mark: SealMark) -> None:
        """
        Seal the session durably: its records are genuine but make no sense together. Idempotent;
        the first mark stays.
        """
        ...

    async def quarantine(self, kind: str, payload: bytes) -> str:
        """
        Keep bytes (a JSON object, UTF-8) that could not go into the journal, durably, beside it.
        Returns where, for people. Works on a sealed session.
        """
        ...

    async def quarantined(self) -> Sequence[str]:
        """
        Where everything kept so far is, oldest first: of the session, whichever of its instances
        kept it. It goes with the session when that is deleted.
        """
        ...

    async def read_quarantined(self, where: str) -> tuple[str, bytes]:
        """
        One of those: its kind, and the bytes that were kept.

        Refused as `unknown` when a life that was deleted kept them, BrokenChain when nobody of ours
        did, or they were changed since.
        """
        ...

    async def beyond(self, seq: int) -> Sequence[Record]:
        """
        Past the damage of a sealed session: records numbered after `seq` that somebody with the key
        wrote in this life. For people's eyes, never to be folded.

        Each verifies after the mac of the line before it. What is missing between them is not
        known, and an empty answer says nothing.
        """
        ...

    def lines(self) -> Iterator[bytes]:
        """
        The stored lines, verbatim, oldest first, as they lie: for export. Works on a sealed
        session, and without the key.
        """
        ...

    async def keep_output(self, data: bytes) -> str:
        """
        Keep a tool's full output durably beside the journal; returns its digest, by which `output`
        finds and checks it.
        """
        ...

    async def output(self, digest: str) -> bytes: ...

    def where(self) -> Sequence[Path]:
        """The journal's files, oldest first; empty for stores without files."""
        ...

    async def sync_anchor(self) -> None:
        """
        Make the anchor durable too: at a turn's end or pause. Once begun, a cancellation goes on
        after its end.
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
        Bear a session, whole or not at all: anchor, journal with its `first` records, then
        SessionCreated in the home's journal.

        A living session of that name: `Refused` with code `exists`. With origin `unseal` or
        `restore` it takes the place of the life before, whose bytes stay.
        """
        ...

    async def open(self, session: SessionId) -> Journal:
        """
        Verify closed segments by digest and the active one record by record. `Refused` with code
        `unknown` when there is none.
        """
        ...

    async def sessions(self) -> Sequence[SessionId]:
        """Every living session, sorted, from the home's journal."""
        ...

    async def current(self, session: SessionId) -> InstanceId | None:
        """
        The life that the home's journal names for this session now; None when there is no such
        session.
        """
        ...

    async def heads(
        self, *, after: SessionId | None = None, limit: int | None = None
    ) -> Sequence[tuple[SessionId, InstanceId, int]]:
        """
        Every living session, sorted, with the number of its last acknowledged record: a hint for
        caches, cheap, no journal is opened. Or one page of them.
        """
        ...

    async def unsettled(self) -> Sequence[SessionId]:
        """
        Living sessions that hold more than was acknowledged: a writer died in between, or writes
        just now. Opening one settles it. A hint, as above.
        """
        ...

    async def held_by(
        self, session: SessionId, *, wait_seconds: float | None = None
    ) -> Busy | None:
        """
        Who has the session's write lock and keeps it for so long, or as long as an append would
        wait. None: it can be had, or there is nothing to lock.

        For whoever would rather leave a session out than wait for it. It is only looked at: the
        next moment somebody may have it.
        """
        ...

    async def seals(self) -> Mapping[SessionId, SessionSealed]:
        """
        Of every living session that is sealed: the mark, from the home's journal, up to its anchor.
        Takes no lock. A sealed home fails as for every write.
        """
        ...

    async def home(self) -> Journal:
        """
        The home's own journal (grants, tokens, registry): same contract, never rotated by unseal.
        """
        ...

    async def delete(self, session: SessionId, *, by: str, at_seq: int | None = None) -> None:
        """
        End its life and remove its bytes. `Busy` while somebody writes, and with `at_seq` if that
        is not its last record any more; nobody writes in between.
        """
        ...

    async def close(self) -> None: ...
