"""
The home's own journal in this process: grants, registry, tokens.

A grant takes three steps: GrantProposed here, ApprovalAnswered in the session, GrantActivated here.
Only active grants count. So a crash between two steps leaves either no grant, or an answer whose
grant `_settle` can still activate. Only the session's journal decides that.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast import limits
from holdfast.errors import Fenced, HoldfastError, InDoubt, ReadOnly, Refused
from holdfast.ids import ApprovalId, GrantId
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import (
    Check,
    Draft,
    Head,
    Journal,
    JournalStore,
    Record,
    Section,
)
from holdfast.ports.snapshots import snapshots_of
from holdfast.runtime.ledger.attempt import Attempt, nothing
from holdfast.runtime.ledger.record_search import record_at
from holdfast.runtime.reports.types import iso
from holdfast.session.authority.approvals import SCOPES
from holdfast.session.authority.expiry import Moment, is_over
from holdfast.session.home.events import (
    AnyHomeEvent,
    GrantActivated,
    GrantDropped,
    GrantProposed,
    GrantRevoked,
    HomeState,
    TimeNoted,
    decode_home_event,
    encode_home_event,
)
from holdfast.session.snapshots.home import decode_home_state
from holdfast.session.state import SessionState
from holdfast.threads import BLOCKING

_log = logging.getLogger("holdfast.home")
# A process that commits all the time compares its clock with the home's time once a minute.
_LOOK_AT_CLOCK_EVERY_MS = 60_000


HomeDecision = Callable[[HomeState], Sequence[AnyHomeEvent]]
"""From the home as it is under the lock to the events to append."""


class HomeLedger:
    """One per open home; opened at first use. Without a clock of its own it refuses no time."""

    def __init__(self, store: JournalStore, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock
        # The clock at its last comparison with the home's time.
        self._compared_at: int | None = None
        self.state = HomeState()
        self._attempt: Attempt | None = None
        self._opening = asyncio.Lock()

    async def _opened(self) -> Attempt:
        """Open one attempt, however many tasks ask at once: two would fold every record twice."""
        if self._attempt is not None and self._attempt.stopped is None:
            return self._attempt
        async with self._opening:
            if self._attempt is not None and isinstance(self._attempt.stopped, InDoubt | Fenced):
                # Spent. A server keeps running: it opens the home again and reads the outcome, as
                # it does with a session.
                spent, self._attempt = self._attempt, None
                await spent.dispose()
            if self._attempt is None:
                journal = await self._store.home()
                try:
                    after = await self._start_from_snapshot(journal)
                except BaseException:
                    await journal.close()
                    raise
                self._attempt = await Attempt.acquire(journal, self._fold, after=after)
            return self._attempt

    async def _start_from_snapshot(self, journal: Journal) -> int:
        """
        Start from a snapshot, if one covers a record of exactly this journal, and return that
        record's number. Otherwise start empty and return 0.
        """
        keeper = snapshots_of(journal)
        kept = await keeper.read_snapshot() if keeper is not None else None
        state = (
            await BLOCKING.call(lambda: decode_home_state(kept.data)) if kept is not None else None
        )
        if kept is None or state is None or await _head_of(journal, kept.head.seq) != kept.head:
            self.state = HomeState()
            return 0
        self.state = state
        return kept.head.seq

    def _fold(self, record: Record) -> None:
        _evolve(self.state, record)

    async def refresh(self) -> HomeState:
        try:
            attempt = await self._opened()
        except ReadOnly:
            return await self._looked()
        if not await attempt.is_at_head():
            await attempt.write(nothing)
        return self.state

    async def _looked(self) -> HomeState:
        """
        Load the records that verify. Where nothing can be written, no record can be added, so they
        are complete. A later write fails with the reason.
        """
        async with self._opening:
            self.state = HomeState()
            journal = await self._store.home()
            try:
                await journal.load(self._fold)
            finally:
                await journal.close()
            return self.state

    # --- time

    def moment(self, clock_ms: int | None = None, *, session_at: int = 0) -> Moment:
        """
        The present for judging expiry, as of the last read: by the clock, and by the newest times
        in this home's journal and, if given, in a session's.
        """
        if clock_ms is None:
            clock_ms = self.state.time if self._clock is None else self._clock.now_ms()
        newest = self.state.believed(session_at, clock=clock_ms)
        return Moment(clock_ms, max(self.state.time, newest))

    def now_ms(self) -> int:
        """The later of the clock and the home's time."""
        return self.moment().now

    def decided_at(self, stamp: int) -> int:
        """The time to decide by, if the next record of a session would carry `stamp`."""
        now = self.state.time if self._clock is None else self._clock.now_ms()
        return stamp if self.state.believed(stamp, clock=now) else max(now, self.state.time)

    async def refresh_if_readable(self) -> None:
        """
        Catch up with the home's journal, for a list. If the journal cannot be read, the clock alone
        counts.
        """
        with suppress(HoldfastError):
            await self.refresh()

    async def check_clock(self) -> None:
        """
        Before a commit: refuse a clock that is far ahead, and note the time if the home's journal
        is a day behind it.
        """
        if self._clock is None:
            return
        now, last = self._clock.now_ms(), self._compared_at
        if last is not None and last <= now < last + _LOOK_AT_CLOCK_EVERY_MS:
            return
        state = await self.refresh()
        _refuse_ahead(Moment(now, state.time))
        if now - state.time > limits.TIME_NOTED_EVERY_SECONDS * 1000:
            await self.note_time(now)
        self._compared_at = now

    async def note_time(self, clock_ms: int) -> None:
        """
        Note the time, so that a clock which is set back later revives nothing. The note is skipped
        if the home cannot be written now, or the clock is far ahead.
        """

        def decide(state: HomeState) -> Sequence[AnyHomeEvent]:
            # Read under the lock: the clock may be set while the lock is awaited.
            now = clock_ms if self._clock is None else self._clock.now_ms()
            return (TimeNoted(clock=now),) if now > state.time else ()

        try:
            await self.append_decided(decide)
        except HoldfastError as exc:
            _log.warning(
                "the time could not be noted in the home's journal (%s): %s", exc.code, exc.message
            )

    # --- writing

    async def append(self, *events: AnyHomeEvent) -> None:
        await self.append_decided(lambda _: events)

    async def append_decided(self, decide: HomeDecision) -> None:
        """
        Append the events that `decide` returns; it sees the home as it is under the lock. A clock
        far ahead of the home's journal is refused.
        """

        def unless_clock_is_far_ahead(state: HomeState) -> Sequence[AnyHomeEvent]:
            if self._clock is not None:
                _refuse_ahead(Moment(self._clock.now_ms(), state.time))
            return decide(state)

        await self.append_decided_at_any_time(unless_clock_is_far_ahead)

    async def append_decided_at_any_time(self, decide: HomeDecision) -> None:
        """
        Like `append_decided`, whatever the clock says. For an operator who decides about the clock,
        or about a home from a backup.
        """

        def drafts(section: Section) -> Sequence[Draft]:
            ahead = self.state
            if section.suffix:
                ahead = self.state.copy()
                for record in section.suffix:
                    _evolve(ahead, record)
            return [Draft(*encode_home_event(event)) for event in decide(ahead)]

        await (await self._opened()).write(drafts, check=Check.FENCE)

    async def grants_of(
        self, requester: str | None, session: SessionState
    ) -> tuple[GrantProposed, ...]:
        """
        The requester's active grants, as of now; empty for a turn without a requester. Grants of
        this session that a crash left half made are settled first.

        A grant counts only while the bytes that vouch for it are there: before one is returned, the
        active segment of the home's journal is hashed again.
        """
        if requester is None:
            return ()
        state = await self.refresh()
        await self._settle(session)
        if self._attempt is not None and any(
            grant.requester == requester for grant in state.grants.values()
        ):
            await self._attempt.write(nothing, check=Check.FENCE)
        # `decide` compares with the clock and the session's newest time. Here the home's time
        # catches a clock that went back.
        moment = self.moment()
        return tuple(
            grant
            for grant in state.grants.values()
            if grant.requester == requester and not is_over(grant.expires_at, moment)
        )

    async def revoke(self, grant: GrantId, *, by: str, may_all: bool) -> None:
        def decide(state: HomeState) -> Sequence[AnyHomeEvent]:
            known = state.grants.get(grant)
            if known is None:
                raise Refused(
                    f"no grant {grant}",
                    code="unknown",
                    hint="`holdfast grants list` shows them",
                )
            if not may_all and by not in (known.requester, known.granted_by):
                names = " or ".join(
                    dict.fromkeys(filter(None, (known.requester, known.granted_by)))
                )
                raise Refused(
                    f"{by} may not revoke this grant",
                    code="no_authority",
                    hint=f"{names} or the home's owner may",
                )
            return (GrantRevoked(grant=grant, by=by),)

        await self.append_decided(decide)

    async def _settle(self, session: SessionState) -> None:
        """Finish grants that a crash left between proposal and activation."""
        for grant in list(self.state.proposed.values()):
            if (grant.session, grant.instance) != (session.session, session.instance):
                continue
            if (decided := _decided(grant, session)) is not None:
                await self.append(
                    GrantActivated(grant=grant.grant)
                    if decided
                    else GrantDropped(grant=grant.grant)
                )

    async def close(self) -> None:
        if self._attempt is not None:
            await self._attempt.dispose()
            self._attempt = None


