"""
A lane: one thread and one connection that make appends of this process durable.

It takes whatever waits, lets each caller decide on the head that this process knows, and sends the
lines of many sessions as one statement. If another writer was faster, the server answers with its
records; they are verified, and the callers decide again with the row locked. If the connection is
lost, the same bytes are sent again until the answer is definite.

    callers -> queue -> decide, frame -> one statement -> k: acknowledge
                           ^                              m: verify, lock, decide again
                           +---- never while undecided -- lost: send the same bytes again

No caller's cancellation reaches the connection.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from holdfast.adapters.postgres.commit.append import (
    BARE_ANSWERS,
    ITEMS_MAX,
    Answer,
    AppendRequest,
    FramedAppend,
    Outcomes,
    is_kept,
    send_many,
    send_one,
    was_kept_before,
)
from holdfast.adapters.postgres.commit.refusal import (
    check_moved,
    in_doubt,
    not_lost,
    refusal,
    unclaimed,
    unread,
)
from holdfast.adapters.postgres.home.history import connect_again
from holdfast.adapters.postgres.home.registry import with_new_keys
from holdfast.adapters.postgres.home.seals import read_or_seal, seal_now
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_errors import (
    ANOTHER_TIMELINE,
    NOT_COMPARED,
    Lost,
    RowInTheWay,
)
from holdfast.adapters.postgres.session.tail import Tail, missing, taken_over
from holdfast.errors import Busy, Fenced, HoldfastError, InDoubt, InvariantBroken, Untrusted
from holdfast.journal.record import Head, check_draft
from holdfast.journal.segment import is_own
from holdfast.ports.journal_store import Appended, Check, Section

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

T = TypeVar("T")

BATCH_BYTES_MAX = 4 * 1024 * 1024  # of one item
RESOLVE_SECONDS = 60.0  # a failover takes less; then the outcome is in doubt
_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)


class Lane:
    def __init__(self, store: "PostgresStore") -> None:
        self._store = store
        self._queue: queue.SimpleQueue[AppendRequest | Callable[[], None] | None] = (
            queue.SimpleQueue()
        )
        self._wire: Wire | None = None
        self._was_connected = False
        self._joined_at = 0.0
        self._waits_for: HoldfastError | None = None  # a node that has not compared its anchors
        self._outcomes = Outcomes()
        # For operators; the lane's thread alone writes them.
        self.commits = self.appends = self.retries = self.in_doubt = self.fenced = 0
        self._thread = threading.Thread(target=self._run, name="holdfast-lane", daemon=True)
        self._thread.start()

    # --- For other threads

    def append(self, request: AppendRequest) -> None:
        self._refuse_nesting()
        self._queue.put(request)

    def call(self, work: Callable[[Wire], T]) -> "Future[T]":
        """Run work on the lane's connection, after what waits already."""
        return self._put(lambda: work(self.wire()))

    def passed(self) -> "Future[None]":
        """Done once everything that waits now has its outcome. It needs no connection."""
        return self._put(lambda: None)

    def _put(self, work: Callable[[], T]) -> "Future[T]":
        outcome: Future[T] = Future()

        def run() -> None:
            if not outcome.set_running_or_notify_cancel():
                return
            try:
                outcome.set_result(work())
            except BaseException as exc:  # noqa: BLE001  the caller gets whatever it is
                outcome.set_exception(not_lost(exc))

        self._queue.put(run)
        return outcome

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    @property
    def thread_id(self) -> int | None:
        return self._thread.ident

    def _refuse_nesting(self) -> None:
        if threading.get_ident() in self._store.lane_threads:
            raise InvariantBroken(
                "append called from inside a decide of the same thread; return drafts instead"
            )

    def stop(self) -> None:
        self._queue.put(None)
        self._thread.join()

    # --- The thread

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch: list[AppendRequest | Callable[[], None]] = [first]
            ends = False
            with contextlib.suppress(queue.Empty):
                while len(batch) < ITEMS_MAX and not ends:
                    more = self._queue.get_nowait()
                    if more is None:
                        ends = True
                    else:
                        batch.append(more)
            self._work_through(batch)
            if ends:
                break
        if self._wire is not None:
            self._wire.close()

    def _work_through(self, batch: Sequence[AppendRequest | Callable[[], None]]) -> None:
        waiting: dict[Tail, list[AppendRequest]] = {}
        for each in batch:
            if isinstance(each, AppendRequest):
                if each.begin():
                    waiting.setdefault(each.handle.tail, []).append(each)
                else:
                    each.handle.forget(each)
            else:
                self._commit(waiting)
                waiting = {}
                each()
        self._commit(waiting)

    def wire(self) -> Wire:
        """The lane's connection; made again after a loss."""
        if self._wire is None or not self._wire.is_usable:
            if self._wire is not None:
                self._wire.close()
            self._wire = None
            store = self._store
            self._wire = connect_again(store) if self._was_connected else store.connect()
            self._was_connected = True
        return self._wire

    def read(self, work: Callable[[Wire], T]) -> T:
        """Run what may run twice; after a lost connection, once more."""
        try:
            return work(self.wire())
        except Lost:
            return work(self.wire())

    def _commit(self, waiting: dict[Tail, list[AppendRequest]]) -> None:
        """Give every request its outcome, round by round."""
        while waiting:
            items = []
            again: dict[Tail, list[AppendRequest]] = {}
            for tail, requests in sorted(waiting.items(), key=lambda each: each[0].journal):
                item = self._framed(tail, requests)
                if item.rest:
                    again[tail], item.rest = item.rest, []
                if item.requests:
                    items.append(item)
            answers = list(zip(items, self._sent_safely(items), strict=True))
            kept = [item for item, answer in answers if is_kept(answer)]
            self._acknowledge(kept)
            self._outcomes.deliver()
            for item, answer in answers:
                if not is_kept(answer):
                    self._settle(item, answer)
                    self._outcomes.deliver()
                if item.rest:
                    again[item.tail] = [*item.rest, *again.get(item.tail, ())]
            waiting = again

    # --- Framing

    def _framed(self, tail: Tail, requests: Sequence[AppendRequest]) -> FramedAppend:
        """
        Let callers decide, one after another, on the head that this process knows. One item has one
        epoch, one claim and at most one new segment; the others wait for the next.
        """
        position = tail.position.copy()
        epoch = requests[0].epoch
        claim = self._store.token(tail.journal, epoch) if epoch is not None else None
        item = FramedAppend(
            tail=tail,
            after=position.head,
            position=position,
            claim=claim,
            prefix=None,
            epoch=epoch if epoch is not None else max(tail.epoch, position.fence.epoch),
        )
        if Check.FENCE in [request.check for request in requests]:
            item.prefix = position.prefix
        size = 0
        for number, request in enumerate(requests):
            if request.epoch != epoch or item.segment is not None or size > BATCH_BYTES_MAX:
                item.rest = list(requests[number:])
                break
            before = len(item.lines)
            try:
                request.handle.check_usable()
                if epoch is not None and claim is None:
                    raise unclaimed(self._store, tail, epoch)  # noqa: TRY301  as every other refusal
                self._decide(item, request)
            except BaseException as exc:  # noqa: BLE001  whatever the caller raises is the caller's
                self.fenced += isinstance(exc, Fenced)
                self._outcomes.give(request, not_lost(exc))
                continue
            size += sum(map(len, item.lines[before:]))
            item.requests.append(request)
        return item

    def _decide(self, item: FramedAppend, request: AppendRequest) -> None:
        tail, position = item.tail, item.position
        known = tail.records_after(
            request.since, lambda seq: read_or_seal(self._store, self.wire(), tail, seq)
        )
        suffix = [*known, *[each for each in item.records if not is_own(each)]]
        now = max(self._store.now_ms(), position.fence.at)
        drafts = list(request.decide(Section(suffix=tuple(suffix), now=now)))
        for draft in drafts:
            check_draft(draft)
        if drafts:
            framed = position.frame(
                drafts,
                at=now,
                epoch=item.epoch,
                writer=self._store.writer,
                generation=self._store.generation(),
            )
            item.lines += framed.lines
            item.records += framed.records
            item.segment = framed.segment
            suffix += framed.records
        request.suffix = suffix

    # --- Sending

    def _sent_safely(self, items: Sequence[FramedAppend]) -> list[Answer | HoldfastError]:
        """A server that answers what ours never would must not leave callers without an outcome."""
        try:
            return self._sent(items)
        except Exception as exc:  # noqa: BLE001  whatever can't be read
            return [unread(item, exc) for item in items]

    def _sent(self, items: Sequence[FramedAppend]) -> list[Answer | HoldfastError]:
        if not items:
            return []
        try:
            if len(items) == 1:
                return [self._ask(items[0])]
            return list(self._ask_many(items))
        except Lost:
            return self._resolved(items)
        except InDoubt as exc:
            return [exc] * len(items)
        except HoldfastError as exc:
            # The statement was refused as a whole. One item never harms another.
            return [exc] if len(items) == 1 else [self._sent([item])[0] for item in items]

    def _ask(self, item: FramedAppend) -> Answer:
        store = self._store
        with self.comparing() as wire:
            return send_one(wire, item, timeline=store.history.name, ahead_ms=store.ahead_ms)

    def _ask_many(self, items: Sequence[FramedAppend]) -> list[Answer]:
        store = self._store
        with self.comparing() as wire:
            letters = send_many(wire, items, timeline=store.history.name, ahead_ms=store.ahead_ms)
        return [BARE_ANSWERS[letter] for letter in letters]

    @contextlib.contextmanager
    def comparing(self) -> Iterator[Wire]:
        """
        The connection, for a statement that names the history that this node may write to. If the
        database has another one, compare the anchors, so that the next statement can be kept.
        """
        wire = self.wire()
        self.commits += 1
        try:
            yield wire
        except HoldfastError as exc:
            is_another = exc.code == ANOTHER_TIMELINE and not wire.is_in_transaction
            if is_another and not self._store.history.is_comparing:
                raise self.compare(wire) or exc from exc
            raise

    def compare(self, wire: Wire) -> HoldfastError | None:
        """
        The server was promoted, restored or replaced. Compare this node's anchors with it. Return
        why nobody may write there yet, if other nodes have not compared theirs.
        """
        if time.monotonic() - self._joined_at > _PAUSES_SECONDS[-1]:
            self._joined_at, self._waits_for = time.monotonic(), None
            try:
                self._store.join_again(wire)
            except HoldfastError as exc:
                self._waits_for = exc if exc.code == NOT_COMPARED else None
            except Lost:
                pass  # the next append tries again
        return self._waits_for

    def _resolved(self, items: Sequence[FramedAppend]) -> list[Answer | HoldfastError]:
        """
        Send the same bytes again until every answer is definite.

        A look that finds no record proves nothing: the first send may land after it. A batch
        that can't be decided in time is in doubt, and its journal is read anew before the next use.
        """
        found: dict[int, Answer | HoldfastError] = {}
        last = "the connection was lost"
        ends = time.monotonic() + RESOLVE_SECONDS
        pauses = iter(_PAUSES_SECONDS)
        while len(found) < len(items) and time.monotonic() < ends:
            left = [number for number in range(len(items)) if number not in found]
            try:
                for number in left:
                    answer = self._ask(items[number])
                    kept = answer.letter in "mfsg" and was_kept_before(
                        self.wire(), items[number], answer
                    )
                    found[number] = Answer("k") if kept else answer
            except Lost as exc:
                last = str(exc)
            except HoldfastError as exc:
                last = exc.message
                if exc.code == NOT_COMPARED:
                    break
            if len(found) < len(items):
                time.sleep(next(pauses, _PAUSES_SECONDS[-1]))
        self._store.resolved += 1
        return [found.get(number, in_doubt(item, last)) for number, item in enumerate(items)]

    # --- Settling

    def _acknowledge(self, items: Sequence[FramedAppend]) -> None:
        """Commit point: `k` means durable. After it, a crash always replays the records."""
        for item in items:
            item.tail.adopt(item.position, item.records)
        self._store.anchor([item.tail for item in items])
        for item in items:
            self.appends += len(item.requests)
            for request in item.requests:
                last = request.suffix[-1] if request.suffix else None
                head = Head(last.seq, last.mac) if last is not None else request.since
                request.handle.move(head)
                self._outcomes.give(request, Appended(head, tuple(request.suffix)))

    def _settle(self, item: FramedAppend, answer: Answer | HoldfastError) -> None:
        try:
            self._give_outcome(item, answer)
        except Exception as exc:  # noqa: BLE001  as in _sent_safely
            self._fail(item, unread(item, exc))

    def _give_outcome(self, item: FramedAppend, answer: Answer | HoldfastError) -> None:
        """Give an append its outcome that the first send did not keep."""
        try:
            if isinstance(answer, Answer) and answer.letter == "m" and answer.seq is None:
                answer = self._sent([item])[0]  # many are answered with a letter alone
            if isinstance(answer, Answer) and answer.letter in {"m", "b"}:
                self.retries += 1
                answer = self._locked(item, answer)
            if isinstance(answer, RowInTheWay):
                raise taken_over(item.tail.session, item.after.seq) from answer
            if isinstance(answer, HoldfastError):
                raise answer
            if answer.letter != "k":
                raise refusal(self._store, item, answer)
            self._acknowledge([item])
        except HoldfastError as exc:
            self._fail(item, exc)
        except Lost as exc:
            self._fail(item, not_lost(exc))

    def _locked(self, item: FramedAppend, answer: Answer) -> Answer | HoldfastError:
        """
        Another writer was faster. Hold the row, verify what it wrote, let the callers decide again
        and append: the head can't move in between. `item` becomes the new item.
        """
        tail, again = item.tail, None
        try:
            if answer.letter == "m":
                check_moved(item, answer)
            wire = self.wire()
            with wire.transaction():
                row = wire.one("select seq, epoch from hf.lock_head(%s)", (tail.journal,))
                if row is not None:
                    if row[0] < tail.head.seq:
                        raise missing(tail.session, row[0], tail.head.seq)
                    with_new_keys(self._store, wire, lambda: tail.catch_up(wire, row[0]))
                    tail.epoch = row[1]
                again = self._framed(tail, item.requests)
                item.__dict__.update(again.__dict__)
                if not item.requests:
                    return Answer("k")
                outcome = self._ask(item)
        except Lost as exc:
            if again is None or not item.requests:
                return Busy(f"the connection was lost: {exc}; nothing was written")
            return self._resolved([item])[0]
        except HoldfastError as exc:
            return exc
        return outcome

    def _fail(self, item: FramedAppend, error: HoldfastError) -> None:
        self.in_doubt += isinstance(error, InDoubt)
        self.fenced += isinstance(error, Fenced)
        if isinstance(error, InDoubt):
            self._store.drop(item.tail)
        if isinstance(error, Untrusted):
            error = seal_now(self._store, item.tail, error)
        for request in item.requests:
            if isinstance(error, InDoubt | Untrusted):
                request.handle.spend(error)
            self._outcomes.give(request, error)
