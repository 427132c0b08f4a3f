"""
Settle an instance with its lock held: judge its anchor and its end together, by the cases of
`journal/anchor_cases.py`.

Whole batches past the anchor count from here on. Part of a batch at the end was never acknowledged;
it is cut, quarantined and recorded.
"""

from holdfast.adapters.inmemory.disk import Life
from holdfast.errors import BrokenChain, CutShort
from holdfast.journal.anchor_cases import Action, end_of, judge
from holdfast.journal.segment import repaired_draft
from holdfast.journal.verify import doubtful
from holdfast.ports.journal_store import Head, Record

UNSEAL = "look at it with `holdfast verify`, then `holdfast sessions unseal`"
TORN_TAIL = "torn_tail"


def settle(life: Life) -> None:
    """
    Raise CutShort for a state without a legal cause. Otherwise both slots are readable and the
    journal ends with a whole batch.
    """
    records = _past_anchor(life)
    ends = [Head(record.seq, record.mac) for record in records if not record.more]
    whole = ends[-1].seq if ends else life.anchor.seq
    torn = len(life.entries) > whole and (len(records) == len(life.entries) - life.anchor.seq)
    slots = life.look()
    case = judge(
        slots, end_of(reaches=len(life.entries) >= life.anchor.seq, past=bool(ends), torn=torn)
    )
    if case.action is Action.CUT_SHORT:
        missing = f"{life.session} ends at record {len(life.entries)}, but record {life.anchor.seq} was acknowledged"
        why = (
            missing if len(life.entries) < life.anchor.seq else f"{life.session}: {doubtful(slots)}"
        )
        raise CutShort(why, at_seq=min(len(life.entries), life.anchor.seq), hint=UNSEAL)
    life.move_anchor(*ends)
    if torn:
        _cut(life, whole)


def _past_anchor(life: Life) -> list[Record]:
    """
    Return the records past the anchor that verify. Their readers judge those after the first one
    that does not.
    """
    records: list[Record] = []
    before = life.anchor
    while life.anchor.seq <= before.seq < len(life.entries):
        record = life.read(before)
        if record is None:
            break
        records.append(record)
        before = Head(record.seq, record.mac)
    return records


def _cut(life: Life, whole: int) -> None:
    before, last = life.genesis, None
    while before.seq < whole:
        record = last = life.read(before)
        if record is None:  # no record is written on top of foreign bytes
            raise BrokenChain(
                f"record {before.seq + 1} of {life.session} does not verify",
                at_seq=before.seq,
                hint=UNSEAL,
            )
        before = Head(record.seq, record.mac)
    cut = b"".join(entry.header + entry.body + entry.mac for entry in life.entries[whole:])
    life.quarantine.append((TORN_TAIL, cut))
    del life.entries[whole:]
    at, epoch = (last.at, last.epoch) if last is not None else (0, 0)
    where = (
        f"memory:{life.session}/{life.instance}/quarantine/{len(life.quarantine) - 1}-{TORN_TAIL}"
    )
    entry, record = life.seal_entry(
        before, repaired_draft(len(cut), where), at=at, epoch=epoch, writer="repair"
    )
    life.entries.append(entry)
    life.move_anchor(Head(record.seq, record.mac))
