"""
C3: a database that went back in time is found by the node's anchors, and a running process writes
nothing to a server on another timeline. Real servers, real replication.
"""

import shutil
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.lists.index import PostgresIndex
from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Busy, CutShort, HoldfastError, InDoubt, Untrusted
from holdfast.testing.conformance.index import row
from holdfast.testing.journal_notes import OPS, OTHER, create_session, everything, say, texts
from holdfast.testing.loop import in_loop


@pytest.fixture
def world(cluster: Cluster, tmp_path: Path) -> Generator[PostgresWorld, None, None]:
    world = PostgresWorld(cluster.url(), "hf", tmp_path / "node")
    yield world
    world.close()


async def _reopened(world: PostgresWorld, url: str) -> PostgresStore:
    return await PostgresStore.open_home(DatabaseAddress(url, "hf"), world.folder, ahead_ms=None)


@in_loop
async def test_a_data_folder_that_was_put_back_seals_what_lost_records(
    world: PostgresWorld, cluster: Cluster
) -> None:
    """The shorter chain verifies; the anchor knows more. A session that lost nothing goes on."""
    store = await world.store()
    ops, other = await create_session(store), await create_session(store, OTHER)
    await say(ops, "asked")
    await say(other, "settled")
    await store.close()
    cluster.stop()
    copy = cluster.folder / "copy"
    shutil.copytree(cluster.data, copy, copy_function=shutil.copy2)
    cluster.start()
    again = await _reopened(world, cluster.url())
    await say(await again.open(OPS), "denied")
    await again.close()
    cluster.stop()
    shutil.rmtree(cluster.data)
    _put_back(cluster, copy)
    cluster.start()
    restored = await _reopened(world, cluster.url())
    try:
        reopened = await restored.open(OPS)
        assert reopened.sealed is not None
        assert reopened.sealed.code == CutShort.default_code
        with pytest.raises(Untrusted):
            await say(reopened, "approved")
        assert texts(await everything(reopened)) == ["born", "asked"]
        await say(await restored.open(OTHER), "goes on")
        assert (await restored.verify_session(OTHER)).verdict == "holds"
    finally:
        await restored.close()


def _put_back(cluster: Cluster, copy: Path) -> None:
    shutil.copytree(copy, cluster.data, copy_function=shutil.copy2)
    for each in (cluster.data, *cluster.data.rglob("*")):
        shutil.chown(each, *_owner(cluster))
    cluster.data.chmod(0o700)


def _owner(cluster: Cluster) -> tuple[int, int]:
    found = cluster.folder.stat()
    return found.st_uid, found.st_gid


@in_loop
async def test_a_lagging_standby_that_is_promoted_seals_what_lost_records(
    world: PostgresWorld, cluster: Cluster
) -> None:
    """Acknowledged records are gone there; the timeline is another one, and the anchors say what."""
    store = await world.store()
    journal = await create_session(store)
    await say(journal, "asked")
    standby = cluster.standby()
    try:
        await say(journal, "denied")
        await store.close()
        cluster.kill()
        standby.start()
        standby.run("pg_ctl", "-D", str(standby.data), "-w", "promote")
        promoted = await _reopened(world, standby.url())
        try:
            assert promoted.history.name.startswith("00000002/")
            assert OPS in await promoted.seals()
            with pytest.raises(Untrusted):
                await say(await promoted.open(OPS), "approved")
        finally:
            await promoted.close()
    finally:
        standby.remove()


@in_loop
async def test_a_standby_takes_no_writes_and_says_so(
    world: PostgresWorld, cluster: Cluster
) -> None:
    await create_session(await world.store())
    standby = cluster.standby()
    try:
        standby.start()
        with pytest.raises(HoldfastError, match="standby") as caught:
            await _reopened(world, standby.url())
        assert "primary" in caught.value.hint
    finally:
        standby.remove()


@in_loop
async def test_a_running_process_writes_nothing_to_a_promoted_server_at_the_same_address(
    world: PostgresWorld, cluster: Cluster
) -> None:
    """An address may lead to another server at any moment; every append names its timeline."""
    store = await world.store()
    journal = await create_session(store)
    await say(journal, "asked")
    standby = cluster.standby()
    standby.configure(port=str(cluster.port))
    try:
        await say(journal, "denied")
        cluster.kill()
        standby.start()
        standby.run("pg_ctl", "-D", str(standby.data), "-w", "promote")
        for _ in range(2):
            with pytest.raises((Busy, InDoubt, Untrusted)):
                await say(journal, "approved")
        promoted = await _reopened(world, cluster.url())
        try:
            assert OPS in await promoted.seals()
            assert "approved" not in texts(await everything(await promoted.open(OPS)))
        finally:
            await promoted.close()
    finally:
        standby.remove()


@in_loop
async def test_a_home_whose_own_journal_went_back_is_refused(
    world: PostgresWorld, cluster: Cluster
) -> None:
    """Grants and tokens come from there: one that was revoked would count again."""
    store = await world.store()
    await create_session(store)
    standby = cluster.standby()
    try:
        await create_session(store, OTHER)
        await store.close()
        cluster.kill()
        standby.start()
        standby.run("pg_ctl", "-D", str(standby.data), "-w", "promote")
        with pytest.raises(CutShort):
            await _reopened(world, standby.url())
    finally:
        standby.remove()


@in_loop
async def test_a_crash_of_the_server_takes_a_row_of_the_lists_and_no_record(
    world: PostgresWorld, cluster: Cluster
) -> None:
    """A row of the lists is not waited for. The lists find that it is missing, and ask for it."""
    store = await world.store()
    journal = await create_session(store)
    index = PostgresIndex(store)
    known = msgspec.structs.replace(
        row(seq=journal.head.seq), session=OPS, instance=journal.instance
    )
    await index.put(known)
    assert await index.get(OPS) == known
    assert await index.behind(store.heads) == []
    cluster.configure(wal_writer_delay="10s")  # else another process may write the row
    cluster.stop()
    cluster.start()
    again = await _reopened(world, cluster.url())
    lists = PostgresIndex(again)
    assert await lists.behind(again.heads) == []
    moved = await again.open(OPS)
    await say(moved, "asked")
    newer = msgspec.structs.replace(known, seq=moved.head.seq)
    await lists.put(newer)
    assert await lists.get(OPS) == newer
    cluster.kill()
    cluster.start()
    found = PostgresIndex(await world.store())
    assert await found.get(OPS) == known
    assert await found.behind(again.heads) == [OPS]
    assert texts(await everything(moved)) == ["born", "asked"]
    await again.close()
