"""
C1: a driver whose lease is over writes nothing once another has claimed, whatever it believes. The
database's clock judges the lease, and a random token tells two claims of one epoch apart.
"""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Generator

import psycopg
import pytest
from proof.rigs.postgres_world import PostgresWorld

from holdfast.errors import Fenced
from holdfast.testing.journal_notes import OPS, create_session, everything, say, texts
from holdfast.testing.loop import in_loop

LEASE_SECONDS = 1.5
LEASE_SECONDS_MAX = 30.0  # of any process, as promised for a takeover

_DRIVES = """
import asyncio, sys
from pathlib import Path
from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Fenced
from holdfast.testing.journal_notes import say
async def main():
    store = await PostgresStore.open_home(
        DatabaseAddress(sys.argv[1], sys.argv[2]), Path(sys.argv[3]), lease_seconds=float(sys.argv[5])
    )
    store.lease._me = store.lease._me._replace(machine="another machine")
    journal = await store.open(sys.argv[4])
    claim = await journal.claim()
    await say(journal, "driven", epoch=claim.epoch)
    print("driving", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        await say(journal, "late", epoch=claim.epoch)
        print("kept", flush=True)
    except Fenced:
        print("fenced", flush=True)
asyncio.run(main())
"""


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


def _driver(world: PostgresWorld) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _DRIVES,
            *world.place[:2],
            str(world.folder),
            OPS,
            str(LEASE_SECONDS),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "driving\n"
    return process


def _go_on(process: "subprocess.Popen[str]") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


@in_loop
async def test_a_driver_that_is_stopped_past_its_lease_is_fenced(world: PostgresWorld) -> None:
    """It can't be claimed before the lease is over, and the stopped driver writes nothing after."""
    journal = await create_session(await world.store())
    process = await asyncio.to_thread(_driver, world)
    with process:
        try:
            assert await journal.claim() is None
            os.kill(process.pid, signal.SIGSTOP)
            async with asyncio.timeout(LEASE_SECONDS * 10):
                while (claim := await journal.claim()) is None:  # noqa: ASYNC110  by the clock
                    await asyncio.sleep(0.05)
            await say(journal, "driven on", epoch=claim.epoch)
            os.kill(process.pid, signal.SIGCONT)
            assert await asyncio.to_thread(_go_on, process) == "fenced\n"
        finally:
            process.kill()
    assert texts(await everything(journal)) == ["born", "driven", "driven on"]


@pytest.fixture
def turn_clock(world: PostgresWorld) -> Generator[Callable[[str], None], None, None]:
    """Let the home's functions read the database's clock so much later, or earlier."""
    schema, fake = world.place.schema, f"{world.place.schema}_clock"

    def turn(by: str) -> None:
        world.rows(
            f'create or replace function "{fake}".clock_timestamp() returns timestamptz '
            f"language sql as $$ select pg_catalog.clock_timestamp() + interval '{by}' $$"
        )

    world.rows(f'create schema "{fake}"')
    turn("0 s")
    for (name,) in world.rows(
        "select oid::regprocedure::text from pg_proc where pronamespace = %s::regnamespace "
        "and prosrc like '%%clock_timestamp%%'",
        f'"{schema}"',
    ):
        world.rows(f'alter function {name} set search_path = "{fake}", pg_catalog, "{schema}"')
    yield turn
    world.rows(f'drop schema "{fake}" cascade')


@in_loop
async def test_a_database_whose_clock_goes_forward_ends_leases_and_fences(
    world: PostgresWorld, turn_clock: Callable[[str], None]
) -> None:
    journal = await create_session(await world.store())
    process = await asyncio.to_thread(_driver, world)
    with process:
        try:
            os.kill(process.pid, signal.SIGSTOP)
            turn_clock("1 hour")
            claim = None
            async with asyncio.timeout(LEASE_SECONDS * 10):
                while claim is None:  # until this process has its own lease by that clock
                    claim = await journal.claim()
            await say(journal, "driven on", epoch=claim.epoch)
            os.kill(process.pid, signal.SIGCONT)
            assert await asyncio.to_thread(_go_on, process) == "fenced\n"
        finally:
            process.kill()
    assert texts(await everything(journal)) == ["born", "driven", "driven on"]


