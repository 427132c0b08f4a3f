"""
Real replication: a standby that streams and then lags is promoted, a wait for a standby is
cancelled, and a dump is put back. Nothing that was acknowledged is lost unseen.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import CutShort, InDoubt, Untrusted
from holdfast.testing.journal_notes import OPS, OTHER, create_session, everything, say, texts
from holdfast.testing.loop import in_loop


@pytest.fixture
def world(cluster: Cluster, tmp_path: Path) -> Generator[PostgresWorld, None, None]:
    world = PostgresWorld(cluster.url(), "hf", tmp_path / "node")
    yield world
    world.close()


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await is_so():  # noqa: ASYNC110  the server has no event for it
            await asyncio.sleep(0.02)


def _one(cluster: Cluster, sql: str) -> Any:
    with psycopg.connect(cluster.url(), autocommit=True) as owner:
        row = owner.execute(sql.encode()).fetchone()
        return row[0] if row is not None else None


@in_loop
async def test_a_standby_that_streamed_and_then_lagged_is_promoted(
    world: PostgresWorld, cluster: Cluster
) -> None:
    """It has what it received. The session that lost a record is sealed; the other one goes on."""
    store = await world.store()
    ops, other = await create_session(store), await create_session(store, OTHER)
    standby = cluster.standby().start()
    try:
        await say(ops, "asked")
        await say(other, "settled")
        sent = _one(cluster, "select pg_current_wal_lsn()")

        async def has_it() -> bool:
            return bool(_one(standby, f"select pg_last_wal_replay_lsn() >= '{sent}'"))

        await _until(has_it)
        with (standby.data / "postgresql.auto.conf").open("a") as file:
            file.write("primary_conninfo = 'host=127.0.0.1 port=1'\n")
        standby.run("pg_ctl", "-D", str(standby.data), "reload")

        async def streams_no_more() -> bool:
            return _one(cluster, "select count(*) from pg_stat_replication") == 0

        await _until(streams_no_more)
        await say(ops, "denied")
        await store.close()
        cluster.kill()
        standby.run("pg_ctl", "-D", str(standby.data), "-w", "promote")
        place = DatabaseAddress(standby.url(), "hf")
        promoted = await PostgresStore.open_home(place, world.folder, ahead_ms=None)
        try:
            assert OPS in await promoted.seals()
            with pytest.raises(Untrusted):
                await say(await promoted.open(OPS), "approved")
            assert texts(await everything(await promoted.open(OPS))) == ["born", "asked"]
            await say(await promoted.open(OTHER), "goes on")
        finally:
            await promoted.close()
    finally:
        standby.remove()


@in_loop
async def test_a_cancelled_wait_for_the_standby_is_in_doubt_and_a_cancelled_task_is_not_one(
    world: PostgresWorld, cluster: Cluster
) -> None:
    """The server reports success for it. The record is there, and no standby has it."""
    store = await world.store()
    journal = await create_session(store)
    cluster.configure(synchronous_standby_names="ghost")
    cluster.run("pg_ctl", "-D", str(cluster.data), "reload")
    task = asyncio.ensure_future(say(journal, "alone"))
    waits = "from pg_stat_activity where wait_event = 'SyncRep'"

    async def waits_for_it() -> bool:
        return _one(cluster, f"select count(*) {waits}") == 1

    await _until(waits_for_it)
    task.cancel()
    await asyncio.sleep(0.2)
    assert await waits_for_it()
    assert not task.done()
    second = asyncio.ensure_future(say(journal, "too"))
    _one(cluster, f"select pg_cancel_backend(pid) {waits}")
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(InDoubt):
        await second
    cluster.configure(synchronous_standby_names="")
    cluster.run("pg_ctl", "-D", str(cluster.data), "reload")
    reopened = await (await world.store()).open(OPS)
    assert texts(await everything(reopened)) == ["born", "alone"]


@pytest.mark.parametrize("is_creation", [False, True])
@in_loop
async def test_a_record_that_is_found_after_a_cut_waits_for_the_standby_too(
    world: PostgresWorld, cluster: Cluster, *, is_creation: bool
) -> None:
    """
    The server shows a record whose commit was cut while it waited, and no standby has it yet. The
    repeated statement locks the head, so its own commit waits as well.
    """
    store = await world.store()
    journal = await create_session(store)
    cluster.configure(synchronous_standby_names="ghost")
    cluster.run("pg_ctl", "-D", str(cluster.data), "reload")
    work = create_session(store, OTHER) if is_creation else say(journal, "cut")
    task = asyncio.ensure_future(work)
    waiting = "from pg_stat_activity where wait_event = 'SyncRep'"

    async def waits_for_it() -> bool:
        return _one(cluster, f"select count(*) {waiting}") == 1

    await _until(waits_for_it)
    first = _one(cluster, f"select pid {waiting}")
    _one(cluster, f"select pg_terminate_backend({first}, 5000)")

    async def is_settled_or_waits_again() -> bool:
        return task.done() or await waits_for_it()

    try:
        await _until(is_settled_or_waits_again)
        assert not task.done()
    finally:
        cluster.configure(synchronous_standby_names="")
        cluster.run("pg_ctl", "-D", str(cluster.data), "reload")
    await task
    assert store.resolved or is_creation
    reopened = await (await world.store()).open(OTHER if is_creation else OPS)
    assert texts(await everything(reopened)) == ["born", *([] if is_creation else ["cut"])]


@in_loop
async def test_a_dump_that_is_put_back_seals_what_lost_records(
    world: PostgresWorld, cluster: Cluster
) -> None:
    """The server, its timeline and the era are the same; the anchors know more than the rows."""
    store = await world.store()
    ops, other = await create_session(store), await create_session(store, OTHER)
    await say(ops, "asked")
    await say(other, "settled")
    dump = str(cluster.folder / "dump")
    cluster.run("pg_dump", "-d", cluster.url(), "-Fc", "-n", "hf", "-f", dump)
    await say(ops, "denied")
    world.outsider.execute("drop schema hf cascade")
    cluster.run("pg_restore", "-d", cluster.url(), dump)
    with pytest.raises(CutShort):
        await say(ops, "approved")
    await say(other, "goes on")
    await store.close()
    again = await world.store()
    reopened = await again.open(OPS)
    assert reopened.sealed is not None
    assert reopened.sealed.code == CutShort.default_code
    assert texts(await everything(reopened)) == ["born", "asked"]
