"""
C3 in running processes: after the database got another history, nobody writes before every node has
compared its anchors with it, or a person has accepted the loss of one. Nobody waits for ever.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.home import node_start
from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.home.nodes import Era
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Busy, HoldfastError, Untrusted
from holdfast.ids import SessionId
from holdfast.testing.journal_notes import (
    OPS,
    OTHER,
    create_session,
    everything,
    say,
    says,
    texts,
)
from holdfast.testing.loop import in_loop

PATIENCE_SECONDS = 20


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


def another_folder(world: PostgresWorld, name: str) -> Path:
    """The folder of another node: its own anchors, the same keys."""
    folder = world.folder.parent / name
    folder.mkdir(mode=0o700)
    shutil.copytree(world.folder / "keys", folder / "keys")
    init_home(world.place, folder)
    return folder


@asynccontextmanager
async def opened(world: PostgresWorld, folder: Path) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open_home(world.place, folder, ahead_ms=None, lease_seconds=2)
    try:
        yield store
    finally:
        await store.close()


def begin_new_era(world: PostgresWorld) -> None:
    """As if the server had been promoted or restored: its history is not the one that was known."""
    world.rows("update era set id = gen_random_uuid(), number = number + 1")


async def until_kept(work: Callable[[], object]) -> list[str]:
    """Try until it is kept. Return the codes of the refusals before."""
    refused, ends = [], time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends:
        try:
            await work()  # type: ignore[misc]
        except HoldfastError as exc:
            refused.append(exc.code)
            await asyncio.sleep(0.2)
        else:
            return refused
    pytest.fail(f"it was refused for {PATIENCE_SECONDS} s: {refused}")


@in_loop
async def test_a_running_node_writes_nothing_before_every_other_node_has_compared(
    world: PostgresWorld,
) -> None:
    """The other node may be the only one that knows of a lost answer."""
    second = another_folder(world, "second")
    async with opened(world, second) as other:
        node = other.node
    store = await world.store(lease_seconds=2)
    journal, neighbour = await create_session(store), await create_session(store, OTHER)
    assert store.lane_of(journal.tail) is not store.lane_of(neighbour.tail)
    begin_new_era(world)
    ends = time.monotonic() + 3  # its first comparison takes a moment
    said = []
    while time.monotonic() < ends:
        for each in (journal, neighbour):
            with pytest.raises(Busy) as refused:
                await say(each, "too early")
            said.append(refused.value)
        with pytest.raises(Busy):
            await create_session(store, SessionId("ops/early"))
    assert said[-1].code == "nodes_not_compared"
    assert f"holdfast nodes accept {node}" in (said[-1].hint or "")
    async with opened(world, second):
        await until_kept(lambda: say(journal, "compared"))
        await until_kept(lambda: say(neighbour, "compared"))
    assert texts(await everything(journal)) == ["born", "compared"]


@in_loop
async def test_a_running_node_that_writes_nothing_compares_its_anchors_too(
    world: PostgresWorld,
) -> None:
    """Else a busy node would wait for an idle one for ever."""
    async with opened(world, another_folder(world, "second")) as idle:
        store = await world.store(lease_seconds=2)
        journal = await create_session(store)
        begin_new_era(world)
        await until_kept(lambda: say(journal, "goes on"))
        assert idle.node != store.node


@in_loop
async def test_a_node_that_only_makes_sessions_compares_its_anchors_and_goes_on(
    world: PostgresWorld,
) -> None:
    store = await world.store()
    begin_new_era(world)
    with pytest.raises(Busy) as refused:
        await create_session(store)
    assert refused.value.code == "another_timeline"
    await until_kept(lambda: create_session(store))


@in_loop
async def test_no_lane_writes_while_another_one_compares(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await world.store()
    journal, neighbour = await create_session(store), await create_session(store, OTHER)
    assert store.lane_of(journal.tail) is not store.lane_of(neighbour.tail)
    compare, threads, met = node_start._compare_anchors, ThreadPoolExecutor(1), []

    def write() -> object:
        try:
            return neighbour.append_now(says("meanwhile"), since=neighbour.head)
        except HoldfastError as exc:
            return exc

    def compare_and_write(store: PostgresStore, wire: Wire) -> None:
        met.append(threads.submit(write).result())
        compare(store, wire)

    monkeypatch.setattr(node_start, "_compare_anchors", compare_and_write)
    begin_new_era(world)
    with pytest.raises(Busy):
        await say(journal, "too early")
    assert [type(each) for each in met] == [Busy]
    await until_kept(lambda: say(neighbour, "compared"))
    assert texts(await everything(neighbour)) == ["born", "compared"]


@in_loop
async def test_two_nodes_that_will_not_come_back_are_accepted_one_after_the_other(
    world: PostgresWorld,
) -> None:
    lost = []
    for name in ("second", "third"):
        async with opened(world, another_folder(world, name)) as store:
            lost.append(store.node)
    async with opened(world, world.folder) as store:
        await create_session(store)
    begin_new_era(world)
    for node in lost:
        accepting = await PostgresStore.open_home(
            world.place, world.folder, ahead_ms=None, waits=False
        )
        await accepting.accept_node(node, by="alice", reason="its disk is gone")
        await accepting.close()
    async with opened(world, world.folder) as store:
        await say(await store.open(OPS), "goes on")


@in_loop
async def test_two_processes_of_a_node_that_open_at_once_begin_no_era(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The second one remembers a later position than the first one has read. That is not a step back: else
    everybody would wait until every node has compared its anchors, for nothing.
    """
    look, seen = node_start.read_era, []

    def look_late(wire: Wire) -> Era:
        if not seen or seen[-1] != "inside":
            seen.append("inside")
            wire.rows("select pg_logical_emit_message(true, 'tests', 'moves the log')")
            threads.submit(asyncio.run, _open_once(world)).result()
            seen.append("outside")
        return look(wire)

    threads = ThreadPoolExecutor(1)
    await (await world.store()).close()
    monkeypatch.setattr(node_start, "read_era", look_late)
    await world.store()
    assert seen.count("outside") >= 2
    assert world.rows("select number from era") == [(1,)]


async def _open_once(world: PostgresWorld) -> None:
    async with opened(world, world.folder):
        pass


@in_loop
async def test_a_session_that_another_process_of_the_node_made_is_compared_too(
    world: PostgresWorld,
) -> None:
    """The node's folder has its anchor, and this process has not read that it exists."""
    store = await world.store(lease_seconds=2)
    journal = await create_session(store)
    async with opened(world, world.folder) as another:
        made = await create_session(another, OTHER)
        before = await world.copy(OTHER)
        await say(made, "lost")
    await world.put_back(OTHER, before)
    begin_new_era(world)
    await until_kept(lambda: say(journal, "goes on"))
    assert world.rows("select sealed from head where session = %s", OTHER) == [(True,)]


@in_loop
async def test_a_home_that_another_process_of_the_node_wrote_to_is_compared_too(
    world: PostgresWorld,
) -> None:
    """The record that is gone may be a revocation, and this process has not read it."""
    store = await world.store(lease_seconds=2)
    journal = await create_session(store)
    ((seq, mac, at),) = world.rows("select seq, mac, at from head where journal = 1")
    async with opened(world, world.folder) as another:
        await create_session(another, OTHER)
    world.rows("delete from record where journal = 1 and seq > %s", seq)
    world.rows("update head set seq = %s, mac = %s, at = %s where journal = 1", seq, mac, at)
    begin_new_era(world)
    await until_kept(lambda: say(journal, "goes on"))
    with pytest.raises(Untrusted):
        await store.sessions()
