"""G4: one follower's place in a tail. Nothing comes twice, and nothing crosses its audience."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.gateway.routes import events as event_routes
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams import session_tail
from holdfast.gateway.streams.frames import Frame
from holdfast.gateway.streams.session_tail import SessionStream, SessionTail
from holdfast.ids import InstanceId, SessionId
from holdfast.session.home.events import TokenAdded
from holdfast.testing.loop import in_loop

OPS, FIRST, SECOND = SessionId("ops/api"), InstanceId("i1"), InstanceId("i2")


def follower_of(audience: str, service: Any = None) -> SessionStream:
    added = TokenAdded(
        name="n",
        digest="d",
        person="alice",
        scopes=("read",),
        audience=audience,
        expires_at=None,
        by="tests",
    )
    tail = SessionTail(OPS, asyncio.Semaphore(1), service)
    tail.instance = FIRST
    follower = SessionStream(tail, Bearer.of(added), 0)
    tail.followers.add(follower)
    return follower


def record(seq: int, turn: str | None = "t1") -> Frame:
    return Frame(b"<%d>" % seq, seq, turn, is_open=False)


@in_loop
async def test_a_slow_follower_that_read_the_journal_gets_no_record_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The journal's page goes beyond the first records that the tail still keeps."""
    monkeypatch.setattr(session_tail, "_KEPT_FRAMES", 4)
    follower = follower_of("personal")
    tail = follower.tail
    written = [record(seq) for seq in range(1, 10)]

    async def page_after(cursor: int) -> list[Frame]:
        return [each for each in written if each.seq is not None and each.seq > cursor]

    monkeypatch.setattr(tail, "page_after", page_after)
    for each in written[:2]:
        tail.keep(each)
    heard = await follower.read()
    for each in written[2:]:
        tail.keep(each)
    assert tail.kept_after > follower.cursor, "it has fallen behind what the tail keeps"
    for _ in range(4):
        heard += await follower.read()
    assert [seq for seq in range(1, 10) for _ in range(heard.count(b"<%d>" % seq))] == [
        *range(1, 10)
    ]
    assert b"event: gap" in heard


@in_loop
async def test_a_narrow_token_does_not_see_records_of_an_unknown_reader_set() -> None:
    """A record of no turn, of a turn nobody has read of, and any while the reader sets are unknown."""
    follower = follower_of("team:ops")
    tail = follower.tail
    tail.reader_sets = {"t1": ("team", "team:ops"), "t2": ("team", "team:dev")}
    for each in (record(1), record(2, "t2"), record(3, "t3"), record(4, None)):
        tail.keep(each)
    assert await follower.read() == b"<1>"
    tail.reader_sets = None
    tail.keep(record(5))
    assert await follower.read() == b""


@in_loop
async def test_a_tail_takes_nothing_from_a_later_instance_of_its_session() -> None:
    """Neither records nor pieces nor a page of the journal: its followers end instead."""

    @asynccontextmanager
    async def use(_: SessionId) -> Any:
        yield SimpleNamespace(instance=SECOND)  # anything else of it would be an AttributeError

    service = SimpleNamespace(live=SimpleNamespace(use=use))
    heard: list[str] = []
    moved, paged = follower_of("personal", service), follower_of("personal", service)
    await moved.tail.move(lambda: heard.append("a piece"))
    assert await paged.tail.page_after(0) == []
    assert heard == []
    assert (moved.ended, paged.ended) == ("new_instance", "new_instance")


@in_loop
async def test_a_page_of_the_journal_ends_where_the_tail_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader set of a later record is not known yet, so it would be left out and never come."""

    @asynccontextmanager
    async def use(_: SessionId) -> Any:
        yield SimpleNamespace(instance=FIRST)

    async def page(_: Any, after: int) -> list[Any]:
        return [SimpleNamespace(seq=seq) for seq in range(after + 1, 6)]

    monkeypatch.setattr(session_tail, "frame_from_record", lambda each: record(each.seq))
    live = SimpleNamespace(use=use, records_after=page)
    tail = follower_of("personal", SimpleNamespace(live=live)).tail
    tail.seq = 3
    assert [each.seq for each in await tail.page_after(1)] == [2, 3]


class Waiting(msgspec.Struct):
    """As much of a prompt as decides who is told of it."""

    id: str
    may_answer: tuple[str, ...]
    audience: str
    boundary: str


@in_loop
async def test_a_stream_begins_with_the_prompts_within_its_audience_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prompts = [
        Waiting("ours", ("alice",), "team", "team:ops"),
        Waiting("another-teams", ("alice",), "team", "team:dev"),
        Waiting("her-own", ("alice",), "personal", "personal:alice"),
        Waiting("another-persons", ("bob",), "team", "team:ops"),
    ]

    @asynccontextmanager
    async def use(_: SessionId) -> Any:
        yield None

    monkeypatch.setattr(event_routes, "prompts_of", lambda _: prompts)
    gateway: Any = SimpleNamespace(service=SimpleNamespace(live=SimpleNamespace(use=use)))
    told = await event_routes.EventRoutes(gateway)._standing(OPS, follower_of("team:ops").bearer)
    assert [each.id for each in prompts if f'"{each.id}"'.encode() in told] == ["ours"]
