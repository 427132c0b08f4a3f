"""Followers receive live text in order."""

import asyncio

from holdfast.ids import CallId, SessionId, TurnId
from holdfast.runtime.streams.feed import Delta, Feed
from holdfast.testing.loop import in_loop


@in_loop
async def test_a_character_that_a_read_cuts_in_two_is_heard_whole() -> None:
    feed, session, turn, call = Feed(), SessionId("ops/a"), TurnId("t1"), CallId("c-1")
    with feed.listen(session, asyncio.Event()) as ear:
        heard = feed.output_of(session, turn, call)
        for piece in (b"gr\xc3", b"\xbc", b"n\xff"):
            heard(piece)
        assert ear.take() == [
            Delta(session, turn, "output", text, call, offset=offset)
            for text, offset in (("gr", 0), ("\u00fc", 2), ("n\ufffd", 3))
        ]
