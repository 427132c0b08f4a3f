"""
Keys: every session instance and every use has its own; which key a segment needs is never guessed.
"""

import pytest

from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import KeyMissing, Keyring, key_id, subkey

KEY = bytes(range(32))
OPS, INSTANCE = SessionId("ops/api"), InstanceId("i1")


def test_no_two_uses_share_a_key() -> None:
    """Moving a character from one part to the next gives another key: parts are length-prefixed."""
    made = {
        subkey(KEY, *parts)
        for parts in [
            ("record", "ops/api", "i1"),
            ("anchor", "ops/api", "i1"),
            ("record", "ops/api", "i2"),
            ("record", "ops/ap", "ii1"),
            ("recordo", "ps/api", "i1"),
            ("record", "ops/db", "i1"),
        ]
    }
    assert len(made) == 6
    assert len({subkey(bytes(32), "record", "ops/api", "i1"), *made}) == 7


def test_a_missing_generation_and_a_wrong_key_are_distinguished_from_damage() -> None:
    ring = Keyring({1: KEY}, OPS, INSTANCE)
    assert (ring.get(1).generation, ring.get(1).key_id) == (1, key_id(KEY))
    with pytest.raises(KeyMissing):
        ring.get(2)


def test_the_newest_key_is_the_one_of_the_highest_generation() -> None:
    assert [
        Keyring(dict.fromkeys(each, KEY), OPS, INSTANCE).newest for each in ((), (1,), (3, 1, 2))
    ] == [0, 1, 3]


def test_a_key_is_named_by_sixteen_digits() -> None:
    """Part of every segment's header: another length would be another format."""
    assert key_id(KEY) == subkey(KEY, "key id", "", "").hex()[:16]
