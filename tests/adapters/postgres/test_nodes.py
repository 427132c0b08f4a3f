"""Several nodes over one home: notices, eras, jobs and folders that belong to one of them."""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.inmemory.jobs import InMemoryJobs
from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.home.node_folder import KnownServer
from holdfast.adapters.postgres.home.nodes import Era, is_new_history
from holdfast.adapters.postgres.node_jobs import LOST_SECONDS, NodeJobs
from holdfast.adapters.postgres.notices import payloads
from holdfast.adapters.postgres.server import DatabaseAddress, connect
from holdfast.adapters.postgres.server_facts import ServerFacts, check_server
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Busy, Untrusted
from holdfast.ids import CallId, InstanceId, JobId
from holdfast.journal.record import Draft
from holdfast.ports.tools import ProcessFacts
from holdfast.session.home.events import TimeNoted, encode_home_event
from holdfast.testing.journal_notes import OPS, OTHER, create_session, everything, say, texts
from holdfast.testing.loop import in_loop


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


def another_folder(world: PostgresWorld, name: str = "second") -> Path:
    """The folder of another node: its own anchors, the same keys."""
    folder = world.folder.parent / name
    folder.mkdir(mode=0o700)
    shutil.copytree(world.folder / "keys", folder / "keys")
    init_home(world.place, folder)
    return folder


async def opened(world: PostgresWorld, folder: Path, url: str | None = None) -> PostgresStore:
    place = DatabaseAddress(url or world.place.url, world.place.schema)
    return await PostgresStore.open_home(place, folder, ahead_ms=None)


@in_loop
async def test_two_nodes_write_one_session_in_turn(world: PostgresWorld) -> None:
    first = await world.store()
    second = await opened(world, another_folder(world))
    try:
        here = await create_session(first)
        there = await second.open(OPS)
        for number in range(4):
            await say(here if number % 2 else there, str(number))
        assert texts(await everything(here)) == ["born", "0", "1", "2", "3"]
        assert texts(await everything(there)) == ["born", "0", "1", "2", "3"]
        assert first.node != second.node
        assert {each.node for each in await second.all_nodes()} == {first.node, second.node}
    finally:
        await second.close()


@in_loop
async def test_lines_that_another_thread_has_passed_meanwhile_are_not_taken_for_a_takeover(
    world: PostgresWorld,
) -> None:
    """The lane reads them; a reader of the same process moves the tail before they are fed."""
    journal = await create_session(await world.store())
    await say(journal, "one")
    tail = journal.tail  # type: ignore[attr-defined]  # of this store's handle
    rows = world.rows("select seq, line from record where journal = %s order by seq", tail.journal)
    before = tail.head
    tail.feed(rows[1:])
    assert tail.head == before
    await say(journal, "two")


# --- Notices


async def _hears(store: PostgresStore, cause: Callable[[], None], seconds: float) -> list[str]:
    heard: list[str] = []
    async with store.notices.listen() as notices:
        ends = time.monotonic() + 20
        while not store.notices.hears and time.monotonic() < ends:  # noqa: ASYNC110  a thread's
            await asyncio.sleep(0.02)
        cause()
        try:
            async with asyncio.timeout(seconds):
                async for session in notices:
                    heard.append(session)
                    break
        except TimeoutError:
            pass
    return heard


@in_loop
async def test_a_process_that_was_away_while_a_key_was_rotated_goes_on(
    world: PostgresWorld,
) -> None:
    """It appends to a session whose next segment is under the new key, and has not read the home."""
    first, second = await world.store(), await world.store()
    there = await create_session(first)
    here = await second.open(OPS)
    await first.rotate_keys(by="tests")
    await say(there, "under the new key")
    await say(here, "after it")
    assert texts(await everything(await (await world.store()).open(OPS))) == [
        *("born", "under the new key", "after it")
    ]


@in_loop
async def test_a_notice_reaches_another_node_at_once(world: PostgresWorld) -> None:
    first = await world.store()
    second = await opened(world, another_folder(world))
    try:
        assert await _hears(second, lambda: first.notices.notify(OPS), 10) == [OPS]
        assert await _hears(first, lambda: first.notices.notify(OTHER), 10) == [OTHER]
    finally:
        await second.close()


