"""
The appends of many sessions in one statement: each gets its own outcome, and none harms another.
An append is one round trip.
"""

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any

import psycopg
import pytest
from proof.rigs.cutting_proxy import CuttingProxy
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.commit.binary import (
    BIGINT_ARRAY,
    BYTEA_ARRAY,
    INT_ARRAY,
    UUID_ARRAY,
    bigint,
    bigint_array,
    bytea_array,
    bytea_array_of,
    int_array,
    uuid_array,
)
from holdfast.adapters.postgres.commit.claims import LeasedClaim
from holdfast.adapters.postgres.commit.lane import Lane
from holdfast.adapters.postgres.server import DatabaseAddress, PreparedStatement, connect
from holdfast.adapters.postgres.session.position import STORED_SEGMENT_BYTES
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Fenced, Refused, Takeover, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Check
from holdfast.testing.journal_notes import OPS, create_session, everything, note, say, says, texts
from holdfast.testing.loop import in_loop


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


@contextlib.contextmanager
def _held_up(lane: Lane) -> Iterator[None]:
    """While this lasts the lane takes nothing, so that what comes is sent together."""
    go_on, is_there = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        is_there.set()
        go_on.wait(30)

    lane.call(wait)
    is_there.wait(30)
    try:
        yield
    finally:
        go_on.set()


async def _on_one_lane(store: PostgresStore, count: int) -> dict[str, Any]:
    """Journals of as many sessions that one lane writes."""
    found: dict[str, Any] = {}
    for number in range(count * 2):
        name = SessionId(f"ops/s{number}")
        journal: Any = await create_session(store, name, instance=InstanceId(f"i{number}"))
        if store.lane_of(journal.tail) is store.lanes[1]:
            found[name] = journal
    return found


async def _together(store: PostgresStore, appends: list[Any]) -> list[Any]:
    """Start these appends while the lane is held up, and return their outcomes."""
    with _held_up(store.lanes[1]):
        tasks = [asyncio.ensure_future(each) for each in appends]
        while store.lanes[1].waiting < len(appends):  # noqa: ASYNC110  the lane's own queue
            await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_the_server_reads_packed_arrays_as_they_were_meant(world: PostgresWorld) -> None:
    """Empty ones, holes and the ends of each type's range."""
    named = uuid.uuid4()
    cases: list[tuple[Any, str, int, list[Any]]] = [
        (bigint_array, "bigint[]", BIGINT_ARRAY, [1, None, -(2**63), 2**63 - 1]),
        (bigint_array, "bigint[]", BIGINT_ARRAY, [1, 2, 3]),
        (int_array, "int[]", INT_ARRAY, [0, -(2**31), 2**31 - 1]),
        (int_array, "int[]", INT_ARRAY, [None]),
        (bytea_array, "bytea[]", BYTEA_ARRAY, [b"", b"\0\xff", None, b"x" * 70_000]),
        (uuid_array, "uuid[]", UUID_ARRAY, [named, None]),
        (bigint_array, "bigint[]", BIGINT_ARRAY, []),
        (int_array, "int[]", INT_ARRAY, []),
        (bytea_array, "bytea[]", BYTEA_ARRAY, []),
        (uuid_array, "uuid[]", UUID_ARRAY, []),
    ]
    wire = connect(world.place)
    try:
        for number, (pack, kind, type_, values) in enumerate(cases):
            statement = PreparedStatement(f"case_{number}", "select $1::text", (type_,))
            by_driver = wire.one(f"select %s::{kind}::text", (values,))
            assert by_driver is not None
            assert wire.ask(statement, [pack(values)]) == [by_driver[0].encode()]
    finally:
        wire.close()


def test_a_statement_that_the_server_forgot_is_prepared_again(world: PostgresWorld) -> None:
    """The driver has the server forget all of them after a transaction that failed."""
    wire = connect(world.place)
    statement = PreparedStatement("forgotten", "select $1", (BIGINT_ARRAY,))
    try:
        for forget in ("select 1", "select 1", "deallocate all"):
            wire.script(forget)
            assert bytea_array_of(wire.ask(statement, [bigint_array([7])])[0]) == [bigint(7)]
        with wire.transaction():
            wire.script("deallocate all")
            assert wire.ask(statement, [bigint_array([])]) == [bigint_array([])]
    finally:
        wire.close()


