"""
Appends on their way to the server: a request of a caller, an item of one journal, and the letters
of the server's answer.

An item is frozen once it is framed. After a lost connection the same bytes are sent again, never
others: the chain makes that idempotent, since only one line can follow the head that it names.
"""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from holdfast.adapters.postgres.commit.binary import (
    BIGINT,
    BIGINT_ARRAY,
    BYTEA,
    BYTEA_ARRAY,
    INT,
    INT_ARRAY,
    TEXT,
    UUID_ARRAY,
    UUID_TYPE,
    bigint,
    bigint_array,
    bigint_of,
    bytea_array,
    bytea_array_of,
    int_array,
    integer,
    uuid_array,
)
from holdfast.adapters.postgres.server import PreparedStatement, Wire
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.adapters.postgres.session.position import Position
from holdfast.adapters.postgres.session.tail import Tail
from holdfast.errors import HoldfastError
from holdfast.journal.record import Head, Record
from holdfast.ports.journal_store import Appended, Check, Decide

if TYPE_CHECKING:
    from holdfast.adapters.postgres.session.journal import PostgresJournal


class AppendRequest(ABC):
    """One append of a caller: what it asks, and then its outcome."""

    loop: asyncio.AbstractEventLoop | None = None  # the outcome is delivered there, if named

    def __init__(
        self,
        handle: "PostgresJournal",
        decide: Decide,
        *,
        since: Head,
        epoch: int | None,
        check: Check,
    ) -> None:
        self.handle, self.decide = handle, decide
        self.since, self.epoch, self.check = since, epoch, check
        # Taken once: by the lane that begins the append, or by a caller that takes it back.
        self._begun = threading.Lock()
        # Filled while the item is framed; filled again if the item is framed again.
        self.suffix: list[Record] = []

    def begin(self) -> bool:
        """Whether the append may begin: its caller has not taken it back."""
        return self._begun.acquire(blocking=False)

    def take_back(self) -> bool:
        """Whether nothing of the append has begun. Then nothing of it ever will."""
        return self._begun.acquire(blocking=False)

    @abstractmethod
    def deliver(self, outcome: Appended | BaseException) -> None:
        """Give the caller its outcome."""


class BlockingAppend(AppendRequest):
    """An append that a thread waits for."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._outcome: Future[Appended] = Future()

    def deliver(self, outcome: Appended | BaseException) -> None:
        _settle(self._outcome, outcome)

    def result(self) -> Appended:
        return self._outcome.result()


class AwaitedAppend(AppendRequest):
    """An append that a task waits for. Only the task's event loop touches the outcome."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[Appended] = self.loop.create_future()
        self._is_delivered = False

    def deliver(self, outcome: Appended | BaseException) -> None:
        self._is_delivered = True
        if not self._outcome.done():  # cancelled together with its task
            _settle(self._outcome, outcome)

    async def result(self) -> Appended:
        """
        Wait for the outcome. A cancelled caller takes back what has not begun; otherwise its
        cancellation continues once the outcome is known.
        """
        try:
            return await self._outcome
        except asyncio.CancelledError:
            if not self.take_back():
                await self._until_delivered()
            raise

    async def _until_delivered(self) -> None:
        while not self._is_delivered:
            self._outcome = asyncio.get_running_loop().create_future()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._outcome


def _settle(
    future: "Future[Appended] | asyncio.Future[Appended]", outcome: Appended | BaseException
) -> None:
    if isinstance(outcome, StopIteration):  # no future takes it, and every caller gets an outcome
        error = RuntimeError("decide raised StopIteration")
        error.__cause__ = outcome
        future.set_exception(error)
    elif isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class Outcomes:
    """The outcomes of one lane on their way to its callers."""

    def __init__(self) -> None:
        self._by_loop: dict[
            asyncio.AbstractEventLoop, list[tuple[AppendRequest, Appended | BaseException]]
        ] = {}

    def give(self, request: AppendRequest, outcome: Appended | BaseException) -> None:
        """The outcome of one request. Callers on an event loop get theirs with `deliver`."""
        request.handle.forget(request)
        if request.loop is None:
            request.deliver(outcome)
        else:
            self._by_loop.setdefault(request.loop, []).append((request, outcome))

    def deliver(self) -> None:
        """Wake each event loop once for all of its callers."""
        outcomes, self._by_loop = self._by_loop, {}
        for loop, given in outcomes.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
                loop.call_soon_threadsafe(_deliver_all, given)


def _deliver_all(given: Sequence[tuple[AppendRequest, Appended | BaseException]]) -> None:
    for request, outcome in given:
        request.deliver(outcome)


@dataclass
class FramedAppend:
    """Lines for one journal, after the head that they were decided on."""

    tail: Tail
    after: Head
    epoch: int
    claim: UUID | None
    prefix: bytes | None
    position: Position  # after these lines
    requests: list[AppendRequest] = field(default_factory=list)
    rest: list[AppendRequest] = field(default_factory=list)  # wait for the next item
    lines: list[bytes] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    segment: tuple[int, int] | None = None


