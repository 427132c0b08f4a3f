"""
One commit: verify all appends that wait for an instance's lock, let them decide in order, and keep
them with one write.

Nothing here uses a clock, an event loop or a wait. The fence trusts the chain from a head that the
caller verified before. If one append of a batch asks for the fence check, the whole batch gets it,
so no record is ever written on top of foreign bytes.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.adapters.inmemory.disk import (
    AT_LOCK,
    AT_WRITE,
    Crashed,
    Entry,
    Fault,
    InMemoryDisk,
    StoredInstance,
)
from holdfast.adapters.inmemory.settlement import UNSEAL, settle
from holdfast.errors import (
    BrokenChain,
    Busy,
    CutShort,
    Fenced,
    InDoubt,
    InvariantBroken,
    NotSaved,
    Refused,
    Takeover,
    Untrusted,
)
from holdfast.journal.record import check_draft
from holdfast.ports.journal_store import Appended, Check, Decide, Head, Record, SealMark, Section


@dataclass(eq=False)
class Pending:
    """
    One waiting append: its request, and then its outcome. Owned by the instance's lock once queued.
    """

    decide: Decide
    since: Head
    known: Head  # the handle's own position when it asked
    epoch: int | None
    check: Check
    drives: Callable[[int], bool]  # whether this process holds that epoch now
    writer: str
    now_ms: Callable[[], int]
    is_alive: Callable[[], bool]
    outcome: Appended | BaseException | None = None
    # Filled while the batch is decided.
    added: list[Record] = field(default_factory=list)


class _Deciding(threading.local):
    active = False


_deciding = _Deciding()


def refuse_nesting() -> None:
    if _deciding.active:
        raise InvariantBroken(
            "append called from inside a decide of the same thread; return drafts instead"
        )


def commit_waiting(
    disk: InMemoryDisk, stored: StoredInstance, *, seal: Callable[[StoredInstance, Untrusted], None]
) -> None:
    """Commit all waiting appends, with the instance's lock held. Every one gets an outcome."""
    batch = list(stored.waiting)
    stored.waiting.clear()
    living = [pending for pending in batch if pending.is_alive()]
    for pending in batch:
        if pending not in living:
            pending.outcome = Crashed()
    try:
        _commit(disk, stored, living)
    except Untrusted as exc:
        # First give every append its outcome: a process that dies while sealing must not affect the
        # others.
        _fail(living, exc)
        if stored.seal is None:
            seal(stored, exc)
    except (Busy, InDoubt, Refused, Crashed) as exc:
        _fail(living, exc)


def _fail(batch: Sequence[Pending], exc: BaseException) -> None:
    for pending in batch:
        if pending.outcome is None:
            pending.outcome = exc


def _commit(disk: InMemoryDisk, stored: StoredInstance, batch: Sequence[Pending]) -> None:
    if not batch:
        return
    if disk.take_fault(stored.session, AT_LOCK) is not None:
        raise Busy(
            f"{stored.session} is being written by somebody else; try again",
            holder="a fault",
            held_seconds=0.0,
        )
    if stored.is_over:
        raise instance_over(stored)
    if stored.seal is not None:
        raise error_from_mark(stored.seal)
    settle(stored)
    start, known = _verify_for(stored, batch)
    entries: list[Entry] = []
    for pending in batch:
        _decide(stored, pending, known, start, entries)
    if entries:
        _write(disk, stored, entries)
    # Commit point: the records of one caller are one batch, and the anchor's slots end one batch
    # apart.
    stored.move_anchor(
        *(Head(pending.added[-1].seq, pending.added[-1].mac) for pending in batch if pending.added)
    )
    for pending in batch:
        if pending.outcome is None:
            pending.outcome = _appended(pending, known, start)


def instance_over(stored: StoredInstance) -> Refused:
    return Refused(
        f"this instance of {stored.session} is over: it was deleted, restored or unsealed",
        code="unknown",
        hint="open it again",
    )


def _verify_for(stored: StoredInstance, batch: Sequence[Pending]) -> tuple[int, list[Record]]:
    """
    Return every record after the earliest position in the batch. Raise if the chain does not hold
    for one of them.
    """
    positions = [stored.anchor, *(pending.known for pending in batch)]
    longest = max(positions, key=lambda head: head.seq)
    if longest.seq > len(stored.entries):
        raise CutShort(
            f"{stored.session} ends at record {len(stored.entries)}, but record {longest.seq} was "
            "acknowledged",
            at_seq=len(stored.entries),
            hint=UNSEAL,
        )
    for head in positions:
        if head.seq and stored.entries[head.seq - 1].mac != head.mac:
            raise _taken(stored, head.seq)
    fenced = any(pending.check is Check.FENCE for pending in batch)
    start = (
        0
        if fenced
        else min(head.seq for head in (*positions, *(pending.since for pending in batch)))
    )
    records, damage = verified(stored, _head_at(stored, start), upto=longest.seq)
    if damage is not None:
        raise _taken(stored, start + len(records) + 1)
    return start, records


def _taken(stored: StoredInstance, seq: int) -> Takeover:
    what = f"record {seq} of {stored.session} was changed by somebody without our key"
    return Takeover(what, at_seq=seq - 1, hint=UNSEAL)


