"""
The anchor's fuzz target, walked exhaustively where it can be: every crash, and every pair of moves
without a key.
"""

from itertools import product

from proof.fuzz.anchors import attacked, crashed


def test_a_crash_is_never_reported_as_tampering() -> None:
    """
    L7, D1: any number of durable batches, any lag of the cell, a slot and a batch torn anywhere.
    """
    for durable, lag, torn, tail in product(
        range(9), range(9), range(0, 193, 24), (0, 1, 150, 700)
    ):
        found, seq = crashed(durable, lag, torn, tail)
        assert found.verdict in {"holds", "torn_tail"}, (durable, lag, torn, tail, found)
        assert found.at_seq == seq, (durable, lag, torn, tail, found)


def test_no_two_moves_hide_what_was_acknowledged() -> None:
    """D4."""
    accused = 0
    moves = [bytes(each) for each in product(range(6), (0, 1, 2, 77), (0, 1, 200))]
    for first, second in product(moves, repeat=2):
        found, seq = attacked(first + second)
        accused += found.verdict in {"broken", "cut_short"}
        assert found.verdict in {"broken", "cut_short"} or found.at_seq >= seq, (
            first,
            second,
            found,
        )
    assert accused > len(moves)
