"""
New instances of sessions: unseal, fork and restore. And the end of a session: delete.

A new instance carries over records of the old one, re-sealed under a new subkey, so that rows of an
earlier instance never verify in a later one. Nothing owed is carried over: open calls become in
doubt, prompts are voided, queued inputs and deliveries are listed but not run, the turn is ended.
The old bytes stay where they are.
"""

import contextlib

import msgspec

from holdfast import limits
from holdfast.errors import BrokenChain, HoldfastError, NewerVersion, Refused
from holdfast.ids import InstanceId, SessionId, session_id
from holdfast.ports.journal_store import Draft, Journal, Record
from holdfast.runtime.delegates.delegation import refuse_delegates_name
from holdfast.runtime.jobs.orphans import end_jobs, end_jobs_and_keep_results
from holdfast.runtime.jobs.watcher import running_jobs
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.lifecycle.lost_calls import lost_calls
from holdfast.runtime.lifecycle.new_instance import new_instance
from holdfast.runtime.redaction import hidden_event, refuse_secrets
from holdfast.runtime.reports.builder import session_report
from holdfast.runtime.reports.types import SessionReport
from holdfast.runtime.service import Service
from holdfast.secrecy import secrecy_of
from holdfast.session.codec import decode, encode
from holdfast.session.commands import CloseLife
from holdfast.session.decide import commit as deciding
from holdfast.session.events import (
    LifeCarried,
    SessionBorn,
    SessionEvent,
    TailRepaired,
)
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.state import Delegate, Job, SessionState
from holdfast.session.transitions import IllegalTransition

# For one reply or outcome: the part that the model would have seen.
_ATTACHED_CHARS_MAX = limits.TOOL_OUTPUT_VIEW_BYTES
# For all of them together: they are one record of the new instance.
_ATTACHED_BYTES_MAX = limits.RECORD_BYTES_MAX // 2


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

    @property
    def at_turn_boundary(self) -> bool:
        return not self._state.turns and not self._state.queued


async def unseal(service: Service, session: str, *, by: str, reason: str) -> SessionReport:
    """
    Continue from the last record that verifies, in a new instance. Refused if the session is not
    sealed.
    """
    name = session_id(session)
    refuse_secrets(service.world, reason, by, what="reason")
    journal = await service.world.store.open(name)
    try:
        if journal.sealed is None:
            raise Refused(
                f"{name} is not sealed", code="not_sealed", hint="there is nothing to unseal"
            )
        carried = await carried_from(journal)
        await end_jobs_and_keep_results(service.world, journal, carried.running_jobs)
        known = {
            each
            for event in carried.events
            if isinstance(event, LifeCarried)
            for each in event.attached
        }
        told = (*await _attached(journal), *await lost_calls(journal, after=carried.last_seq))
        attached = _bounded([each for each in told if each not in known])
    finally:
        await journal.close()
    why = f"unsealed by {by}: {reason}"
    report = await _begin(
        service,
        name,
        carried,
        origin="unseal",
        by=by,
        reason=why,
        from_session=name,
        from_instance=journal.instance,
        attached=attached,
    )
    await service.delegation.stop_orphans(carried.delegates)
    return report


async def begun_beyond(service: Service, session: str) -> tuple[str, ...]:
    """The calls past the damage that `unseal` would report, for the person who decides."""
    journal = await service.world.store.open(session_id(session))
    try:
        return await lost_calls(journal, after=(await carried_from(journal)).last_seq)
    finally:
        await journal.close()


async def delete(service: Service, session: SessionId, *, by: str) -> None:
    """
    Delete a session permanently. Its jobs end first, also those of a session that cannot be read.

    A crash in between leaves a session whose jobs are found gone, and in doubt. While another
    process holds its write lock, nothing of it ends.
    """
    if (busy := await service.world.store.held_by(session)) is not None:
        raise busy
    running: tuple[Job, ...] = ()
    with contextlib.suppress(HoldfastError):
        async with service.shelf.use(session) as ledger:
            await ledger.refresh()
            running = running_jobs(ledger)
    await end_jobs(service.world, await service.world.store.current(session), running)
    await service.world.store.delete(session, by=by)
    service.world.index.forget(session)