def _decide(
    stored: StoredInstance, pending: Pending, known: list[Record], start: int, entries: list[Entry]
) -> None:
    """
    Let one caller decide. Its records join `known`, so that later callers see them. Its errors
    concern no other caller.
    """
    if pending.epoch is not None and not pending.drives(pending.epoch):
        pending.outcome = Fenced(
            f"epoch {pending.epoch} does not drive {stored.session} any more; the last is "
            f"{stored.epoch}"
        )
        return
    if pending.since.seq > len(stored.entries) or (
        pending.since.seq and pending.since != _head_at(stored, pending.since.seq)
    ):
        pending.outcome = Refused(
            f"record {pending.since.seq} of {stored.session} is not the one given",
            code="unknown_head",
            hint="reopen it",
        )
        return
    before = Head(known[-1].seq, known[-1].mac) if known else _head_at(stored, start)
    now = max(pending.now_ms(), known[-1].at if known else _last_at(stored, start))
    _deciding.active = True
    try:
        drafts = list(pending.decide(Section(suffix=_after(pending.since, known, start), now=now)))
        for draft in drafts:
            check_draft(draft)
    except BaseException as exc:  # noqa: BLE001 - whatever the caller raises is the caller's
        pending.outcome = exc
        return
    finally:
        _deciding.active = False
    # A participant's records carry the epoch in which they were written.
    epoch = pending.epoch if pending.epoch is not None else stored.epoch
    for left, draft in enumerate(drafts, start=1 - len(drafts)):
        entry, record = stored.seal_entry(
            before, draft, at=now, epoch=epoch, writer=pending.writer, more=left < 0
        )
        entries.append(entry)
        known.append(record)
        pending.added.append(record)
        before = Head(record.seq, record.mac)


def _head_at(stored: StoredInstance, seq: int) -> Head:
    return Head(seq, stored.entries[seq - 1].mac) if seq else stored.genesis


def _last_at(stored: StoredInstance, seq: int) -> int:
    if seq == 0:
        return 0
    record = stored.read(_head_at(stored, seq - 1))
    if record is None:
        raise _taken(stored, seq)
    return record.at


def _write(disk: InMemoryDisk, stored: StoredInstance, entries: Sequence[Entry]) -> None:
    fault = disk.take_fault(stored.session, AT_WRITE)
    match fault:
        case None:
            stored.entries.extend(entries)
            disk.commits += 1
        case Fault.NOT_SAVED:
            raise NotSaved(f"nothing of {len(entries)} records of {stored.session} was saved")
        case Fault.IN_DOUBT_WRITTEN | Fault.CRASH_WRITTEN:
            stored.entries.extend(entries)
        case Fault.IN_DOUBT_PARTLY | Fault.CRASH_PARTLY:
            stored.entries.extend(entries[: len(entries) // 2])
        case Fault.IN_DOUBT_NOT_WRITTEN | Fault.CRASH_NOT_WRITTEN | Fault.BUSY:
            pass
    if fault in {Fault.IN_DOUBT_WRITTEN, Fault.IN_DOUBT_NOT_WRITTEN, Fault.IN_DOUBT_PARTLY}:
        raise InDoubt(
            f"{len(entries)} records of {stored.session} may or may not be saved",
            hint="reopen the session",
        )
    if fault in {Fault.CRASH_WRITTEN, Fault.CRASH_NOT_WRITTEN, Fault.CRASH_PARTLY}:
        raise Crashed


def _after(since: Head, known: Sequence[Record], start: int) -> tuple[Record, ...]:
    return tuple(known[since.seq - start :])


def _appended(pending: Pending, known: Sequence[Record], start: int) -> Appended:
    """
    A caller's suffix ends with its own records. Later records of the same commit belong to others.
    """
    upto = pending.added[-1].seq if pending.added else _seq_seen(pending, known, start)
    suffix = tuple(record for record in _after(pending.since, known, start) if record.seq <= upto)
    head = Head(suffix[-1].seq, suffix[-1].mac) if suffix else pending.since
    return Appended(head=head, suffix=suffix)


def _seq_seen(pending: Pending, known: Sequence[Record], start: int) -> int:
    return known[-1].seq if known else max(start, pending.since.seq)


def settled(stored: StoredInstance, upto: int = 0) -> tuple[list[Record], Untrusted | None]:
    """
    Return all records and the damage, if any. The instance's lock is held. A sealed instance is not
    changed.
    """
    damage: Untrusted | None = None
    if stored.seal is None:
        try:
            settle(stored)
        except Untrusted as exc:
            damage = exc
    records, found = verified(stored, stored.genesis, upto=max(stored.anchor.seq, upto))
    return records, damage or found


def verified(
    stored: StoredInstance, after: Head, upto: int
) -> tuple[list[Record], Untrusted | None]:
    """Return the records after `after` that verify, and the damage found before `upto`, if any."""
    records: list[Record] = []
    before = after
    while before.seq < len(stored.entries):
        record = stored.read(before)
        if record is None:
            where = before.seq + 1
            return records, BrokenChain(
                f"record {where} of {stored.session} does not verify",
                at_seq=before.seq,
                hint=UNSEAL,
            )
        records.append(record)
        before = Head(record.seq, record.mac)
    if before.seq < upto:
        missing = (
            f"{stored.session} ends at record {before.seq}, but record {upto} was acknowledged"
        )
        return records, CutShort(missing, at_seq=before.seq, hint=UNSEAL)
    return records, None


def mark_from_error(exc: Untrusted) -> SealMark:
    return SealMark(code=exc.code, detail=exc.message, at_seq=exc.at_seq)


def error_from_mark(mark: SealMark) -> Untrusted:
    kind = {"takeover": Takeover, "broken": BrokenChain, "cut_short": CutShort}.get(
        mark.code, Untrusted
    )
    return kind(mark.detail, at_seq=mark.at_seq, code=mark.code, hint=UNSEAL)
