"""
The beginning of a new instance by unseal, fork or restore, and the records that it carries over.

A new instance carries over records of the old one, re-sealed under a new subkey, so that rows of an
earlier instance never verify in a later one. Nothing owed is carried over: open calls become in
doubt, prompts are voided, queued inputs and deliveries are listed but not run, the turn is ended.
The old bytes stay where they are.
"""

from holdfast.errors import BrokenChain, NewerVersion, Refused
from holdfast.ids import InstanceId, SessionId, new_instance
from holdfast.ports.journal_store import Draft, Journal, Record
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.redaction import hidden_event
from holdfast.runtime.reports.builder import session_report
from holdfast.runtime.reports.types import SessionReport
from holdfast.runtime.runtime import Runtime
from holdfast.secrecy import secrecy_of
from holdfast.session.codec import decode, encode
from holdfast.session.commands import CloseInstance
from holdfast.session.decide import commit as deciding
from holdfast.session.events import (
    SessionBorn,
    SessionEvent,
    TailRepaired,
)
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.state import Delegate, Job, SessionState
from holdfast.session.transitions import IllegalTransition


class Carried:
    """The valid part of an earlier instance: every event up to the first that does not fit."""

    def __init__(
        self, session: SessionId, instance: InstanceId, *, until: int | None = None
    ) -> None:
        self._until = until
        self._state: SessionState = initial(session, instance)
        self.events: list[SessionEvent] = []
        self.times: list[int] = []  # the time of each event
        self.last_seq = 0
        self.records: list[Record] = []

    def fold(self, record: Record) -> None:
        if self._until is not None and record.seq > self._until:
            return
        event = decode(record.type, record.version, record.body, seq=record.seq)
        try:
            self._state = evolve(self._state, event, seq=record.seq, at=record.at)
        except IllegalTransition as exc:
            raise BrokenChain(
                f"record {record.seq} can't follow the ones before it: {exc}", at_seq=record.seq
            ) from exc
        self.last_seq = record.seq
        self.records.append(record)
        # Items that an earlier unseal attached are in the view, and summaries count them: they are
        # carried over, with the person who decided.
        if not isinstance(event, SessionBorn | TailRepaired):
            self.events.append(event)
            self.times.append(record.at)

    @property
    def delegates(self) -> tuple[Delegate, ...]:
        return tuple(self._state.delegates.values())

    @property
    def running_jobs(self) -> tuple[Job, ...]:
        return tuple(job for job in self._state.jobs.values() if job.ended is None)


async def carried_from(journal: Journal, *, until: int | None = None) -> Carried:
    """
    Collect the part of an instance that verifies and is consistent, up to record `until` if given.
    """
    carried = Carried(journal.session, journal.instance, until=until)
    try:
        await journal.load(carried.fold)
    except BrokenChain:
        pass  # genuine but inconsistent records: those before them are carried over
    except NewerVersion as exc:
        raise Refused(exc.message, code=exc.code, hint=exc.hint) from exc
    return carried


async def begin_instance(
    runtime: Runtime,
    session: SessionId,
    carried: Carried,
    *,
    origin: str,
    by: str,
    reason: str,
    from_session: SessionId,
    from_instance: InstanceId,
    attached: tuple[str, ...],
) -> SessionReport:
    if origin != "restore":  # an operator who restores a home has accepted its age
        await runtime.home.check_clock()
    instance = new_instance(runtime.world.random_bytes)
    created = SessionBorn(
        session=session,
        instance=instance,
        origin=origin,
        by=by,
        from_session=from_session,
        from_instance=from_instance,
        from_seq=carried.last_seq,
        carried=len(carried.events),
    )
    secrecy = secrecy_of(runtime.world.secrets)
    events: list[SessionEvent] = [
        created,
        *(hidden_event(secrecy, event) for event in carried.events),
    ]
    state = initial(session, instance)
    for number, event in enumerate(events, 1):
        state = evolve(state, event, seq=number, at=0)
    closing = deciding.commit(
        state,
        [CloseInstance(by=by, reason=reason, attached=tuple(map(secrecy.hidden, attached)))],
        now=0,
    )
    # Times never decrease along a journal, so the first record gets a time no later than the
    # carried ones. The home's journal has the time when this instance was created.
    times: list[int | None] = [carried.times[0] if carried.times else None, *carried.times]
    drafts = [Draft(*encode(event), at) for event, at in zip(events, times, strict=True)] + [
        Draft(*encode(event)) for event in closing.events
    ]
    journal = await runtime.world.store.create(session, instance, drafts, origin=origin, by=by)
    ledger = await Ledger.open(journal)
    try:
        return await session_report(ledger, now=runtime.world.clock.now_ms())
    finally:
        await ledger.close()
