"""
One session in this process: the folded state, and the one way to move it.

State moves only with durable records. `commit` decides under the write lock on everything that is
in the journal, and folds the records that the store reports as kept. Any number of tasks may commit
through one ledger. Tasks wait for changes with `watch`.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.errors import BrokenChain, NewerVersion, ReadOnly, Refused
from holdfast.ids import ApprovalId, TurnId
from holdfast.ports.journal_store import Check, Draft, Head, Journal, Record, SealMark, Section
from holdfast.ports.snapshots import KeepsSnapshots, Snapshot
from holdfast.runtime.cancellation import finish
from holdfast.runtime.ledger.attempt import Attempt, Produced, WriteAs
from holdfast.session.codec import decode, encode, half_a_character
from holdfast.session.commands import SessionCommand
from holdfast.session.decide import commit as deciding
from holdfast.session.decide.commit import Committed
from holdfast.session.events import ApprovalRequested, SessionEvent, ToolStarted, TurnEnded
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.next_steps import DriverFacts
from holdfast.session.snapshots.session import decode_state, encode_state
from holdfast.session.state import SessionState
from holdfast.session.transitions import IllegalTransition
from holdfast.session.view.messages import Usage

_REMEMBERED_MAX = 64  # of each kind: a waiting caller asks only for one of the last few
_RECENT_KEPT = 128
SNAPSHOT_EVERY = 2000  # records: folding fewer takes no noticeable time


class Ending(NamedTuple):
    seq: int
    event: TurnEnded
    usage: Usage


class _Coming(msgspec.Struct, frozen=True):
    """
    One event that was decided here and is being written, with the state that it leads to if it is
    kept as decided.
    """

    draft: Draft
    at: int
    before: SessionState
    event: SessionEvent
    after: SessionState

    def is_kept_in(self, record: Record, state: SessionState) -> bool:
        draft = self.draft
        return (
            state is self.before
            and record.at == self.at
            and (draft.type, draft.version, draft.body)
            == (record.type, record.version, record.body)
        )


_REMEMBERED: frozenset[type[SessionEvent]] = frozenset({TurnEnded, ToolStarted, ApprovalRequested})


class Timekeeper(Protocol):
    """The home's time; see `HomeLedger`."""

    async def check_clock(self) -> None: ...

    def decided_at(self, stamp: int) -> int: ...


Also = Callable[[SessionState, Sequence[SessionEvent]], Sequence[SessionCommand]]
"""From the state before a commit, and its events, to the commands that go with them."""