@in_loop
async def test_a_database_whose_clock_goes_back_keeps_no_lease_of_a_dead_process_for_long(
    world: PostgresWorld, turn_clock: Callable[[str], None]
) -> None:
    """Else the sessions of a dead node would wait for an hour."""
    journal = await create_session(await world.store(lease_seconds=LEASE_SECONDS))
    process = await asyncio.to_thread(_driver, world)
    with process:
        try:
            os.kill(process.pid, signal.SIGSTOP)
            turn_clock("-1 hour")
            assert await journal.claim() is None
            async with asyncio.timeout(30):
                while _longest_lease(world) > LEASE_SECONDS_MAX - 3600:  # noqa: ASYNC110  the server's
                    await asyncio.sleep(0.1)
        finally:
            process.kill()


def _longest_lease(world: PostgresWorld) -> float:
    """Seconds from the true time; the database's clock may say another one."""
    (row,) = world.rows("select extract(epoch from max(lease_until) - now())::float8 from process")
    return float(row[0])


@in_loop
async def test_a_driver_that_lives_keeps_its_claim_past_the_lease(world: PostgresWorld) -> None:
    """The lease is renewed while the process runs, whatever its turn waits for."""
    journal = await create_session(await world.store())
    process = await asyncio.to_thread(_driver, world)
    with process:
        try:
            for _ in range(20):
                assert await journal.claim() is None
                await asyncio.sleep(LEASE_SECONDS * 2 / 20)
            assert await asyncio.to_thread(_go_on, process) == "kept\n"
        finally:
            process.kill()


@in_loop
async def test_the_same_epoch_with_another_token_is_fenced(world: PostgresWorld) -> None:
    """After a lost timeline an epoch is handed out again; the token is not."""
    journal = await create_session(await world.store())
    claim = await journal.claim()
    assert claim is not None
    world.rows("update head set claim = %s where session = %s", uuid.uuid4(), OPS)
    with pytest.raises(Fenced):
        await say(journal, "late", epoch=claim.epoch)
    assert texts(await everything(journal)) == ["born"]


@in_loop
async def test_an_epoch_that_fell_seals_the_session(world: PostgresWorld) -> None:
    """A claim that is not higher than the records' epoch comes from a head that went back."""
    store = await world.store()
    journal = await create_session(store)
    for _ in range(3):
        claim = await journal.claim()
        assert claim is not None
        await say(journal, "driven", epoch=claim.epoch)
        await claim.release()
    world.rows("update head set epoch = 0 where session = %s", OPS)
    with pytest.raises(Exception, match="acknowledged"):
        await journal.claim()
    assert OPS in await store.seals()


@in_loop
async def test_a_process_that_renews_its_lease_just_now_is_not_waited_for_and_not_ended(
    world: PostgresWorld,
) -> None:
    """Two that waited for each other were a deadlock, and one of them could not open the home."""
    (late, other), node = (uuid.uuid4(), uuid.uuid4()), uuid.uuid4()
    keep = "select * from keep_lease(%s, %s, 'm', 1, '1', 30)"
    world.rows(keep, late, node)
    world.rows("update process set lease_until = clock_timestamp() - interval '1 hour'")
    with psycopg.connect(world.place.url) as waking:
        waking.execute(f'set search_path to "{world.place.schema}"')
        waking.execute("update process set lease_until = clock_timestamp() + interval '30 s'")
        world.rows("set lock_timeout = '2s'")
        world.rows(keep, other, node)
    assert world.rows("select count(*) from process where incarnation = %s", late) == [(1,)]


@in_loop
async def test_a_lease_is_renewed_while_a_row_of_the_lists_is_held(world: PostgresWorld) -> None:
    """A process that was stopped in an append holds such a row. The others are not to lose theirs."""
    await create_session(await world.store())
    world.rows("update moved set listed = seq, at = clock_timestamp() - interval '1 hour'")
    with psycopg.connect(world.place.url) as stopped:
        stopped.execute(f'set search_path to "{world.place.schema}"')
        stopped.execute("update moved set at = clock_timestamp()")
        world.rows("set lock_timeout = '2s'")
        renew = "select * from keep_lease(%s, %s, 'm', 1, '1', 30)"
        world.rows(renew, uuid.uuid4(), uuid.uuid4())
    assert world.rows("select count(*) from process where machine = 'm'") == [(1,)]
