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
from typing import Any, ClassVar, NamedTuple

import msgspec

from holdfast.errors import BrokenChain, InvariantBroken, NewerVersion, ReadOnly, Refused
from holdfast.ids import ApprovalId, TurnId
from holdfast.limits import KIB
from holdfast.ports.journal_store import Check, Draft, Head, Journal, Record, SealMark, Section
from holdfast.ports.snapshots import Snapshot, snapshots_of
from holdfast.runtime.cancellation import finish
from holdfast.runtime.ledger.attempt import Attempt, Produced, WriteAs
from holdfast.runtime.ledger.record_search import record_at
from holdfast.runtime.ledger.rules import LedgerRules
from holdfast.session.authority.policy import Policy
from holdfast.session.codec import decode, encode, half_a_character
from holdfast.session.commands import SessionCommand
from holdfast.session.decide import commit as deciding
from holdfast.session.decide.commit import Committed
from holdfast.session.events import ApprovalRequested, SessionEvent, ToolStarted, TurnEnded
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.next_steps import DriverFacts, policy_of
from holdfast.session.snapshots.session import decode_state, encode_state
from holdfast.session.state import SessionState
from holdfast.session.transitions import IllegalTransition
from holdfast.session.view.messages import Usage
from holdfast.threads import BLOCKING

_RECENT_KEPT = 128
# An open session without its state: handle, fence, locks, names, some recent records.
_OPEN_BYTES = 64 * KIB
# Objects take about three times the bytes of their JSON; the last records are kept beside them.
_BYTES_PER_BYTE = 4
_RECENT_KEPT_IDLE = 32


class Ending(NamedTuple):
    seq: int
    event: TurnEnded
    usage: Usage


class _PendingEvent(msgspec.Struct, frozen=True):
    """An event that was decided here and is being written, and the states before and after it."""

    draft: Draft
    before: SessionState
    event: SessionEvent
    after: SessionState


_REMEMBERED: frozenset[type[SessionEvent]] = frozenset({TurnEnded, ToolStarted, ApprovalRequested})


