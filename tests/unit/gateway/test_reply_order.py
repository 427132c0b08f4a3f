"""
A reply that is being written never loses its beginning: its pieces come behind the record that
began it, and a follower who comes late gets all of it.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import Busy
from holdfast.gateway.streams import session_tail
from holdfast.gateway.streams.frames import Frame
from holdfast.gateway.streams.session_tail import SessionTail
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.runtime.streams.feed import Delta, Feed, Gap, Reply
from holdfast.testing.loop import in_loop

OPS, FIRST, T1 = SessionId("ops/api"), InstanceId("i1"), TurnId("t1")


def tail_over(monkeypatch: pytest.MonkeyPatch, *seqs: int) -> SessionTail:
    """A tail whose session has these records, and none of them read yet."""
    records = [SimpleNamespace(seq=seq, type="x") for seq in seqs]
    ledger = SimpleNamespace(
        instance=FIRST,
        driving=True,
        journal=SimpleNamespace(sealed=None),
        recent=records,
        state=SimpleNamespace(seq=seqs[-1]),
    )

    @asynccontextmanager
    async def use(_: SessionId) -> Any:
        yield ledger

    monkeypatch.setattr(
        session_tail, "frame_from_record", lambda each: Frame(b"r", each.seq, "t1", is_open=False)
    )
    service: Any = SimpleNamespace(live=SimpleNamespace(use=use))
    tail = SessionTail(OPS, asyncio.Semaphore(1), service)
    tail.instance = FIRST
    return tail


def order(tail: SessionTail) -> list[int | str]:
    return [frame.seq or frame.data.decode() for frame in tail.frames_from(0)]


@in_loop
async def test_a_piece_comes_behind_the_record_that_it_was_made_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records of the turn's start and its first pieces are found in one look."""
    tail = tail_over(monkeypatch, 1, 2, 3, 4)
    monkeypatch.setattr(
        session_tail,
        "frame_from_piece",
        lambda piece: Frame(getattr(piece, "text", "gap").encode(), None, "t1", is_open=False),
    )
    pieces = [
        Delta(OPS, T1, "text", "a", after=3),
        Delta(OPS, T1, "text", "b", after=3),
        Gap(OPS),
        Delta(OPS, T1, "output", "c", after=4),
    ]
    await tail.move(lambda: pieces)
    assert order(tail) == [1, 2, 3, "a", "b", "gap", 4, "c"]


@in_loop
async def test_a_look_that_fails_loses_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records could not be read: the pieces that were taken before come with the next look."""
    tail = tail_over(monkeypatch, 1, 2)
    looks = iter([Busy("the session is held"), None])

    async def new_records(ledger: Any) -> Any:
        if (error := next(looks, None)) is not None:
            raise error
        return [each for each in ledger.recent if each.seq > tail.seq]

    monkeypatch.setattr(tail, "_new_records", new_records)
    with pytest.raises(Busy):
        await tail.move(lambda: [Delta(OPS, T1, "text", "a", after=1)])
    assert tail.has_unplaced
    await tail.move(lambda: [Delta(OPS, T1, "text", "b", after=2)])
    texts = [json.loads(data)["text"] for data in _piece_data(tail)]
    assert (texts, tail.has_unplaced) == (["a", "b"], False)


@in_loop
async def test_looks_that_go_on_failing_keep_a_bounded_number_of_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond the bound a gap stands for them."""
    tail = tail_over(monkeypatch, 1)
    looks = iter([Busy("the session is held")] * 4)

    async def new_records(_: Any) -> Any:
        if (error := next(looks, None)) is not None:
            raise error
        return []

    monkeypatch.setattr(tail, "_new_records", new_records)
    for _ in range(4):
        with pytest.raises(Busy):
            await tail.move(lambda: [Delta(OPS, T1, "text", "a", after=1)] * 500)
    await tail.move()
    found = [json.loads(data) for data in _piece_data(tail)]
    assert found[0]["lost"] == "pieces"
    assert len(found) == 501


def _piece_data(tail: SessionTail) -> list[str]:
    lines = b"".join(frame.data for frame in tail.frames_from(0)).decode().split("\n")
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


@in_loop
async def test_a_follower_that_joins_after_a_record_gets_the_pieces_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tail = tail_over(monkeypatch, 1, 2)
    await tail.move(lambda: [Delta(OPS, T1, "text", "a", after=2)])
    assert [frame.seq for frame in tail.frames_from(tail.place_after(2))] == [None]
    assert [frame.seq for frame in tail.frames_from(tail.place_after(1))] == [2, None]
    assert [frame.seq for frame in tail.frames_from(tail.place_after(0))] == [1, 2, None]


def test_a_late_listener_gets_the_reply_from_its_beginning() -> None:
    feed = Feed()
    with Reply(feed, OPS, T1, 7) as reply:
        reply.hear("one ")
        reply.hear("two ")
        with feed.listen(OPS, asyncio.Event()) as late:
            reply.hear("three")
            heard = late.take()
    told = [(each.text, each.offset, each.after) for each in heard if isinstance(each, Delta)]
    assert told == [("one two ", 0, 7), ("three", 8, 7)]
    with feed.listen(OPS, asyncio.Event()) as later:
        assert later.take() == []
    assert not feed.live


def test_a_reply_is_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.runtime.streams import feed as module

    monkeypatch.setattr(module, "_REPLY_CHARS_MAX", 5)
    feed = Feed()
    with Reply(feed, OPS, T1, 1) as reply:
        for text in ("abc", "def", "ghi"):
            reply.hear(text)
        with feed.listen(OPS, asyncio.Event()) as late:
            (first,) = late.take()
    assert isinstance(first, Delta)
    assert (first.text, first.offset) == ("abc", 0)
