"""Every answer of an append provoked, and every state of the server mapped to what to do next."""

import threading
import time
from collections.abc import Callable, Generator
from types import SimpleNamespace

import psycopg
import pytest
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.schema import migrations
from holdfast.adapters.postgres.server_errors import Lost, translated, unreachable
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import (
    Busy,
    Fenced,
    HoldfastError,
    NotSaved,
    ReadOnly,
    Refused,
    Untrusted,
    Unusable,
)
from holdfast.testing.clock import ManualClock
from holdfast.testing.journal_notes import OPS, OTHER, create_session, everything, note, say, texts
from holdfast.testing.loop import in_loop


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


@in_loop
async def test_moved_is_decided_again_on_the_head_that_it_follows(world: PostgresWorld) -> None:
    """The first decision is dropped; the second one has seen the other writer's record."""
    here, there = await create_session(await world.store()), await (await world.store()).open(OPS)
    since = here.head
    await say(there, "theirs")
    seen: list[list[str]] = []

    def counting(section):  # type: ignore[no-untyped-def]  as any decide
        seen.append(texts(section.suffix))
        return [note(f"after {len(seen[-1])}")]

    await here.append(counting, since=since)
    assert seen == [[], ["theirs"]]
    assert texts(await everything(here)) == ["born", "theirs", "after 1"]


@in_loop
async def test_sealed_and_gone_are_distinguished(world: PostgresWorld) -> None:
    store = await world.store()
    ops, other = await create_session(store), await create_session(store, OTHER)
    world.rows("select seal_journal(%s)", world.journal(OPS))
    with pytest.raises(Untrusted):
        await say(ops, "late")
    await (await world.store()).delete(OTHER, by="tests")
    with pytest.raises(Refused) as refused:
        await say(other, "late")
    assert refused.value.code == "unknown"


@in_loop
async def test_a_row_that_somebody_holds_is_waited_for(
    world: PostgresWorld, postgres: Cluster
) -> None:
    journal = await create_session(await world.store())
    holder = psycopg.connect(postgres.url())
    holder.execute(f'set search_path to "{world.place.schema}"')
    holder.execute("select * from head for update")
    freed = threading.Timer(0.5, holder.close)
    freed.start()
    began = time.monotonic()
    await say(journal, "waited")
    freed.join()
    assert time.monotonic() - began > 0.4
    assert texts(await everything(journal)) == ["born", "waited"]


@in_loop
async def test_a_clock_ahead_of_the_databases_writes_nothing(world: PostgresWorld) -> None:
    """One node a year ahead would end every open prompt, and the journal's time would stand still."""
    clock = ManualClock(now_ms=int(time.time() * 1000))
    store = await PostgresStore.open_home(world.place, world.folder, clock=clock)
    try:
        journal = await create_session(store)
        clock.advance(3600)
        with pytest.raises(Busy) as refused:
            await say(journal, "from tomorrow")
        assert refused.value.code == "clock_ahead_of_database"
        clock.jump(-3600)
        await say(journal, "now")
        assert texts(await everything(journal)) == ["born", "now"]
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("53100", NotSaved),
        ("25006", ReadOnly),
        ("55P03", Busy),
        ("57014", Busy),
        ("53300", Busy),
        ("40001", Busy),
        ("40P01", Busy),
        ("42501", Unusable),
        ("42P01", Unusable),
        ("3F000", Unusable),
        ("HF002", Busy),
        ("HF004", Unusable),
        ("HF005", Busy),
        ("22P02", NotSaved),
        ("57P01", Lost),
        ("57P02", Lost),
        ("08006", Lost),
        ("", Lost),
    ],
)
def test_each_state_of_the_server_says_what_to_do_next(state: str, error: type[Exception]) -> None:
    """Only `Lost` leaves open whether the statement was kept; every other one kept nothing."""
    raised = psycopg.OperationalError("it says why")
    raised.sqlstate = state or None
    connection = SimpleNamespace(closed=False, broken=False)
    found = translated(raised, connection)
    assert type(found) is error or isinstance(found, error)
    if isinstance(found, HoldfastError):
        assert "it says why" in found.message
        assert found.hint


_TO = 'connection failed: connection to server at "db", port 5432 failed: '


@pytest.mark.parametrize(
    ("said", "error", "hint"),
    [
        ('FATAL:  database "x" does not exist', Unusable, "createdb"),
        ('FATAL:  role "x" does not exist', Unusable, ".pgpass"),
        ('FATAL:  password authentication failed for user "x"', Unusable, ".pgpass"),
        ("fe_sendauth: no password supplied", Unusable, ".pgpass"),
        ('FATAL:  no pg_hba.conf entry for host "h", user "x"', Unusable, "pg_hba.conf"),
        ("SSL error: certificate verify failed", Unusable, "sslrootcert"),
        ("server does not support SSL, but SSL was required", Unusable, "ssl = on"),
        ("session is read-only", Busy, "promote"),
        ("FATAL:  sorry, too many clients already", Busy, "max_connections"),
        ("Connection refused", Busy, "server runs"),
    ],
)
def test_each_refused_connection_says_what_to_do_next(
    said: str, error: type[Exception], hint: str
) -> None:
    """The reason is there once, in the server's words, whichever of several servers gave it."""
    alone = unreachable(psycopg.OperationalError(f"{_TO}{said}\n\tIs it running?"))
    assert (type(alone), hint in alone.hint) == (error, True)
    assert alone.message.count(said.removeprefix("FATAL:  ")) == 1
    assert "FATAL" not in alone.message
    assert "connection failed" not in alone.message
    both = f"{_TO}{said}\nAll failures were:\n- host: 'a': {_TO}{said}\n- host: 'b': {_TO}timeout"
    found = unreachable(psycopg.OperationalError(both))
    assert found.message.endswith('; connection to server at "db", port 5432 failed: timeout')
    assert hint in found.hint or said == "session is read-only"  # the other may be the primary


def test_any_error_on_a_broken_connection_leaves_the_outcome_open() -> None:
    raised = psycopg.OperationalError("cut")
    raised.sqlstate = "53100"
    assert isinstance(translated(raised, SimpleNamespace(closed=True, broken=True)), Lost)


@in_loop
async def test_the_token_is_what_fences_a_second_claim_of_one_epoch(world: PostgresWorld) -> None:
    """The mutant that compares the epoch alone lets the old driver write."""
    (text,) = (each.text for each in migrations() if each.version == 1)
    start = text.index("create function outcome_of(")
    function = text[start : text.index("\n$$;", start) + len("\n$$;")]
    mutant = function.replace("create function", "create or replace function").replace(
        "(h_epoch, h_claim) is distinct from (p_epoch, p_claim)", "h_epoch is distinct from p_epoch"
    )
    journal = await create_session(await world.store())
    claim = await journal.claim()
    assert claim is not None
    world.rows("update head set claim = gen_random_uuid() where session = %s", OPS)
    with pytest.raises(Fenced):
        await say(journal, "fenced", epoch=claim.epoch)
    world.outsider.execute(mutant.encode())
    await say(journal, "let through by the mutant", epoch=claim.epoch)