async def fork(service: Service, session: str, into: str, *, at_seq: int, by: str) -> SessionReport:
    """Copy a session up to a turn's end, under another name, without its approvals."""
    source, target = session_id(session), session_id(into)
    refuse_delegates_name(target)
    journal = await service.world.store.open(source)
    try:
        if journal.sealed is not None:
            raise Refused(
                f"{source} is sealed; it can't be forked",
                code="sealed",
                hint=f"`holdfast sessions unseal {source}` first",
            )
        carried = await carried_from(journal, until=at_seq)
    finally:
        await journal.close()
    if not carried.at_turn_boundary or not 0 < at_seq <= journal.head.seq:
        what = (
            "is inside a turn"
            if 0 < at_seq <= journal.head.seq
            else f"is not there; its records go from 1 to {journal.head.seq}"
        )
        raise Refused(
            f"record {at_seq} of {source} {what}",
            code="not_a_boundary",
            hint="name the seq of a turn_ended record",
        )
    why = f"forked from {source} at {carried.last_seq} by {by}"
    return await _begin(
        service,
        target,
        carried,
        origin="fork",
        by=by,
        reason=why,
        from_session=source,
        from_instance=journal.instance,
        attached=(),
    )


async def restore_all(service: Service, *, by: str) -> tuple[SessionReport, ...]:
    """
    After a restore, continue every session in a new instance, so that nothing owed runs again.
    Sealed sessions stay sealed.
    """
    reports = []
    for name in await service.world.store.sessions():
        journal = await service.world.store.open(name)
        try:
            if journal.sealed is not None:
                continue
            carried = await carried_from(journal)
        finally:
            await journal.close()
        reports.append(
            await _begin(
                service,
                name,
                carried,
                origin="restore",
                by=by,
                reason=f"restored from a backup by {by}",
                from_session=name,
                from_instance=journal.instance,
                attached=(),
            )
        )
    return tuple(reports)


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


class _Kept(msgspec.Struct):
    """The fields of a quarantined reply or outcome that are reported."""

    text: str = ""
    outcome: str | None = None


async def _attached(journal: Journal) -> tuple[str, ...]:
    """Describe the outcomes that could not be journalled when the session was sealed."""
    told: list[str] = []
    for where in await journal.quarantined():
        try:
            kind, data = await journal.read_quarantined(where)
            kept = (
                msgspec.json.decode(data, type=_Kept) if kind in ("reply", "tool_outcome") else None
            )
        except BrokenChain:
            told.append(f"something that is not ours, or was changed ({where})")
        except (Refused, ValueError, RecursionError) as exc:
            if not isinstance(exc, Refused) or exc.code != "unknown":
                told.append(f"something unreadable ({where})")
        else:
            told += [_kept_in_words(kept, where)] if kept is not None else []
    return tuple(told)


def _bounded(told: list[str]) -> tuple[str, ...]:
    """As many items as one record holds, and the number of the rest."""
    room, fits = _ATTACHED_BYTES_MAX, 0
    for each in told:
        room -= len(msgspec.json.encode(each))
        if room < 0:
            break
        fits += 1
    more = len(told) - fits
    return (
        *told[:fits],
        *([f"{more} more; `holdfast sessions show` says where they are kept"] if more else []),
    )


def _kept_in_words(kept: _Kept, where: str) -> str:
    """
    Describe one item, with no more of its text than a model sees of any result: all attached items
    are one record.
    """
    text = (
        kept.text
        if len(kept.text) <= _ATTACHED_CHARS_MAX
        else f"{kept.text[:_ATTACHED_CHARS_MAX]}... (the rest is in {where})"
    )
    return (
        f"a reply: {text}" if kept.outcome is None else f"a tool's outcome ({kept.outcome}): {text}"
    )


async def _begin(
    service: Service,
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
        await service.home.check_clock()
    instance = new_instance()
    born = SessionBorn(
        session=session,
        instance=instance,
        origin=origin,
        by=by,
        from_session=from_session,
        from_instance=from_instance,
        from_seq=carried.last_seq,
        carried=len(carried.events),
    )
    secrecy = secrecy_of(service.world.secrets)
    events: list[SessionEvent] = [born, *(hidden_event(secrecy, event) for event in carried.events)]
    state = initial(session, instance)
    for number, event in enumerate(events, 1):
        state = evolve(state, event, seq=number, at=0)
    closing = deciding.commit(
        state,
        [CloseLife(by=by, reason=reason, attached=tuple(map(secrecy.hidden, attached)))],
        now=0,
    )
    # Times never decrease along a journal, so the first record gets a time no later than the
    # carried ones. The home's journal has the time when this instance was created.
    times: list[int | None] = [carried.times[0] if carried.times else None, *carried.times]
    drafts = [Draft(*encode(event), at) for event, at in zip(events, times, strict=True)] + [
        Draft(*encode(event)) for event in closing.events
    ]
    journal = await service.world.store.create(session, instance, drafts, origin=origin, by=by)
    ledger = await Ledger.open(journal)
    try:
        return await session_report(ledger, now=service.world.clock.now_ms())
    finally:
        await ledger.close()
