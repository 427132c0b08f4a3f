"""
The server has no connection, no space or no patience left: nothing that was acknowledged is lost,
the error names the next step, and work goes on when there is room again.
"""

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import psycopg
import pytest
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres import server
from holdfast.adapters.postgres.server import DatabaseAddress, Wire, connect
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Busy, NotSaved
from holdfast.testing.clock import ManualClock
from holdfast.testing.journal_notes import OPS, create_session, everything, say, texts
from holdfast.testing.loop import in_loop

READERS = 4  # threads that read, each with a connection


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


@pytest.fixture
def small_disk(world: PostgresWorld, postgres: Cluster) -> Generator[Path, None, None]:
    """A disk of one megabyte that the records lie on."""
    place = postgres.folder / f"small-{world.place.schema}"
    place.mkdir()
    owner = postgres.folder.stat()
    options = f"size=1m,uid={owner.st_uid},gid={owner.st_gid},mode=700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("needs to mount a small disk, which only root may")
    name = f"small_{world.place.schema}"
    world.outsider.execute(f"create tablespace {name} location '{place}'")
    world.outsider.execute(f"alter table record set tablespace {name}")
    yield place
    world.outsider.execute("alter table record set tablespace pg_default")
    world.outsider.execute(f"drop tablespace {name}")
    subprocess.run(["umount", place], check=True)


def _grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=32m", disk], check=True)


@in_loop
async def test_a_full_disk_keeps_what_was_acknowledged_and_goes_on_with_space(
    world: PostgresWorld, small_disk: Path
) -> None:
    store = await world.store()
    journal = await create_session(store)
    said = ["born"]

    async def fill() -> None:
        for number in range(100):
            await say(journal, f"{number} " + "x" * 30_000)
            said.append(f"{number}")

    with pytest.raises(NotSaved, match="disk is full") as caught:
        await fill()
    assert "free space" in caught.value.hint
    assert len(said) > 5
    _grow(small_disk)
    await say(journal, "after")
    written = [text.split()[0] for text in texts(await everything(await store.open(OPS)))]
    assert written == [*said, "after"]
    assert (await store.verify_session(OPS)).verdict == "holds"


@in_loop
async def test_a_server_without_a_free_connection_says_so_and_nothing_is_written(
    world: PostgresWorld, postgres: Cluster
) -> None:
    name = f"few_{world.place.schema}"
    world.outsider.execute(f'create role "{name}" login superuser connection limit 1')
    few = DatabaseAddress(postgres.url().replace("owner@", f"{name}@"), world.place.schema)
    world.outsider.execute(f'alter role "{name}" nosuperuser')
    only = psycopg.connect(few.url)
    try:
        with pytest.raises(Busy, match="no connection left") as caught:
            connect(few)
        assert "max_connections" in caught.value.hint
    finally:
        only.close()
        world.outsider.execute(f'drop role "{name}"')


@in_loop
async def test_appends_go_on_while_every_connection_that_reads_is_busy(
    world: PostgresWorld,
) -> None:
    """Further reads wait for one, in their order, and the gauge shows them."""
    store = await world.store()
    journal = await create_session(store)
    may_end, busy = threading.Event(), threading.Barrier(READERS + 1)

    def read_slowly(_: Wire) -> None:
        busy.wait(30)
        may_end.wait(30)

    slow = [asyncio.ensure_future(store.in_thread(read_slowly)) for _ in range(READERS)]
    await asyncio.to_thread(busy.wait, 30)
    waiting = asyncio.ensure_future(everything(journal))
    await say(journal, "meanwhile")
    assert not waiting.done()
    assert store.readers.waiting == READERS + 1
    may_end.set()
    await asyncio.gather(*slow)
    assert texts(await waiting) == ["born", "meanwhile"]


@in_loop
async def test_connections_that_were_cut_while_idle_are_made_again(world: PostgresWorld) -> None:
    """A firewall forgets them between two model calls. The next append and read know nothing of it."""
    store = await world.store()
    journal = await create_session(store)
    for number in range(3):
        await say(journal, f"{number}")
        assert len(await everything(journal)) == number + 2
        world.rows(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where application_name = 'holdfast' and query like %s",
            f"%{world.place.schema}%",
        )
    await say(journal, "last")
    assert texts(await everything(journal)) == ["born", "0", "1", "2", "last"]


@in_loop
async def test_a_node_whose_clock_is_an_hour_behind_drives_and_its_times_do_not_fall(
    world: PostgresWorld,
) -> None:
    """The database's clock judges the lease, and a record is never older than the one before."""
    journal = await create_session(await world.store())
    await say(journal, "now")
    clock = ManualClock(now_ms=int(time.time() * 1000) - 3_600_000)
    behind = await PostgresStore.open_home(world.place, world.folder, clock=clock)
    try:
        there = await behind.open(OPS)
        claim = await there.claim()
        assert claim is not None
        assert await journal.claim() is None
        await say(there, "an hour ago", epoch=claim.epoch)
        times = [record.at for record in await everything(there)]
        assert times == sorted(times)
        await claim.release()
        taken = await journal.claim()
        assert taken is not None
        await say(journal, "later", epoch=taken.epoch)
    finally:
        await behind.close()
    assert texts(await everything(journal)) == ["born", "now", "an hour ago", "later"]


def test_a_connection_that_is_lost_while_it_is_made_is_one_that_was_not_made(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was asked yet, so nothing is in doubt: the caller may try again."""
    looks = server._is_pooled

    def is_ended(connection: "psycopg.Connection[object]") -> bool:
        world.rows("select pg_terminate_backend(%s, 5000)", connection.info.backend_pid)
        return looks(connection)

    monkeypatch.setattr(server, "_is_pooled", is_ended)
    with pytest.raises(Busy, match="can't be reached"):
        connect(world.place)