def refuse_disputed(moment: Moment, what: str) -> None:
    """Refuse every approval while it is unknown whether its time is over."""
    if moment.is_disputed:
        days = (moment.journal - moment.clock) // 86_400_000
        raise Refused(
            f"the journal's newest time ({iso(moment.journal)}) is {days} days ahead of the clock "
            f"({iso(moment.clock)}), so {what}",
            code="clock_behind",
            hint="set the clock; or, if it is right, `holdfast doctor --accept-clock`",
        )


def _refuse_ahead(moment: Moment) -> None:
    if moment.is_ahead:
        days = (moment.clock - moment.journal) // 86_400_000
        raise Refused(
            f"the clock says {iso(moment.clock)}, {days} days after the newest record of this home "
            f"({iso(moment.journal)}); nothing was written",
            code="clock_ahead",
            hint="set the clock; or, if it is right, `holdfast doctor --accept-clock`",
        )


async def _head_of(journal: Journal, seq: int) -> Head | None:
    found = await record_at(journal, seq)
    return Head(found.seq, found.mac) if found is not None else None


def _evolve(state: HomeState, record: Record) -> None:
    if record.type != "tail_repaired":  # the store's own note; it does not concern the home
        state.evolve(decode_home_event(record.type, record.version, record.body), at=record.at)


def _decided(grant: GrantProposed, state: SessionState) -> bool | None:
    """True: its answer is journalled. False: it never will be. None: the prompt is still open."""
    if (found := state.find_prompt(ApprovalId(grant.approval))) is not None:
        _, call = found
        approval = call.approval if call is not None else None
        if approval is not None and approval.asked.approval == grant.approval:
            if (answer := approval.answer) is not None:
                return _is_of(grant, answer.answer_id, answer.by, answer.option)
            return None if approval.closed_as is None else False
    settled = state.settled.get(grant.approval)
    return settled is not None and _is_of(grant, settled.answer_id, settled.by, settled.option)


def _is_of(grant: GrantProposed, answer_id: str | None, by: str | None, option: str | None) -> bool:
    """
    Whether exactly this answer proposed the grant. An answer of another person, or for another
    scope, activates nothing.
    """
    return (answer_id, by, SCOPES.get(option or "")) == (
        grant.answer,
        grant.granted_by,
        grant.scope,
    )
