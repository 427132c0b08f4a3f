"""
C2: a connection is cut before, during and after a commit. Every acknowledged record is there once,
in order; the answer is definite, or said to be in doubt.
"""

import asyncio
import os
import random
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from proof.rigs.cutting_proxy import Cut, CuttingProxy
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.files.home.layout import MANIFEST
from holdfast.adapters.postgres import silence
from holdfast.adapters.postgres.commit import lane as lanes
from holdfast.adapters.postgres.commit.append import Answer, FramedAppend
from holdfast.adapters.postgres.home.to_files import copy_to_files
from holdfast.adapters.postgres.server import DatabaseAddress, Wire, connect
from holdfast.adapters.postgres.session.tail import Tail, missing
from holdfast.adapters.postgres.status import database_facts, nodes_at
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Busy, HoldfastError, Untrusted
from holdfast.journal.record import Record
from holdfast.testing.journal_notes import OPS, create_session, everything, say, texts
from holdfast.testing.loop import in_loop

CUTS: tuple[Cut, ...] = ("before", "after", "during")


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


@pytest.fixture
def proxy(postgres: Cluster) -> Generator[CuttingProxy, None, None]:
    proxy = CuttingProxy(postgres.port)
    yield proxy
    proxy.close()


async def cut_store(world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy) -> PostgresStore:
    place = DatabaseAddress(postgres.url(port=proxy.port), world.place.schema)
    return await PostgresStore.open_home(place, world.folder, ahead_ms=None)


@pytest.mark.parametrize("how", CUTS)
@in_loop
async def test_an_append_whose_connection_is_cut_is_kept_once_and_acknowledged(
    world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy, how: Cut
) -> None:
    """Whether the first send arrived or not, the caller gets one definite answer."""
    store = await cut_store(world, postgres, proxy)
    try:
        journal = await create_session(store)
        for number in range(10):
            if number % 3 == 1:
                proxy.cut_next(how)
            await say(journal, f"{number}")
        assert proxy.cuts == 3
        assert store.resolved >= 3
    finally:
        await store.close()
    there = await (await world.store()).open(OPS)
    assert texts(await everything(there)) == ["born", *(f"{number}" for number in range(10))]