@in_loop
async def test_each_session_of_one_statement_has_its_own_outcome(
    world: PostgresWorld, postgres: Cluster
) -> None:
    """Kept, moved, fenced, sealed, gone, held and taken over, side by side."""
    store, peer = await world.store(), await world.store()
    journals = await _on_one_lane(store, 7)
    kept, moved, fenced, sealed, gone, held, changed = journals
    claim = await journals[fenced].claim()
    await say(journals[changed], "before")
    await say(await peer.open(SessionId(moved)), "theirs")
    world.rows("update head set claim = gen_random_uuid() where session = %s", fenced)
    world.rows("select seal_journal(%s)", world.journal(SessionId(sealed)))
    await peer.delete(SessionId(gone), by="tests")
    await world.flip(SessionId(changed), b"before")
    holder = psycopg.connect(postgres.url())
    holder.execute(f'set search_path to "{world.place.schema}"')
    holder.execute("select * from head where session = %s for update", (held,))
    freed = threading.Timer(0.3, holder.close)
    freed.start()
    commits = store.lanes[1].commits
    epochs = {fenced: claim.epoch}
    checks = {changed: Check.FENCE, kept: Check.FENCE}
    found = await _together(
        store,
        [
            say(each, "ours", epoch=epochs.get(name), check=checks.get(name, Check.SHORT))
            for name, each in journals.items()
        ],
    )
    freed.join()
    assert store.lanes[1].commits > commits
    wrong = [type(each) for each in found if isinstance(each, BaseException)]
    assert wrong == [Fenced, type(found[3]), Refused, Takeover]
    assert isinstance(found[3], Untrusted)
    reader = await world.store()
    for name, said in {
        kept: ["born", "ours"],
        moved: ["born", "theirs", "ours"],
        fenced: ["born"],
        held: ["born", "ours"],
    }.items():
        journal = await reader.open(SessionId(name))
        assert texts(await everything(journal)) == said
        assert (await reader.verify_session(SessionId(name))).verdict == "holds"


_HELD_LAW = """
alter function outcome_of rename to law;
create function outcome_of(
  p_ended boolean, p_sealed boolean, h_seq bigint, h_mac bytea, h_epoch bigint, h_claim uuid,
  p_seq bigint, p_mac bytea, p_epoch bigint, p_claim uuid, p_at bigint, p_latest bigint
) returns text language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(18);
  return law(p_ended, p_sealed, h_seq, h_mac, h_epoch, h_claim, p_seq, p_mac, p_epoch, p_claim,
    p_at, p_latest);
end $$;
"""


async def _until_somebody_waits(world: PostgresWorld, what: str) -> None:
    asks = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and wait_event = %s"
    async with asyncio.timeout(30):
        while not world.rows(asks, what):  # noqa: ASYNC110  the server has no event for it
            await asyncio.sleep(0.01)


@in_loop
async def test_a_claim_that_comes_while_one_statement_compares_fences_it(
    world: PostgresWorld,
) -> None:
    """The statement has read the heads already. It compares the rows as they are once it has them."""
    store = await world.store()
    (_, first), (fenced, second) = (await _on_one_lane(store, 2)).items()
    claim = await second.claim()
    world.outsider.execute(_HELD_LAW.encode())
    world.rows("select pg_advisory_lock(18)")
    sending = asyncio.ensure_future(
        _together(store, [say(first, "kept"), say(second, "late", epoch=claim.epoch)])
    )
    await _until_somebody_waits(world, "advisory")
    world.rows(
        "update head set epoch = epoch + 1, claim = gen_random_uuid() where session = %s", fenced
    )
    world.rows("select pg_advisory_unlock(18)")
    kept, refused = await sending
    assert not isinstance(kept, BaseException)
    assert isinstance(refused, Fenced)
    assert texts(await everything(await (await world.store()).open(SessionId(fenced)))) == ["born"]


@in_loop
async def test_a_row_of_the_lists_that_comes_meanwhile_is_not_another_writer(
    world: PostgresWorld, postgres: Cluster
) -> None:
    """`forget_standing` adds the row of `moved` without the head's lock."""
    store = await world.store()
    journal = await create_session(store)
    world.rows("delete from moved")
    lists = psycopg.connect(postgres.url())
    lists.execute(f'set search_path to "{world.place.schema}"')
    lists.execute("select forget_standing(%s)", (OPS,))
    saying = asyncio.ensure_future(say(journal, "kept"))
    await _until_somebody_waits(world, "transactionid")
    lists.commit()
    lists.close()
    await saying
    assert texts(await everything(await (await world.store()).open(OPS))) == ["born", "kept"]
    behind = "select count(*) from moved m join head h using (journal) where m.seq < h.seq"
    assert world.rows(behind) == [(0,)]


@pytest.mark.parametrize("answer", ["'k' || {}", "translate({}, 'k', 'z')", "null"])
@in_loop
async def test_an_answer_that_says_nothing_is_asked_for_again(
    world: PostgresWorld, answer: str
) -> None:
    """Somebody replaced the function. Each record is kept once, and no append waits for ever."""
    store = await world.store()
    journals = await _on_one_lane(store, 2)
    asked = f"true_many({', '.join(f'${number}' for number in range(1, 17))})"
    world.outsider.execute(
        "alter function append_many rename to true_many; create function append_many("
        "bigint[], bigint[], bytea[], bigint[], uuid[], int[], bytea[], bigint[], bytea[], int[], "
        "bigint[], int[], int[], bytea[], bigint, text) returns text language sql "
        f"security definer set search_path from current as $$ select {answer.format(asked)} $$"
    )
    found = await _together(store, [say(each, "once") for each in journals.values()])
    assert not [each for each in found if isinstance(each, BaseException)]
    reader = await world.store()
    for name in journals:
        assert texts(await everything(await reader.open(SessionId(name)))) == ["born", "once"]


