"""
One ledger for each session that this process has open, whatever comes between two steps of taking
it and putting it back.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from holdfast.adapters.inmemory import InMemoryDisk, InMemoryStore
from holdfast.errors import InvariantBroken
from holdfast.ids import InstanceId, SessionId
from holdfast.limits import KIB
from holdfast.ports.journal_store import Draft, Journal, SealMark
from holdfast.runtime.ledger.attempt import nothing
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import IDLE_BYTES_MAX, OpenSessions
from holdfast.session.codec import encode
from holdfast.session.events import SessionBorn
from holdfast.testing.loop import in_loop

X, Y, Z = SessionId("ops/x"), SessionId("ops/y"), SessionId("ops/z")
SECONDS = 60
ROOM_FOR_ONE, ROOM_FOR_TWO = 100 * KIB, 160 * KIB


class Slow(InMemoryStore):
    """Waits where a test says so; and says that it does."""

    def __init__(self) -> None:
        super().__init__(InMemoryDisk())
        self.opened = 0
        self.is_waiting, self.may_go = asyncio.Event(), asyncio.Event()
        self.waits_in: str | None = None

    async def _pass(self, where: str) -> None:
        if self.waits_in == where:
            self.is_waiting.set()
            await self.may_go.wait()

    async def open(self, session: SessionId) -> Journal:
        await self._pass("open")
        self.opened += 1
        return await super().open(session)

    async def current(self, session: SessionId) -> InstanceId | None:
        await self._pass("current")
        return await super().current(session)


@asynccontextmanager
async def slow(
    idle_bytes_max: int = IDLE_BYTES_MAX,
) -> AsyncGenerator[tuple[Slow, OpenSessions], None]:
    store = Slow()
    for name in (X, Y, Z):
        created = SessionBorn(
            session=name, instance=InstanceId("life"), origin="created", by="alice"
        )
        await (
            await store.create(
                name, InstanceId("life"), [Draft(*encode(created))], origin="created", by="alice"
            )
        ).close()
    opened = OpenSessions(store, idle_bytes_max=idle_bytes_max)
    try:
        async with asyncio.timeout(SECONDS):
            yield store, opened
    finally:
        await opened.close()
        await store.close()


async def used(opened: OpenSessions, session: SessionId, done: asyncio.Event) -> Ledger:
    async with opened.use(session) as ledger:
        await ledger.catch_up()
        await done.wait()
        return ledger


async def glanced_at(opened: OpenSessions, session: SessionId) -> None:
    async with opened.use(session):
        pass  # left before anybody else comes to their next step


def at_once() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@in_loop
async def test_one_that_others_need_the_room_of_while_it_is_taken_is_opened_anew() -> None:
    async with slow(ROOM_FOR_ONE) as (store, opened), asyncio.TaskGroup() as group:
        before = await used(opened, X, at_once())
        store.waits_in = "current"
        taking = group.create_task(used(opened, X, at_once()))
        await store.is_waiting.wait()
        await used(opened, Y, at_once())  # and X, idle for longer, is closed
        store.may_go.set()
        assert await taking is not before


@in_loop
async def test_one_that_is_taken_while_others_are_closed_stays_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with slow(ROOM_FOR_TWO) as (_, opened), asyncio.TaskGroup() as group:
        first, second = await used(opened, X, at_once()), await used(opened, Y, at_once())
        closing, may_close = asyncio.Event(), asyncio.Event()
        closed = first.close

        async def close_slowly() -> None:
            closing.set()
            await may_close.wait()
            await closed()

        monkeypatch.setattr(first, "close", close_slowly)
        leaving = group.create_task(used(opened, Z, at_once()))
        await closing.wait()
        async with opened.use(Y) as using:
            may_close.set()
            await leaving
            async with opened.use(Y) as beside:
                assert beside is using is second


@in_loop
async def test_a_second_caller_waits_while_the_session_is_opened() -> None:
    async with slow(0) as (store, opened), asyncio.TaskGroup() as group:
        done = asyncio.Event()
        store.waits_in = "open"
        leaves_at_once = group.create_task(glanced_at(opened, X))
        await store.is_waiting.wait()
        waits = group.create_task(used(opened, X, done))
        await asyncio.sleep(0)
        store.is_waiting.clear()
        go_first, store.may_go = store.may_go, asyncio.Event()
        go_first.set()
        await leaves_at_once
        await store.is_waiting.wait()  # the second one opens it now
        comes = group.create_task(used(opened, X, done))
        await asyncio.sleep(0)
        store.may_go.set()
        done.set()
        assert await waits is await comes
        assert store.opened == 2


@in_loop
async def test_unused_sessions_take_no_more_memory_than_allowed() -> None:
    """The longest unused one is closed first; one that is in use does not count, and stays."""
    async with slow(ROOM_FOR_ONE) as (_, opened):
        async with opened.use(X) as first:
            second = await used(opened, Y, at_once())
            assert set(opened.open_ledgers()) == {first, second}
        assert opened.open_ledgers() == (first,)
        third = await used(opened, Z, at_once())
        assert opened.open_ledgers() == (third,)
        assert opened._idle_bytes == third.weight
    assert opened._idle_bytes == 0


@in_loop
async def test_a_created_session_is_taken_in_and_not_opened_again() -> None:
    async with slow() as (store, opened):
        await opened.take_in(await new(store, "ops/new"))
        async with opened.use(SessionId("ops/new")) as ledger:
            assert ledger.state.seq == ledger.journal.head.seq
        assert store.opened == 0
        assert len(opened.open_ledgers()) == 1


@in_loop
async def test_a_created_session_that_another_task_has_opened_is_closed() -> None:
    """A session never has two ledgers: their states would drift apart."""
    async with slow() as (store, opened):
        journal = await new(store, "ops/new")
        async with opened.use(SessionId("ops/new")) as first:
            await opened.take_in(journal)
            assert opened.get(SessionId("ops/new")) is first
        with pytest.raises(InvariantBroken):
            await journal.append(nothing, since=journal.head)


@in_loop
async def test_a_created_session_that_was_sealed_meanwhile_is_left_to_its_next_user() -> None:
    async with slow() as (store, opened):
        journal = await new(store, "ops/new")
        await journal.seal(SealMark("broken", "changed by hand", 1))
        await opened.take_in(journal)
        async with opened.use(SessionId("ops/new")) as ledger:
            assert ledger.journal.sealed is not None


async def new(store: InMemoryStore, name: str) -> Journal:
    session = SessionId(name)
    created = SessionBorn(
        session=session, instance=InstanceId("life"), origin="created", by="alice"
    )
    return await store.create(
        session, InstanceId("life"), [Draft(*encode(created))], origin="created", by="alice"
    )