@in_loop
async def test_a_node_that_hears_no_notice_finds_what_moved_by_itself(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler hides LISTEN. The heads are looked at once a second instead."""
    first = await world.store()
    journal = await create_session(first)
    second = await opened(world, another_folder(world))
    try:
        second.notices.channel = "nobody_notifies_here"
        connected = threading.Event()
        monkeypatch.setattr(second.notices, "_probe", lambda _: connected.set())
        heard: list[str] = []
        async with second.notices.listen() as notices:
            await asyncio.to_thread(connected.wait, 30)
            await say(journal, "moved")
            async with asyncio.timeout(20):
                async for session in notices:
                    heard.append(session)
                    break
        assert heard == [OPS]
    finally:
        await second.close()


@in_loop
async def test_a_reconnected_listener_reports_changes_of_the_time_without_connection(
    world: PostgresWorld,
) -> None:
    """Notices are not queued for the absent, so the heads are looked at after a reconnect."""
    first = await world.store()
    journal = await create_session(first)
    second = await opened(world, another_folder(world))

    def cut() -> None:
        world.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'holdfast'"
        )

    try:
        heard: list[str] = []
        async with second.notices.listen() as notices:
            while not second.notices.hears:  # noqa: ASYNC110  a thread's
                await asyncio.sleep(0.02)
            cut()
            await say(journal, "while nobody listened")
            async with asyncio.timeout(20):
                async for session in notices:
                    heard.append(session)
                    break
        assert heard == [OPS]
    finally:
        await second.close()


def test_many_notices_fit_into_few_texts() -> None:
    names = [f"channel-{number}/thread-{number}" for number in range(2_000)]
    joined = payloads(names)
    assert "\n".join(joined).split("\n") == names
    assert max(map(len, joined)) <= 7_900


# --- A driver that is gone


@in_loop
async def test_every_node_hears_of_a_session_whose_driver_is_not_heard_of(
    world: PostgresWorld,
) -> None:
    first = await world.store(lease_seconds=1.0)
    await create_session(first)
    second = await opened(world, another_folder(world))
    try:
        heard = asyncio.create_task(_hears(second, lambda: None, 20))
        world.rows(
            "insert into process values (gen_random_uuid(), gen_random_uuid(), 'elsewhere', 1, '1', "
            "clock_timestamp() + interval '2 seconds')"
        )
        world.rows(
            "update head set claim = gen_random_uuid(), driver = (select incarnation from process "
            "where machine = 'elsewhere') where session = %s",
            OPS,
        )
        assert await heard == [OPS]
        assert world.rows("select driver from head where session = %s", OPS) == [(None,)]
    finally:
        await second.close()


# --- Eras


FACTS = ServerFacts("7", "00000001", 500)
ERA = Era("e-2", 2, "7", "00000001")


@pytest.mark.parametrize(
    ("known", "facts", "era", "is_new"),
    [
        (KnownServer("n", "7", "00000001", 400, "e-2", 2), FACTS, ERA, False),
        (KnownServer("n", "7", "00000001", 501, "e-2", 2), FACTS, ERA, True),  # it went back
        (KnownServer("n", "7", "00000001", 400, "e-1", 1), FACTS, ERA, False),  # another declared
        (KnownServer("n", "7", "00000001", 400, "e-3", 3), FACTS, ERA, True),  # an old era again
        (KnownServer("n", "7", "00000001", 400, "e-x", 2), FACTS, ERA, True),
        (KnownServer("n", "7", "00000001", 400, "e-2", 2), FACTS._replace(timeline="2"), ERA, True),
        (KnownServer("n", "7", "00000001", 400, "e-2", 2), FACTS._replace(system="8"), ERA, True),
    ],
)
def test_a_node_declares_a_new_era_when_the_server_has_another_history(
    known: KnownServer, facts: ServerFacts, era: Era, *, is_new: bool
) -> None:
    assert is_new_history(known, facts, era) is is_new


@pytest.fixture
def far(cluster: Cluster, tmp_path: Path) -> Generator[PostgresWorld, None, None]:
    """A home on a server of this test's own, which it may kill."""
    world = PostgresWorld(cluster.url(), "hf", tmp_path / "node")
    yield world
    world.close()


def test_a_node_remembers_no_position_that_a_crash_of_the_server_takes_back(
    far: PostgresWorld,
) -> None:
    """The log is written before it is synced. A position between the two would look like a loss."""
    far.outsider.execute("alter system set wal_writer_delay = '10s'")
    far.outsider.execute("select pg_reload_conf()")
    gap = "select pg_wal_lsn_diff(pg_current_wal_lsn(), pg_current_wal_flush_lsn()) > 0"
    position = "select pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint"
    wire = connect(far.place)
    try:
        with far.outsider.transaction():
            far.outsider.execute("create table much (line text)")
            while far.rows(gap) != [(True,)]:  # the server may sync it just now
                far.rows("insert into much select repeat('x', 800) from generate_series(1, 20000)")
            found = check_server(wire).lsn
            assert [(found,)] == far.rows(position)
    finally:
        wire.close()


@in_loop
async def test_nobody_writes_to_a_promoted_server_before_every_node_has_compared_its_anchors(
    far: PostgresWorld, cluster: Cluster
) -> None:
    """The second node alone knows of the lost record, and its comparison seals the session."""
    world = far
    first = await world.store()
    folder = another_folder(world)
    second = await opened(world, folder)
    ops = await create_session(first)
    await say(await second.open(OPS), "asked")
    standby = cluster.standby()
    try:
        await say(await second.open(OPS), "denied")
        await first.close()
        await second.close()
        del ops
        cluster.kill()
        standby.start()
        standby.run("pg_ctl", "-D", str(standby.data), "-w", "promote")
        with pytest.raises(Busy) as refused:
            await opened(world, world.folder, standby.url())
        assert refused.value.code == "nodes_not_compared"
        assert second.node in refused.value.message
        assert f"holdfast nodes accept {second.node}" in refused.value.hint
        compared = await opened(world, folder, standby.url())
        again = await opened(world, world.folder, standby.url())
        try:
            assert OPS in await again.seals()
            with pytest.raises(Untrusted):
                await say(await again.open(OPS), "approved")
            await say(await create_session(again, OTHER), "goes on")
        finally:
            await compared.close()
            await again.close()
    finally:
        standby.remove()


@in_loop
async def test_a_node_that_will_not_come_back_is_accepted_and_the_others_go_on(
    world: PostgresWorld,
) -> None:
    first = await world.store()
    second = await opened(world, another_folder(world))
    await create_session(first)
    await first.close()
    await second.close()
    world.rows("update era set timeline = '0000000F'")  # as if the server were another one
    with pytest.raises(Busy):
        await opened(world, world.folder)
    accepting = await PostgresStore.open_home(world.place, world.folder, ahead_ms=None, waits=False)
    await accepting.accept_node(second.node, by="alice", reason="its disk is gone")
    await accepting.close()
    again = await opened(world, world.folder)
    await say(await again.open(OPS), "goes on")
    await again.close()


@in_loop
async def test_a_running_node_compares_its_anchors_by_itself_and_goes_on(
    world: PostgresWorld,
) -> None:
    store = await world.store()
    journal = await create_session(store)
    world.rows("update era set id = gen_random_uuid(), number = number + 1")
    with pytest.raises(Busy) as refused:
        await say(journal, "too early")
    assert refused.value.code == "another_timeline"
    await say(journal, "compared")
    assert texts(await everything(journal)) == ["born", "compared"]


# --- Jobs

HERE = ProcessFacts(boot_id="b", group=7, start_time=1, node="one")
THERE = ProcessFacts(boot_id="b", group=7, start_time=1, node="two")
LOOK = {"instance": InstanceId("i-1"), "secrets": ()}


def jobs_at(silent: float | None) -> NodeJobs:
    return NodeJobs(InMemoryJobs(), "one", lambda _: silent, lease_seconds=30.0)


@in_loop
async def test_a_job_of_another_node_is_only_waited_for_while_the_node_is_heard_of() -> None:
    jobs = jobs_at(5.0)
    assert (await jobs.inspect(JobId("j-1"), THERE, **LOOK)).state == "running"
    assert jobs.is_alive(THERE)
    assert jobs.death_of(THERE) is None
    assert await jobs.output(JobId("j-1"), THERE, after=0, bytes_max=9) == b""
    await jobs.ask_to_end(THERE)
    await jobs.end(CallId("c-1"), THERE)
    assert jobs.own_process().node == "one"


@pytest.mark.parametrize("silent", [LOST_SECONDS + 31.0, None])
@in_loop
async def test_a_job_of_a_lost_node_is_in_doubt(silent: float | None) -> None:
    jobs = jobs_at(silent)
    seen = await jobs.inspect(JobId("j-1"), THERE, **LOOK)
    assert (seen.state, "the node two" in seen.why) == ("gone", True)
    assert not jobs.is_alive(THERE)


@in_loop
async def test_a_task_of_another_node_ends_with_its_lease_and_a_process_later() -> None:
    jobs = jobs_at(60.0)
    assert not jobs.is_alive(THERE)
    assert (await jobs.inspect(JobId("j-1"), THERE, **LOOK)).state == "running"


@in_loop
async def test_the_home_is_written_by_two_nodes_and_read_meanwhile_and_never_sealed(
    world: PostgresWorld,
) -> None:
    """Our own activity alone never yields a takeover or a loss (L7)."""
    first = await world.store()
    second = await opened(world, another_folder(world))
    ends = time.monotonic() + 4

    async def write(store: PostgresStore) -> None:
        home = await store.home()
        while time.monotonic() < ends:
            await home.append(
                lambda _: [Draft(*encode_home_event(TimeNoted(clock=1)))], since=home.head
            )

    async def read(store: PostgresStore) -> None:
        while time.monotonic() < ends:
            await store.sessions()

    both = (first, second, first, second)
    try:
        await asyncio.gather(*map(write, both), *map(read, both))
        assert first.home_mark is None
        assert second.home_mark is None
    finally:
        await second.close()