@in_loop
async def test_a_decision_that_raises_stop_iteration_harms_no_neighbour(
    world: PostgresWorld,
) -> None:
    store = await world.store()
    wrong, fine = (await _on_one_lane(store, 2)).values()

    def decide(_: object) -> list[Any]:
        return [next(iter(()))]

    found = await _together(store, [wrong.append(decide, since=wrong.head), say(fine, "kept")])
    assert isinstance(found[0], RuntimeError)
    assert not isinstance(found[1], BaseException)


@in_loop
async def test_one_statement_keeps_batches_segments_and_empty_decisions(
    world: PostgresWorld,
) -> None:
    """A session may add several records, a new segment or nothing, beside others that add one."""
    store = await world.store()
    journals = await _on_one_lane(store, 4)
    plain, several, opens, empty = journals.values()
    await say(opens, "x" * STORED_SEGMENT_BYTES)
    commits = store.lanes[1].commits
    await _together(
        store,
        [
            say(plain, "one"),
            say(several, "one", "two", "three"),
            say(opens, "in the next segment"),
            empty.append(lambda _: (), since=empty.head),
        ],
    )
    assert store.lanes[1].commits == commits + 1
    assert world.rows("select count(*) from segment where journal = %s", opens.tail.journal) == [
        (2,)
    ]
    reader = await world.store()
    said = [texts(await everything(await reader.open(SessionId(name))))[1:] for name in journals]
    assert said[0] == ["one"]
    assert said[1] == ["one", "two", "three"]
    assert said[2][1:] == ["in the next segment"]
    assert said[3] == []
    for name in journals:
        assert (await reader.verify_session(SessionId(name))).verdict == "holds"


@in_loop
async def test_a_cancelled_caller_takes_back_what_has_not_begun(world: PostgresWorld) -> None:
    """Its neighbours in the same statement are kept."""
    store = await world.store()
    (first, journal), (second, other) = (await _on_one_lane(store, 2)).items()
    with _held_up(store.lanes[1]):
        cancelled = asyncio.ensure_future(say(journal, "taken back"))
        staying = asyncio.ensure_future(say(other, "stays"))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    await staying
    reader = await world.store()
    assert texts(await everything(await reader.open(SessionId(first)))) == ["born"]
    assert texts(await everything(await reader.open(SessionId(second)))) == ["born", "stays"]


@in_loop
async def test_a_caller_that_is_cancelled_later_waits_for_the_outcome(
    world: PostgresWorld,
) -> None:
    """Its record is kept, and its cancellation continues, however often it is cancelled."""
    store = await world.store()
    ((name, journal),) = (await _on_one_lane(store, 1)).items()
    begun, go_on = threading.Event(), threading.Event()

    def decide(_: object) -> list[Any]:
        begun.set()
        go_on.wait(30)
        return [note("kept")]

    task = asyncio.ensure_future(journal.append(decide, since=journal.head))
    await asyncio.to_thread(begun.wait, 30)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await journal.append(says("next"), since=journal.head)
    there = await (await world.store()).open(SessionId(name))
    assert texts(await everything(there)) == ["born", "kept", "next"]


@in_loop
async def test_an_append_and_a_claim_are_one_round_trip(
    world: PostgresWorld, postgres: Cluster
) -> None:
    """A fenced append too. Other threads add trips now and then, so the fewest of some tries counts."""
    proxy = CuttingProxy(postgres.port)
    place = DatabaseAddress(postgres.url(port=proxy.port), world.place.schema)
    store = await PostgresStore.open_home(place, world.folder, ahead_ms=None)

    async def fewest(work: Callable[[], Awaitable[object]]) -> int:
        found = []
        for _ in range(6):  # the first ones prepare the statement, and connect
            before = proxy.requests
            made = await work()
            found.append(proxy.requests - before)
            if isinstance(made, LeasedClaim):
                await made.release()
        return min(found)

    try:
        journal = await create_session(store)
        claim = await journal.claim()
        assert claim is not None
        assert await fewest(lambda: say(journal, "anybody's")) == 1
        assert (
            await fewest(lambda: say(journal, "a driver's", epoch=claim.epoch, check=Check.FENCE))
            == 1
        )
        await claim.release()
        assert await fewest(journal.claim) == 1
        assert await fewest(lambda: store.open(OPS)) <= 4
    finally:
        await store.close()
        proxy.close()
