"""
PgBouncer in transaction mode: every statement may meet another process of the server, so nothing
may depend on a connection. The contract holds, and what a pooler hides is said.
"""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from proof.rigs.pgbouncer import Pooler, find_pgbouncer
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.lists.index import PostgresIndex
from holdfast.adapters.postgres.lists.memory import PostgresMemory
from holdfast.adapters.postgres.server import DatabaseAddress, Wire, connect
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Fenced
from holdfast.ports.journal_store import Check
from holdfast.testing.conformance.index import row
from holdfast.testing.journal_notes import OPS, create_session, everything, say, texts
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_items import item


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


@pytest.fixture
def pooler(postgres: Cluster) -> Generator[Pooler, None, None]:
    program = find_pgbouncer()
    if program is None:
        reason = "needs PgBouncer (on Debian: pgbouncer), which is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    pooler = Pooler(program, postgres)
    yield pooler
    pooler.stop()


def through(world: PostgresWorld, pooler: Pooler, *, is_direct: bool = True) -> DatabaseAddress:
    url = world.place.url
    pooled = f"postgresql://owner@127.0.0.1:{pooler.port}/{url.rpartition('/')[2]}"
    return DatabaseAddress(pooled, world.place.schema, listen_url=url if is_direct else None)


async def opened(place: DatabaseAddress, folder: Path) -> PostgresStore:
    return await PostgresStore.open_home(place, folder, ahead_ms=None)


@in_loop
async def test_a_pooler_is_found_out(world: PostgresWorld, pooler: Pooler) -> None:
    for place, is_pooled in ((through(world, pooler), True), (world.place, False)):
        wire = await asyncio.to_thread(connect, place)
        assert wire.is_pooled is is_pooled
        wire.close()


@in_loop
async def test_the_contract_holds_through_a_pooler(world: PostgresWorld, pooler: Pooler) -> None:
    """More clients than connections, two nodes, one hot session."""
    other = world.folder.parent / "other"
    other.mkdir(mode=0o700)
    shutil.copytree(world.folder / "keys", other / "keys")
    await asyncio.to_thread(init_home, world.place, other)
    first = await opened(through(world, pooler), world.folder)
    second = await opened(through(world, pooler), other)
    try:
        here = await create_session(first)
        claim = await here.claim()
        assert claim is not None
        await say(here, "driven", epoch=claim.epoch, check=Check.FENCE)
        there = await second.open(OPS)
        assert await there.claim() is None

        async def write(journal: object, name: str) -> None:
            for number in range(20):
                await say(journal, f"{name}{number}")  # type: ignore[arg-type]  # either handle

        await asyncio.gather(write(here, "a"), write(there, "b"))
        found = texts(await everything(await second.open(OPS)))
        assert sorted(found[2:]) == sorted(f"{name}{n}" for name in "ab" for n in range(20))
        assert [each for each in found if each.startswith("a")] == [f"a{n}" for n in range(20)]
        await claim.release()
        taken = await there.claim()
        assert taken is not None
        with pytest.raises(Fenced):
            await say(here, "late", epoch=claim.epoch)
        assert (await first.verify_session(OPS)).verdict == "holds"
        index = PostgresIndex(first)
        await index.put(row(seq=3))
        assert await PostgresIndex(second).get(OPS) == row(seq=3)
        memory = PostgresMemory(first)
        assert await asyncio.to_thread(memory.add, item("1"))
    finally:
        await first.close()
        await second.close()


@pytest.mark.parametrize("is_direct", [True, False])
@in_loop
async def test_another_process_is_woken_with_and_without_a_direct_address(
    world: PostgresWorld, pooler: Pooler, *, is_direct: bool
) -> None:
    """Without `storage.listen_url` LISTEN would succeed and hear nothing, so heads are polled."""
    first = await world.store()
    journal = await create_session(first)
    second = await opened(through(world, pooler, is_direct=is_direct), world.folder)
    heard: list[str] = []
    try:
        async with second.notices.listen() as notices:
            await asyncio.sleep(0.5)
            await say(journal, "moved")
            first.notices.notify(OPS)
            async with asyncio.timeout(20):
                async for session in notices:
                    heard.append(session)
                    break
        assert (heard, second.notices.hears) == ([OPS], is_direct)
    finally:
        await second.close()


@pytest.mark.parametrize("wrong", ["nobody listens", "another database"])
@in_loop
async def test_a_direct_address_that_can_not_be_used_leaves_the_poll(
    world: PostgresWorld,
    pooler: Pooler,
    postgres: Cluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    wrong: str,
) -> None:
    """A process that heard only itself there would look for nothing else."""
    listen_url = postgres.url(port=1) if wrong == "nobody listens" else postgres.url("template1")
    first = await world.store()
    journal = await create_session(first)
    place = through(world, pooler)._replace(listen_url=listen_url)
    second = await opened(place, world.folder)
    heard: list[str] = []
    look, looked = second.notices._look, threading.Event()

    def seen(wire: Wire) -> None:
        look(wire)
        looked.set()

    monkeypatch.setattr(second.notices, "_look", seen)
    try:
        async with second.notices.listen() as notices:
            assert await asyncio.to_thread(looked.wait, 30)
            await say(journal, "moved")
            async with asyncio.timeout(20):
                async for session in notices:
                    heard.append(session)
                    break
        assert (heard, second.notices.hears) == ([OPS], False)
        assert "storage.listen_url can't be used" in caplog.text
    finally:
        await second.close()


@in_loop
async def test_a_process_that_stops_in_a_transaction_keeps_others_no_longer_than_it_may(
    world: PostgresWorld, pooler: Pooler
) -> None:
    """No setting of a connection bounds it: the function does, for its transaction."""
    store = await opened(through(world, pooler), world.folder)
    try:
        journal = await create_session(store)
        wire = await asyncio.to_thread(connect, through(world, pooler))

        def hold() -> list[tuple[object, ...]]:
            with wire.transaction():
                wire.rows("select * from hf.lock_head(%s)", (journal.tail.journal,))
                return wire.rows(
                    "select current_setting('lock_timeout'), "
                    "current_setting('idle_in_transaction_session_timeout')"
                )

        assert await asyncio.to_thread(hold) == [("10s", "5s")]
        wire.close()
        assert world.rows("select setting from pg_settings where name = 'lock_timeout'") == [("0",)]
    finally:
        await store.close()