@in_loop
async def test_a_server_that_answers_nothing_is_given_up_and_asked_again(
    world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that hangs keeps the connection open. The append is sent again on another one."""
    monkeypatch.setattr(silence, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(silence, "CHECK_SECONDS", 0.05)
    store = await cut_store(world, postgres, proxy)
    try:
        journal = await create_session(store)
        for text in ("one", "two", "three"):
            if text == "two":
                proxy.cut_next("silent")
            await say(journal, text)
        assert proxy.cuts == store.resolved == 1
    finally:
        await store.close()
    there = await (await world.store()).open(OPS)
    assert texts(await everything(there)) == ["born", "one", "two", "three"]


def test_the_kernel_looks_whether_the_server_is_still_there(
    world: PostgresWorld, postgres: Cluster
) -> None:
    """A machine without power is noticed within seconds, unless the address says otherwise."""
    for asked, seconds in (("", 15.0), ("?tcp_user_timeout=7000", 7.0)):
        wire = connect(DatabaseAddress(postgres.url() + asked, world.place.schema))
        with socket.socket(fileno=os.dup(wire.fileno())) as twin:
            assert twin.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == seconds * 1000
            assert twin.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        wire.close()


@in_loop
async def test_a_read_that_is_cut_in_the_middle_hands_over_each_record_once(
    world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy
) -> None:
    """Records come in pages. The caller folds them, so one that came twice would count twice."""
    store = await cut_store(world, postgres, proxy)
    try:
        journal = await create_session(store)
        await say(journal, *map(str, range(200)))
        found: list[Record] = []

        def fold(record: Record) -> None:
            found.append(record)
            if len(found) == 100:
                proxy.cut_next("before")

        await journal.load(fold)
        assert proxy.cuts == 1
        assert texts(found) == ["born", *map(str, range(200))]
    finally:
        await store.close()


@in_loop
async def test_many_sessions_in_one_statement_survive_cuts(
    world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy
) -> None:
    """One lane commits them together; each is resolved by itself."""
    found = await _campaign(world, postgres, proxy, seed=7, rounds=40)
    assert found == []


@pytest.mark.parametrize("how", CUTS)
@in_loop
async def test_a_creation_and_an_end_are_whole_or_absent_under_cuts(
    world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy, how: Cut
) -> None:
    store = await cut_store(world, postgres, proxy)
    try:
        proxy.cut_next(how)
        journal = await create_session(store)
        await say(journal, "one")
        other = await world.store()
        assert texts(await everything(await other.open(OPS))) == ["born", "one"]
        proxy.cut_next(how)
        await store.delete(OPS, by="tests")
        assert list(await other.sessions()) == []
        assert world.rows("select count(*) from head") == [(1,)]
    finally:
        await store.close()


async def _opened(owner: PostgresStore, name: str) -> Any:
    """A cut may meet the connect of a reader, which is told so and tries again."""
    for _ in range(20):
        try:
            return await owner.open(name)  # type: ignore[arg-type]
        except Busy:
            continue
    raise AssertionError(name)


async def _campaign(
    world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy, *, seed: int, rounds: int
) -> list[str]:
    """Write to four sessions from two stores while cuts come; return what is wrong with history."""
    dice = random.Random(seed)
    store, peer = await cut_store(world, postgres, proxy), await world.store()
    names = [f"ops/s{number}" for number in range(4)]
    acknowledged: dict[str, list[str]] = {name: [] for name in names}
    undecided: set[str] = set()
    try:
        for name in names:
            await create_session(store, name)  # type: ignore[arg-type]

        async def write(who: str, owner: PostgresStore, name: str) -> None:
            journal: Any = await _opened(owner, name)
            for number in range(rounds):
                text = f"{who}.{number}"
                if dice.random() < 0.15 and owner is store:
                    proxy.cut_next(dice.choice(CUTS))
                try:
                    await say(journal, text)
                    acknowledged[name].append(text)
                except HoldfastError:
                    undecided.add(text)
                    journal = await _opened(owner, name)

        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(write("cut", store, name))
                group.create_task(write("peer", peer, name))
    finally:
        await store.close()
    return [
        wrong
        for name in names
        for wrong in _wrong(
            texts(await everything(await peer.open(name)))[1:],  # type: ignore[arg-type]
            acknowledged[name],
            undecided,
        )
    ]


def _wrong(written: list[str], acknowledged: list[str], undecided: set[str]) -> list[str]:
    """Each acknowledged text is there once, in the order of its writer; nothing else is."""
    found = [f"{text} is there twice" for text in set(written) if written.count(text) > 1]
    found += [f"{text} is missing" for text in acknowledged if text not in written]
    found += [
        f"{text} was never sent" for text in written if text not in {*acknowledged, *undecided}
    ]
    for who in ("cut.", "peer."):
        ours = [text for text in written if text.startswith(who)]
        numbers = [int(text.partition(".")[2]) for text in ours]
        if numbers != sorted(numbers):
            found.append(f"{who} is out of order")
    return found


# The mutants: resolvers that look right and are wrong


def _looks_once(self: lanes.Lane, items: list[FramedAppend]) -> list[Any]:
    """Look whether the record is there; if it is absent, report that nothing was kept."""
    found = []
    for item in items:
        row = self.wire().one(
            "select line from hf.record where journal = %s and seq = %s",
            (item.tail.journal, item.after.seq + 1),
        )
        kept = row is not None and row[0] == item.lines[0]
        found.append(
            Answer("k") if kept else Answer("m", item.after.seq, item.after.mac, item.epoch)
        )
    return found


@in_loop
async def test_the_campaign_catches_a_resolver_that_looks_once(
    world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A look that finds the record absent proves nothing: the first send lands after it, and the
    callers decide again. The server is slowed down so that this happens in every run.
    """
    world.outsider.execute(
        "create function slow() returns trigger language plpgsql as "
        "$$ begin perform pg_sleep(0.3); return new; end $$; "
        "create trigger slow before insert on record for each statement execute function slow()"
    )
    monkeypatch.setattr(lanes.Lane, "_resolved", _looks_once)
    store = await cut_store(world, postgres, proxy)
    try:
        journal = await create_session(store)
        proxy.cut_next("during")
        try:
            await say(journal, "one")
            acknowledged = ["one"]
        except HoldfastError:
            acknowledged = []
    finally:
        await store.close()
    written = texts(await everything(await (await world.store()).open(OPS)))[1:]
    assert _wrong(written, acknowledged, set()) != []


@in_loop
async def test_the_same_slow_server_and_the_true_resolver(
    world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy
) -> None:
    world.outsider.execute(
        "create function slow() returns trigger language plpgsql as "
        "$$ begin perform pg_sleep(0.3); return new; end $$; "
        "create trigger slow before insert on record for each statement execute function slow()"
    )
    store = await cut_store(world, postgres, proxy)
    try:
        journal = await create_session(store)
        proxy.cut_next("during")
        await say(journal, "one")
    finally:
        await store.close()
    assert texts(await everything(await (await world.store()).open(OPS)))[1:] == ["one"]


def _decides_again(self: lanes.Lane, items: list[FramedAppend]) -> list[Any]:
    """Take a lost answer for a moved head, and let the callers decide again at once."""
    self.wire()
    return [Answer("m", each.after.seq, each.after.mac, each.epoch) for each in items]


@in_loop
async def test_the_campaign_catches_a_resolver_that_decides_before_the_answer_is_definite(
    world: PostgresWorld, postgres: Cluster, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first send was kept, so the second decision doubles it."""
    monkeypatch.setattr(lanes.Lane, "_resolved", _decides_again)
    store = await cut_store(world, postgres, proxy)
    try:
        journal = await create_session(store)
        proxy.cut_next("after")
        await say(journal, "one")
    finally:
        await store.close()
    written = texts(await everything(await (await world.store()).open(OPS)))[1:]
    assert written == ["one", "one"]
    assert _wrong(written, ["one"], set()) != []


_JOINED = (
    "select h.seq, h.epoch, r.line from hf.head h left join hf.record r on r.journal = h.journal "
    "and r.seq > %s where h.journal = %s order by r.seq for no key update of h"
)


def _lock_and_join(lines: list[bytes], wire: Wire, values: Any, known: int) -> Any:
    """One statement that locks the head and joins the records, instead of two."""
    rows = wire.rows(_JOINED, (known, *values))
    lines[:] = [row[2] for row in rows if row[2] is not None]
    return rows[0][:2]


def _feed_only(lines: list[bytes]) -> Callable[[Tail, Wire, int], None]:
    def catch_up(self: Tail, wire: Wire, upto: int) -> None:
        del wire
        position = self.position.copy()
        records = [record for line in lines if (record := position.feed(line)) is not None]
        if position.head.seq < upto:
            raise missing(self.session, position.head.seq, upto)
        self.adopt(position, records)

    return catch_up


@pytest.mark.parametrize("is_joined", [False, True])
@in_loop
async def test_a_statement_that_locks_and_joins_answers_from_two_snapshots(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch, *, is_joined: bool
) -> None:
    """
    A peer begins to write when the row is to be locked. The mutant sees a new head without its
    record, and takes a faster peer for a loss.
    """
    peer, store = await world.store(), await world.store()
    there = await create_session(peer)
    here = await store.open(OPS)
    known = here.head.seq
    await say(there, "before")  # so the first try misses, and the second one locks the row
    world.outsider.execute(
        "create function slow() returns trigger language plpgsql as "
        "$$ begin perform pg_sleep(0.5); return new; end $$; "
        "create trigger slow before insert on record for each statement execute function slow()"
    )
    lines: list[bytes] = []
    writing: list[asyncio.Future[Any]] = []
    true_one, loop = Wire.one, asyncio.get_running_loop()

    def one(self: Wire, sql: str, values: Any = ()) -> Any:
        if "lock_head" not in sql:
            return true_one(self, sql, values)
        if not writing:
            writing.append(
                asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(say(there, "faster"), loop), loop=loop
                )
            )
            while not world.rows("select 1 from pg_stat_activity where wait_event = 'PgSleep'"):
                pass
        return (
            _lock_and_join(lines, self, values, known) if is_joined else true_one(self, sql, values)
        )

    monkeypatch.setattr(Wire, "one", one)
    if is_joined:
        monkeypatch.setattr(Tail, "catch_up", _feed_only(lines))
        with pytest.raises(Untrusted):
            await say(here, "second")
    else:
        await say(here, "second")
    await writing[0]
    monkeypatch.undo()
    found = texts(await everything(await (await world.store()).open(OPS)))
    assert found == ["born", "before", "faster", *([] if is_joined else ["second"])]


class CutsAt(CuttingProxy):
    """Cuts the request of this number, before the server has it."""

    def __init__(self, port: int, number: int) -> None:
        self._left = number
        super().__init__(port)

    def _take(self) -> Cut | None:
        with self._guard:
            self._left -= 1
            return "before" if self._left == 0 else None


@pytest.mark.parametrize("read", [database_facts, nodes_at])
@in_loop
async def test_a_status_whose_connection_is_cut_says_so_in_words(
    world: PostgresWorld, postgres: Cluster, read: Callable[[DatabaseAddress], object]
) -> None:
    await create_session(await world.store())
    codes: list[str] = []
    for number in range(1, 60):
        proxy = CutsAt(postgres.port, number)
        place = DatabaseAddress(postgres.url(port=proxy.port), world.place.schema)
        try:
            await asyncio.to_thread(read, place)
        except HoldfastError as exc:
            codes.append(exc.code)
        finally:
            proxy.close()
        if not proxy.cuts:
            break
    assert set(codes) == {"storage_unreachable"}
    assert 5 < len(codes) == number - 2  # a cut of the last request, the goodbye, does no harm


@in_loop
async def test_a_direct_address_whose_connection_is_cut_is_reported_as_unusable(
    world: PostgresWorld, postgres: Cluster
) -> None:
    await create_session(await world.store())
    found = []
    for number in range(1, 30):
        proxy = CutsAt(postgres.port, number)
        place = world.place._replace(listen_url=postgres.url(port=proxy.port))
        try:
            found.append((await asyncio.to_thread(database_facts, place))["notices"])
        finally:
            proxy.close()
        if not proxy.cuts:
            break
    assert found == [*["polled"] * (len(found) - 2), "heard", "heard"]
    assert len(found) > 4


@in_loop
async def test_a_copy_whose_connection_is_cut_says_so_and_leaves_nothing(
    world: PostgresWorld, postgres: Cluster, tmp_path: Path
) -> None:
    store = await world.store()
    await create_session(store)
    place, target = store.place, tmp_path / "copies" / "copy"
    target.parent.mkdir()
    refused = 0
    for number in range(4, 80, 4):
        proxy = CutsAt(postgres.port, number)
        store.place = place._replace(url=postgres.url(port=proxy.port))
        try:
            await asyncio.to_thread(copy_to_files, store, target)
        except Busy:
            refused += 1
            assert list(target.parent.iterdir()) == []
        else:
            break
        finally:
            store.place = place
            proxy.close()
    assert refused > 2
    assert (target / MANIFEST).exists()
