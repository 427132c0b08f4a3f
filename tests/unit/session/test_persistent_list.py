"""Persistent collections: old versions stay what they were, and what is remembered is bounded."""

import pytest

from holdfast.limits import DEDUP_INPUTS
from holdfast.session.persistent import PersistentList, Window


def test_adding_leaves_the_old_version_as_it_was() -> None:
    empty: PersistentList[int] = PersistentList()
    one, two = empty.add(1), empty.add(2)
    assert (list(empty), list(one), list(two), list(one.extend([3, 4]))) == (
        [],
        [1],
        [2],
        [1, 3, 4],
    )
    assert (len(one.extend([3, 4])), one.last(), empty.last()) == (3, 1, None)
    assert PersistentList().add(1) == one != two
    assert one.__hash__() == two.__hash__()
    assert repr(one) == "Trail([1])"


def test_the_order_of_walks_does_not_change_a_version() -> None:
    """
    A later version does not walk again over the entries of an earlier one. A version never sees
    entries that it does not have.
    """
    versions: list[PersistentList[int]] = [PersistentList()]
    for number in range(8):
        versions.append(versions[-1].add(number))
    branch = versions[3].add(100)
    assert [list(versions[at]) for at in (5, 2, 8, 8, 0, 3)] == [
        list(range(at)) for at in (5, 2, 8, 8, 0, 3)
    ]
    assert (list(branch), list(branch.add(101)), list(versions[4])) == (
        [0, 1, 2, 100],
        [0, 1, 2, 100, 101],
        [0, 1, 2, 3],
    )
    assert (list(versions[8].extend([8, 9])), len(versions[8])) == (list(range(10)), 8)


def test_the_newest_come_first_and_the_rest_is_not_walked() -> None:
    newest = PersistentList[int]().extend(range(1_000)).newest_first()
    assert ([next(newest), next(newest)], list(PersistentList[int]().newest_first())) == (
        [999, 998],
        [],
    )
    assert list(PersistentList[int]().extend([1, 2, 3]).newest_first()) == [3, 2, 1]


def test_a_long_trail_is_freed_and_compared_without_recursion() -> None:
    trail: PersistentList[int] = PersistentList().extend(range(200_000))
    assert trail == PersistentList().extend(range(200_000))
    del trail


@pytest.mark.parametrize("size", [1, 256, 257, 1000])
def test_a_window_keeps_the_last_ones_and_not_many_more(size: int) -> None:
    window: Window[int] = Window(size)
    for number in range(size + 1000):
        window = window.add(f"k{number}", number)
    newest = size + 999
    assert all(
        window.get(f"k{number}") == number for number in range(newest - size + 1, newest + 1)
    )
    assert len(dict(window.items())) <= size + 2 * 256
    assert window.get("k0") is None
    assert "k0" not in window


def test_a_windows_newest_entry_wins_and_old_versions_stay() -> None:
    old: Window[int] = Window(10).add("a", 1)
    new = old.add("a", 2)
    assert (old.get("a"), new.get("a"), old == new, old == Window(10).add("a", 1)) == (
        1,
        2,
        False,
        True,
    )
    assert hash(old) == hash(Window(10).add("a", 7))


def test_dedup_remembers_the_bound_and_forgets_beyond() -> None:
    """A duplicate older than the last 4,096 inputs is a new message."""
    window: Window[int] = Window(DEDUP_INPUTS)
    for number in range(DEDUP_INPUTS + 600):
        window = window.add(str(number), number)
    assert window.get("0") is None
    assert window.get(str(600)) == 600
