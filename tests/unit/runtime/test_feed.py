"""Followers receive live text in order."""

import asyncio

from holdfast.ids import CallId, SessionId, TurnId
from holdfast.runtime.streams.feed import CallOutput, Delta, Feed
from holdfast.testing.loop import in_loop


@in_loop
async def test_a_character_that_a_read_cuts_in_two_is_heard_whole() -> None:
    feed, session, turn, call = Feed(), SessionId("ops/a"), TurnId("t1"), CallId("c-1")
    with feed.listen(session, asyncio.Event()) as subscription:
        output = CallOutput(feed, session, turn, call)
        for piece in (b"gr\xc3", b"\xbc", b"n\xff"):
            output.hear(piece)
        assert subscription.take() == [
            Delta(session, turn, "output", text, call, offset=offset)
            for text, offset in (("gr", 0), ("\u00fc", 2), ("n\ufffd", 3))
        ]


@in_loop
async def test_a_follower_who_comes_late_hears_the_last_of_a_running_calls_output() -> None:
    feed, session, turn, call = Feed(), SessionId("ops/a"), TurnId("t1"), CallId("c-1")
    with CallOutput(feed, session, turn, call) as output:
        for at in range(3000):
            output.hear(f"line {at:04}\n".encode())
        with feed.listen(session, asyncio.Event()) as subscription:
            output.hear(b"now\n")
            last, now = subscription.take()
    assert isinstance(last, Delta)
    assert isinstance(now, Delta)
    assert (last.offset, len(last.text), last.text[-10:]) == (10_000, 20_000, "line 2999\n")
    assert (now.offset, now.text) == (30_000, "now\n")
    with feed.listen(session, asyncio.Event()) as subscription:
        assert subscription.take() == []  # the call is over: its record has the output