class Answer(NamedTuple):
    letter: str
    seq: int | None = None
    mac: bytes | None = None
    epoch: int | None = None
    suffix: Sequence[bytes] | None = None


ITEMS_MAX = 256  # in one statement
BARE_ANSWERS = {letter: Answer(letter) for letter in "kmfsgbcx"}
KEPT = BARE_ANSWERS["k"]


def is_kept(answer: Answer | HoldfastError) -> bool:
    return isinstance(answer, Answer) and answer.letter == "k"


_APPEND_ONE = PreparedStatement(
    "holdfast_append_one",
    "select outcome, seq, mac, epoch, suffix from "
    "hf.append_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
    (
        *(BIGINT, BIGINT, BYTEA, BIGINT, UUID_TYPE, BYTEA_ARRAY, BYTEA, BIGINT, BYTEA),
        *(INT, BIGINT, BIGINT, TEXT),
    ),
)
_APPEND_MANY = PreparedStatement(
    "holdfast_append_many",
    "select hf.append_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
    (
        *(BIGINT_ARRAY, BIGINT_ARRAY, BYTEA_ARRAY, BIGINT_ARRAY, UUID_ARRAY, INT_ARRAY),
        *(BYTEA_ARRAY, BIGINT_ARRAY, BYTEA_ARRAY, INT_ARRAY, BIGINT_ARRAY, INT_ARRAY),
        *(INT_ARRAY, BYTEA_ARRAY, BIGINT, TEXT),
    ),
)


def send_one(wire: Wire, item: FramedAppend, *, timeline: str, ahead_ms: int | None) -> Answer:
    """Send the lines of one journal: one round trip, one commit."""
    number, first_seq = item.segment or (None, None)
    letter, seq, mac, epoch, suffix = wire.ask(
        _APPEND_ONE,
        (
            bigint(item.tail.journal),
            bigint(item.after.seq),
            item.after.mac,
            bigint(item.epoch),
            None if item.claim is None else item.claim.bytes,
            bytea_array(item.lines),
            item.position.fence.mac,
            bigint(item.position.fence.at),
            item.prefix,
            integer(number),
            bigint(first_seq),
            bigint(ahead_ms),
            timeline.encode(),
        ),
    )
    if letter == b"k":
        return KEPT
    return Answer(
        (letter or b"").decode(), bigint_of(seq), mac, bigint_of(epoch), bytea_array_of(suffix)
    )


def send_many(
    wire: Wire, items: Sequence[FramedAppend], *, timeline: str, ahead_ms: int | None
) -> str:
    """
    Send the lines of many journals, sorted by journal, as one statement: one round trip, one
    commit. Return one letter for each.
    """
    segments = [item.segment or (None, None) for item in items]
    opens = any(number is not None for number, _ in segments)
    fenced = any(item.prefix is not None for item in items)
    (said,) = wire.ask(
        _APPEND_MANY,
        (
            bigint_array([item.tail.journal for item in items]),
            bigint_array([item.after.seq for item in items]),
            bytea_array([item.after.mac for item in items]),
            bigint_array([item.epoch for item in items]),
            uuid_array([item.claim for item in items]),
            int_array([len(item.lines) for item in items]),
            bytea_array([item.position.fence.mac for item in items]),
            bigint_array([item.position.fence.at for item in items]),
            bytea_array([item.prefix for item in items]) if fenced else None,
            int_array([number for number, _ in segments]) if opens else None,
            bigint_array([first_seq for _, first_seq in segments]) if opens else None,
            int_array([n for n, item in enumerate(items, 1) for _ in item.lines]),
            int_array([place for item in items for place in range(1, len(item.lines) + 1)]),
            bytea_array([line for item in items for line in item.lines]),
            bigint(ahead_ms),
            timeline.encode(),
        ),
    )
    letters = (said or b"").decode(errors="replace")
    if len(letters) != len(items) or not BARE_ANSWERS.keys() >= set(letters):
        # Not our function's answer. Each append is asked for again, with the same bytes.
        raise Lost(f"{len(items)} appends were answered with {letters[:ITEMS_MAX]!r}")
    return letters


def was_kept_before(wire: Wire, item: FramedAppend, answer: Answer) -> bool:
    """
    After a definite answer to a repeated send: whether the first send had been kept.

    Under the row's lock the server said that the head, the epoch or the seal is another one now.
    So the first send can't be kept any more, and what stands at its place is final. The lock is
    written to the log, so that the answer waited for a synchronous standby as a commit does.
    """
    if not item.lines:
        return False
    if answer.letter == "m" and answer.suffix:
        return list(answer.suffix[: len(item.lines)]) == item.lines
    found = wire.one(
        "select line from hf.record where journal = %s and seq = %s",
        (item.tail.journal, item.after.seq + 1),
    )
    return found is not None and found[0] == item.lines[0]
