"""
Settle an instance with its lock held: judge its anchor and its end together, by the cases of
`journal/anchor_cases.py`.

Whole batches past the anchor count from here on. Part of a batch at the end was never acknowledged;
it is cut, quarantined and recorded.
"""

from holdfast.adapters.inmemory.disk import StoredInstance
from holdfast.errors import BrokenChain, CutShort
from holdfast.journal.anchor_cases import AnchorAction, end_of, judge
from holdfast.journal.segment import repaired_draft
from holdfast.journal.verify import doubtful
from holdfast.ports.journal_store import Head, Record

UNSEAL = "look at it with `holdfast verify`, then `holdfast sessions unseal`"
TORN_TAIL = "torn_tail"


def settle(stored: StoredInstance) -> None:
    """
    Raise CutShort for a state without a legal cause. Otherwise both slots are readable and the
    journal ends with a whole batch.
    """
    records = _past_anchor(stored)
    ends = [Head(record.seq, record.mac) for record in records if not record.more]
    whole = ends[-1].seq if ends else stored.anchor.seq
    torn = len(stored.entries) > whole and (len(records) == len(stored.entries) - stored.anchor.seq)
    slots = stored.read_slots()
    case = judge(
        slots, end_of(reaches=len(stored.entries) >= stored.anchor.seq, past=bool(ends), torn=torn)
    )
    if case.action is AnchorAction.CUT_SHORT:
        missing = (
            f"{stored.session} ends at record {len(stored.entries)}, but record "
            f"{stored.anchor.seq} was acknowledged"
        )
        why = (
            missing
            if len(stored.entries) < stored.anchor.seq
            else f"{stored.session}: {doubtful(slots)}"
        )
        raise CutShort(why, at_seq=min(len(stored.entries), stored.anchor.seq), hint=UNSEAL)
    stored.move_anchor(*ends)
    if torn:
        _cut(stored, whole)


def _past_anchor(stored: StoredInstance) -> list[Record]:
    """
    Return the records past the anchor that verify. Their readers judge those after the first one
    that does not.
    """
    records: list[Record] = []
    before = stored.anchor
    while stored.anchor.seq <= before.seq < len(stored.entries):
        record = stored.read(before)
        if record is None:
            break
        records.append(record)
        before = Head(record.seq, record.mac)
    return records


def _cut(stored: StoredInstance, whole: int) -> None:
    before, last = stored.genesis, None
    while before.seq < whole:
        record = last = stored.read(before)
        if record is None:  # no record is written on top of foreign bytes
            raise BrokenChain(
                f"record {before.seq + 1} of {stored.session} does not verify",
                at_seq=before.seq,
                hint=UNSEAL,
            )
        before = Head(record.seq, record.mac)
    cut = b"".join(entry.header + entry.body + entry.mac for entry in stored.entries[whole:])
    stored.quarantine.append((TORN_TAIL, cut))
    del stored.entries[whole:]
    at, epoch = (last.at, last.epoch) if last is not None else (0, 0)
    number = len(stored.quarantine) - 1
    where = f"memory:{stored.session}/{stored.instance}/quarantine/{number}-{TORN_TAIL}"
    entry, record = stored.seal_entry(
        before, repaired_draft(len(cut), where), at=at, epoch=epoch, writer="repair"
    )
    stored.entries.append(entry)
    stored.move_anchor(Head(record.seq, record.mac))