class Ledger:
    """Owned by the task that opened it; shared by the tasks of one process."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.session, self.instance = journal.session, journal.instance
        # Moves only in `_fold`, with durable records.
        self.state: SessionState = initial(journal.session, journal.instance)
        self._attempt: Attempt | None = None
        # The ends of the last turns, so that a waiting caller gets its result without reading the
        # journal again.
        self.endings: OrderedDict[TurnId, Ending] = OrderedDict()
        # The last calls that this process has seen start, for answers that must report whether
        # their call started.
        self.started: OrderedDict[str, int] = OrderedDict()
        # The last prompts that were asked here, so that the index learns their session.
        self.asked: OrderedDict[ApprovalId, Record] = OrderedDict()
        # For followers that are close behind.
        self.recent: deque[Record] = deque(maxlen=_RECENT_KEPT)
        # The mac of the last folded record, and the last record of the newest known snapshot.
        self._last_mac: bytes | None = None
        self._kept_seq = 0
        # The reason why this process only reads: a genuine record of a newer Holdfast, or a place
        # where nothing can be written.
        self.only_read: NewerVersion | ReadOnly | None = None
        self.driving = False
        # Set by a notice that another process appended a record; cleared by the next catch-up.
        self.noticed = False
        # Waiting tasks in the order of arrival, so that a seeded simulation wakes them the same way
        # every time.
        self._changed: dict[asyncio.Event, None] = {}
        # By the number that our record will have if no other record comes first. It saves evolving
        # the state twice.
        self._coming: dict[int, _Coming] = {}
        # Further commands that the events of a commit require: the deliveries owed to channels.
        # Called for each commit.
        self.also: Also | None = None
        # Set by the driver while it holds the claim. Its commits end with the bookkeeping that is
        # owed.
        self.driver_facts: Callable[[], DriverFacts] | None = None
        self.time: Timekeeper | None = None

    @classmethod
    async def open(cls, journal: Journal) -> "Ledger":
        """
        Open the ledger, which then owns the handle. The handle is closed with it, or at once if
        opening fails.
        """
        ledger = cls(journal)
        async with _closed_if_it_fails(journal):
            await ledger._come_up()
        return ledger

    @classmethod
    async def read_only(cls, journal: Journal, why: NewerVersion | ReadOnly) -> "Ledger":
        """
        Open a ledger that never writes. Either the journal holds a genuine record of a newer
        Holdfast (D8) and is read up to it, or it lies where nothing can be written.
        """
        ledger = cls(journal)
        ledger.only_read = why
        async with _closed_if_it_fails(journal):
            await ledger._load_what_verifies()
        return ledger

    async def _come_up(self) -> None:
        if self.journal.sealed is not None:
            await self._load_what_verifies()
            return
        try:
            await self._start_from_snapshot()
            self._attempt = await Attempt.acquire(self.journal, self._fold, after=self.state.seq)
        except BrokenChain as exc:
            await self.journal.seal(SealMark(exc.code, exc.message, exc.at_seq))
            raise

    async def _start_from_snapshot(self) -> None:
        """
        Start from a snapshot, if one covers a record of exactly this journal. Otherwise fold the
        journal from its first record.
        """
        journal = self.journal
        kept = await journal.read_snapshot() if isinstance(journal, KeepsSnapshots) else None
        state = decode_state(kept.data) if kept is not None else None
        if (
            kept is None
            or state is None
            or (state.session, state.instance, state.seq)
            != (journal.session, journal.instance, kept.head.seq)
        ):
            return
        found = await record_at(journal, kept.head.seq)
        if found is None or (found.seq, found.mac) != kept.head:
            return
        self.state = state
        self._last_mac, self._kept_seq = kept.head.mac, kept.head.seq
        self.started.update(
            {
                call.call: call.run
                for turn in state.turns.values()
                for call in turn.calls
                if call.run
            }
        )

    async def keep_snapshot_if_due(self) -> None:
        """
        Keep a snapshot once so many records came since the last one that folding them takes
        noticeable time.
        """
        state, journal = self.state, self.journal
        if (
            state.seq - self._kept_seq < SNAPSHOT_EVERY
            or self._attempt is None
            or not isinstance(journal, KeepsSnapshots)
        ):
            return
        if self._last_mac is None or journal.sealed is not None or self.attempt.stopped is not None:
            return
        head, self._kept_seq = Head(state.seq, self._last_mac), state.seq
        data = await asyncio.to_thread(encode_state, state)
        await journal.keep_snapshot(Snapshot(head, data))

    async def _load_what_verifies(self) -> None:
        try:
            await self.journal.load(self._fold)
        except (BrokenChain, NewerVersion):
            return

    @property
    def attempt(self) -> Attempt:
        if self.only_read is not None:
            raise self.only_read
        if self._attempt is None:
            mark = self.journal.sealed
            why = f"{mark.code}: {mark.detail}" if mark else "it can't be written"
            raise Refused(
                f"{self.session} is sealed ({why})",
                code="sealed",
                hint=f"`holdfast sessions unseal {self.session}` goes on from what verifies",
            )
        return self._attempt

    @property
    def epoch(self) -> int | None:
        return self.attempt.epoch

    @property
    def folded_seq(self) -> int:
        """
        The last record that `state` includes. It is behind the journal's last record while an
        append returns, and after its caller was cancelled meanwhile.
        """
        return self.journal.head.seq if self._attempt is None else self._attempt.position.seq

    def _fold(self, record: Record) -> None:
        before, coming = self.state, self._coming.pop(record.seq, None)
        if coming is not None and coming.is_kept_in(record, before):
            event, self.state = coming.event, coming.after
        else:
            event = decode(record.type, record.version, record.body, seq=record.seq)
            try:
                self.state = evolve(before, event, seq=record.seq, at=record.at)
            except IllegalTransition as exc:
                raise BrokenChain(
                    f"record {record.seq} can't follow the ones before it: {exc}", at_seq=record.seq
                ) from exc
        self._last_mac = record.mac
        self.recent.append(record)
        if type(event) in _REMEMBERED:
            self._remember(record, event, before)

    def _remember(self, record: Record, event: SessionEvent, before: SessionState) -> None:
        match event:
            case TurnEnded(turn=turn):
                self.endings[turn] = Ending(record.seq, event, before.turns[turn].usage)
                _trim(self.endings)
            case ToolStarted(call=call, run=run):
                self.started[call] = run
                _trim(self.started)
            case ApprovalRequested(approval=approval):
                self.asked[approval] = record
                _trim(self.asked)
            case _:
                pass

    def commit(
        self,
        *commands: SessionCommand,
        check: Check = Check.SHORT,
        keeping: Sequence[Produced] = (),
    ) -> Coroutine[Any, Any, Committed]:
        """
        Decide, append and fold, with the rights of any participant. A refusal is raised after the
        events it left in the journal are durable.
        """
        return self._commit(commands, check, keeping, WriteAs.PARTICIPANT)

    def drive(
        self,
        *commands: SessionCommand,
        check: Check = Check.SHORT,
        keeping: Sequence[Produced] = (),
    ) -> Coroutine[Any, Any, Committed]:
        """
        Like `commit`, with the driver's right: fenced off once another process drives. It ends with
        the bookkeeping that is owed.
        """
        return self._commit(commands, check, keeping, WriteAs.DRIVER)

    async def _commit(
        self,
        commands: Sequence[SessionCommand],
        check: Check,
        keeping: Sequence[Produced],
        as_: WriteAs,
    ) -> Committed:
        committed = Committed(self.state, (), (), (), ())
        driver = (
            self.driver_facts() if as_ is WriteAs.DRIVER and self.driver_facts is not None else None
        )

        def decide(section: Section) -> Sequence[Draft]:
            nonlocal committed
            try:
                committed = self._decided(commands, section, driver)
                return self._drafts(committed)
            except UnicodeEncodeError as exc:
                raise half_a_character() from exc

        before = self.state.seq
        self.noticed = False
        # A fact that has happened (`keeping`) is recorded whatever the clock says.
        if commands and self.time is not None and not keeping:
            await self.time.check_clock()
        if check is Check.FENCE:
            await self.attempt.reacquire(decide, keeping=keeping, as_=as_)
        else:
            await self.attempt.write(decide, keeping=keeping, as_=as_)
        if self.state.seq != before:
            self.poke()
        if committed.refusal is not None:
            raise committed.refusal
        return committed

    def _decided(
        self, commands: Sequence[SessionCommand], section: Section, driver: DriverFacts | None
    ) -> Committed:
        """
        Decide on everything in the journal, folded here or not yet, and add the deliveries that the
        events owe to channels.
        """
        state = self.state
        for record in section.suffix:
            state = self._peek(state, record)
        now = self.time.decided_at(section.now) if self.time is not None else section.now
        floor = now if self.time is not None else None
        committed = deciding.commit(state, commands, now=now, floor=floor, driver=driver)
        if self.also is None or not (more := self.also(state, committed.events)):
            return committed
        further = deciding.commit(committed.state, more, now=now, floor=floor)
        events, states = (*committed.events, *further.events), (*committed.states, *further.states)
        return Committed(committed.before, committed.commands, events, states, committed.decided)

    def _drafts(self, committed: Committed) -> list[Draft]:
        drafts = [Draft(*encode(event)) for event in committed.events]
        before = committed.before
        self._coming.clear()  # earlier entries that are not folded by now were not kept
        for draft, event, after in zip(drafts, committed.events, committed.states, strict=True):
            self._coming[after.seq] = _Coming(draft, after.at, before, event, after)
            before = after
        return drafts

    @staticmethod
    def _peek(state: SessionState, record: Record) -> SessionState:
        event = decode(record.type, record.version, record.body, seq=record.seq)
        return evolve(state, event, seq=record.seq, at=record.at)

    async def refresh(self) -> None:
        """
        Fold the records that others appended. Where nothing can be written, the loaded records are
        complete.
        """
        if not isinstance(self.only_read, ReadOnly):
            await self.commit()

    async def look(self) -> None:
        """
        Like `refresh`, if nothing needs verifying: without new records it takes no lock and no
        other thread.
        """
        if isinstance(self.only_read, ReadOnly) or self.attempt.is_at_head():
            self.noticed = False
        else:
            await self.refresh()

    def poke(self) -> None:
        """Wake all waiting tasks: something may have changed."""
        for event in self._changed:
            event.set()

    def notice(self) -> None:
        """
        Handle a hint from the notifier.

        While this process drives, only new records matter. While another process drives, its giving
        up matters too.
        """
        if self.driving and self.attempt.is_at_head():
            return
        self.noticed = True
        self.poke()

    def watch(self) -> asyncio.Event:
        """
        Return an event that is set whenever something may have changed. Return it with `unwatch`.
        """
        event = asyncio.Event()
        self._changed[event] = None
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        self._changed.pop(event, None)

    async def close(self) -> None:
        if self._attempt is not None:
            try:
                await self.keep_snapshot_if_due()
            finally:
                await self._attempt.dispose()
        else:
            await self.journal.close()


@asynccontextmanager
async def _closed_if_it_fails(journal: Journal) -> AsyncGenerator[None, None]:
    try:
        yield
    except BaseException:
        await finish(journal.close())
        raise


class _Found(Exception):
    def __init__(self, record: Record) -> None:
        self.record = record


async def record_at(journal: Journal, seq: int) -> Record | None:
    """The first record at or after `seq` that verifies."""

    def stop_at_first(record: Record) -> None:
        raise _Found(record)

    try:
        await journal.load(stop_at_first, after=seq - 1)
    except _Found as found:
        return found.record
    return None


def _trim(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > _REMEMBERED_MAX:
        kept.popitem(last=False)


def payload(value: msgspec.Struct) -> bytes:
    """The produced value as JSON, for quarantine."""
    return msgspec.json.encode(value)
