"""The last records of a journal: bounded, without a gap, and used by several threads."""

import sys
import threading
from collections.abc import Generator

import pytest

from holdfast.adapters.recent_records import RecentRecords
from holdfast.journal.record import Record


def record(seq: int, body: bytes = b"{}") -> Record:
    return Record(seq, 0, 0, "w", "note", 1, body, bytes(32), more=False)


def recent(*seqs: int) -> RecentRecords:
    found = RecentRecords(records_max=4, bytes_max=100)
    found.add(map(record, seqs))
    return found


def seqs(found: RecentRecords, since: int = 0) -> list[int]:
    return [each.seq for each in found.since(since)]


def test_the_last_records_are_kept_in_order_and_once() -> None:
    found = recent(1, 2, 3)
    found.add(map(record, (2, 3, 4, 5)))
    assert (seqs(found), seqs(found, 4)) == ([2, 3, 4, 5], [4, 5])
    assert [found.reach_back_to(seq) for seq in (1, 2, 9)] == [False, True, True]


def test_nothing_is_kept_from_before_a_gap() -> None:
    """A caller who gets these records must not miss one between them."""
    found = recent(1, 2)
    found.add([record(4)])
    assert seqs(found) == [4]


def test_large_records_make_others_leave_and_the_last_one_stays() -> None:
    found = recent(1, 2)
    found.add([record(3, bytes(99))])
    assert seqs(found) == [3]
    found.add([record(4, bytes(500))])
    assert seqs(found) == [4]
    found.clear()
    assert (seqs(found), found.reach_back_to(9)) == ([], False)
    found.add([record(5)])
    assert seqs(found) == [5]


@pytest.fixture
def hasty() -> Generator[None, None, None]:
    """Let the interpreter change threads as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty")
def test_one_thread_reads_while_another_one_adds() -> None:
    """A reader without the lock remembers what it has verified, while a writer looks there."""
    found = RecentRecords(records_max=64, bytes_max=1 << 20)
    records = [record(seq) for seq in range(1, 300_001)]

    def add() -> None:
        for each in records:
            found.add([each])

    adding = threading.Thread(target=add)
    adding.start()
    while adding.is_alive():
        known = seqs(found)
        assert not known or known == list(range(known[0], known[-1] + 1))
    adding.join()