class Ledger:
    """Owned by the task that opened it; shared by the tasks of one process."""

    # A debug hook for tests: compare each state that a commit decided with the state that a reader
    # of its record folds.
    checks_folds: ClassVar[bool] = False

    def __init__(self, journal: Journal, rules: LedgerRules) -> None:
        self.journal = journal
        self._rules = rules
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
        # The bytes that the state was read from: the snapshot, and the records since.
        self._state_bytes = 0
        # The reason why this process only reads: a genuine record of a newer Holdfast, or a place
        # where nothing can be written.
        self.only_read: NewerVersion | ReadOnly | None = None
        self.driving = False
        # Set by a notice that another process appended a record; cleared by the next catch-up.
        self.noticed = False
        # Waiting tasks in the order of arrival, so that a seeded simulation wakes them the same way
        # every time.
        self._changed: dict[asyncio.Event, None] = {}
        # By the number of the record if no other comes first. It saves evolving the state twice.
        self._pending: dict[int, _PendingEvent] = {}
        # The last record that the index and the anchor include, as far as this process knows.
        self.announced_seq = journal.head.seq
        # Set by the driver while it holds the claim: its commits end with the owed bookkeeping.
        self.driver_facts: Callable[[Policy | None], DriverFacts] | None = None

    @classmethod
    async def open(cls, journal: Journal, rules: LedgerRules | None = None) -> "Ledger":
        """
        Open the ledger, which then owns the handle. The handle is closed with it, or at once if
        opening fails.
        """
        ledger = cls(journal, rules or LedgerRules())
        async with _closed_if_it_fails(journal):
            await ledger._load()
        ledger.announced_seq = journal.head.seq
        return ledger

    @classmethod
    async def read_only(cls, journal: Journal, why: NewerVersion | ReadOnly) -> "Ledger":
        """
        Open a ledger that never writes. Either the journal holds a genuine record of a newer
        Holdfast (D8) and is read up to it, or it lies where nothing can be written.
        """
        ledger = cls(journal, LedgerRules())
        ledger.only_read = why
        async with _closed_if_it_fails(journal):
            await ledger._load_what_verifies()
        return ledger

    async def _load(self) -> None:
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
        least = self._rules.tuning.snapshot_records_min
        if journal.head.seq < least or (keeper := snapshots_of(journal)) is None:
            return  # a session this short has none
        kept = await keeper.read_snapshot()
        state = decode_state(kept.data) if kept is not None else None
        if (
            kept is None
            or state is None
            or (state.session, state.instance, state.seq)
            != (journal.session, journal.instance, kept.head.seq)
        ):
            return
        if not kept.is_past:
            found = await record_at(journal, kept.head.seq)
            if found is None or (found.seq, found.mac) != kept.head:
                return
        self.state = state
        self._last_mac, self._kept_seq = kept.head.mac, kept.head.seq
        self._state_bytes = len(kept.data)
        self.started.update(
            {
                call.call: call.run
                for turn in state.turns.values()
                for call in turn.calls
                if call.run
            }
        )

    @property
    def weight(self) -> int:
        """About how many bytes of memory this open session takes."""
        return _OPEN_BYTES + _BYTES_PER_BYTE * self._state_bytes

    def rest(self) -> None:
        """Nobody uses it for now: keep only the last few records for followers."""
        while len(self.recent) > _RECENT_KEPT_IDLE:
            self.recent.popleft()

    async def keep_snapshot_if_due(self) -> None:
        """Keep a snapshot once so many records came since the last one as the tuning says."""
        await self._keep_snapshot_after(self._rules.tuning.snapshot_every_records)

    async def _keep_snapshot_after(self, every: int) -> None:
        state, journal = self.state, self.journal
        if (
            state.seq - self._kept_seq < every
            or self._attempt is None
            or (keeper := snapshots_of(journal)) is None
        ):
            return
        if self._last_mac is None or journal.sealed is not None or self.attempt.stopped is not None:
            return
        head, self._kept_seq = Head(state.seq, self._last_mac), state.seq
        data = await BLOCKING.call(lambda: encode_state(state))
        self._state_bytes = len(data)
        await keeper.keep_snapshot(Snapshot(head, data))

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
                hint=f"`holdfast sessions unseal {self.session}` goes on from the last record that "
                "verifies",
            )
        return self._attempt

    @property
    def is_spent(self) -> bool:
        """Whether nothing can be written any more: it is sealed, stopped or read-only."""
        return (
            self.only_read is not None
            or self.journal.sealed is not None
            or self._attempt is None
            or self._attempt.stopped is not None
        )

    @property
    def folded_seq(self) -> int:
        """
        The last record that `state` includes. It is behind the journal's last record while an
        append returns, and after its caller was cancelled meanwhile.
        """
        return self.journal.head.seq if self._attempt is None else self._attempt.position.seq

    def _fold(self, record: Record) -> None:
        before, pending = self.state, self._pending.pop(record.seq, None)
        if (
            pending is not None
            and before is pending.before
            and record.at == pending.after.at
            and record.body == pending.draft.body
            and (record.type, record.version) == (pending.draft.type, pending.draft.version)
        ):
            event, self.state = pending.event, pending.after
            if self.checks_folds and self.state != self._peek(before, record):
                raise InvariantBroken(f"record {record.seq} folds to another state than decided")
        else:
            event = decode(record.type, record.version, record.body, seq=record.seq)
            try:
                self.state = evolve(before, event, seq=record.seq, at=record.at)
            except IllegalTransition as exc:
                raise BrokenChain(
                    f"record {record.seq} can't follow the ones before it: {exc}", at_seq=record.seq
                ) from exc
        self._last_mac = record.mac
        self._state_bytes += len(record.body)
        self.recent.append(record)
        if type(event) in _REMEMBERED:
            self._remember(record, event, before)

    def _remember(self, record: Record, event: SessionEvent, before: SessionState) -> None:
        match event:
            case TurnEnded(turn=turn):
                self.endings[turn] = Ending(record.seq, event, before.turns[turn].usage)
                self._trim(self.endings)
            case ToolStarted(call=call, run=run):
                self.started[call] = run
                self._trim(self.started)
            case ApprovalRequested(approval=approval) if not before.carrying:
                self.asked[approval] = record
                self._trim(self.asked)
            case _:
                pass

    def _trim(self, kept: OrderedDict[Any, Any]) -> None:
        while len(kept) > self._rules.tuning.remembered_max:
            kept.popitem(last=False)

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
        driver: DriverFacts | None = None
        if as_ is WriteAs.DRIVER and self.driver_facts is not None:
            driver = self.driver_facts(policy_of(commands))

        def decide(section: Section) -> Sequence[Draft]:
            nonlocal committed
            try:
                committed = self._decided(commands, section, driver)
                return self._drafts(committed, has_happened=bool(keeping))
            except UnicodeEncodeError as exc:
                raise half_a_character() from exc

        before, rules = self.state, self._rules
        self.noticed = False
        # A fact that has happened (`keeping`) is recorded whatever the clock says.
        if commands and rules.time is not None and not keeping:
            await rules.time.check_clock()
        await self.attempt.write(decide, keeping=keeping, check=check, as_=as_)
        if self.state.seq != before.seq:
            self.wake_watchers()
        if committed.events and rules.announcer is not None:
            rules.announcer.committed(self, before, as_)
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
        time, also = self._rules.time, self._rules.also
        now = time.decided_at(section.now) if time is not None else section.now
        floor = now if time is not None else None
        committed = deciding.commit(state, commands, now=now, floor=floor, driver=driver)
        if also is None or not (more := also(state, committed.events)):
            return committed
        further = deciding.commit(committed.state, more, now=now, floor=floor)
        events, states = (*committed.events, *further.events), (*committed.states, *further.states)
        return Committed(committed.before, committed.commands, events, states, committed.decided)

    def _drafts(self, committed: Committed, *, has_happened: bool) -> list[Draft]:
        drafts: list[Draft] = []
        before = committed.before
        self._pending.clear()  # earlier entries that are not folded by now were not kept
        for event, after in zip(committed.events, committed.states, strict=True):
            draft = Draft(*encode(event), has_happened=has_happened)
            self._pending[after.seq] = _PendingEvent(draft, before, event, after)
            drafts.append(draft)
            before = after
        return drafts

    @staticmethod
    def _peek(state: SessionState, record: Record) -> SessionState:
        event = decode(record.type, record.version, record.body, seq=record.seq)
        return evolve(state, event, seq=record.seq, at=record.at)

    async def catch_up(self) -> None:
        """
        Fold the records that others appended. Where nothing can be written, the loaded records are
        complete.
        """
        if not isinstance(self.only_read, ReadOnly):
            await self.commit()

    async def catch_up_if_behind(self) -> None:
        """
        Like `catch_up`, if nothing needs verifying: without new records it takes no lock and no
        other thread.
        """
        if isinstance(self.only_read, ReadOnly) or await self.attempt.is_at_head():
            self.noticed = False
        else:
            await self.catch_up()

    def wake_watchers(self) -> None:
        """Wake all waiting tasks: something may have changed."""
        for event in self._changed:
            event.set()

    def notice(self) -> None:
        """Handle a hint from the notifier. The woken tasks find out whether anything is new."""
        self.noticed = True
        self.wake_watchers()

    def watch(self) -> asyncio.Event:
        """
        Return an event that is set whenever something may have changed. Return it with `unwatch`.
        """
        event = asyncio.Event()
        self._changed[event] = None
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        self._changed.pop(event, None)

    async def settle(self) -> None:
        """Bring the index and the anchor up to the last record, now, and notify."""
        if self._rules.announcer is not None:
            await self._rules.announcer.settle(self)

    async def close(self) -> None:
        if self._attempt is not None:
            try:
                if self._rules.announcer is not None:
                    await self._rules.announcer.settle_undriven(self)
                await self._keep_snapshot_after(self._rules.tuning.snapshot_records_min)
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
