"""A superuser of the database edits, deletes, swaps and sets back rows: each is found, none is used."""

from collections.abc import Callable, Generator

import pytest
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.schema import migrations
from holdfast.adapters.postgres.session.position import STORED_SEGMENT_BYTES
from holdfast.errors import CutShort, Untrusted
from holdfast.ports.journal_store import Check
from holdfast.testing.journal_notes import OPS, OTHER, create_session, everything, say, texts
from holdfast.testing.loop import in_loop


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


HANDS = {
    "edits a record": "update record set line = overlay(line placing 'XX'::bytea from 200) "
    "where journal = %(journal)s and seq = 3",
    "deletes a record in the middle": "delete from record where journal = %(journal)s and seq = 3",
    "swaps two records": "update record set seq = case seq when 3 then 104 when 4 then 103 end "
    "where journal = %(journal)s and seq in (3, 4); "
    "update record set seq = seq - 100 where journal = %(journal)s and seq > 100",
    "takes a record of another session": "update record r set line = (select line from record o "
    "where o.journal <> r.journal and o.seq = 3 order by o.journal desc limit 1) "
    "where r.journal = %(journal)s and r.seq = 3",
    "sets the head back": "delete from record where journal = %(journal)s and seq > 4; "
    "update head set seq = 4, mac = decode(substr(convert_from((select line from record where "
    "journal = %(journal)s and seq = 4), 'UTF8'), length(convert_from((select line from record "
    "where journal = %(journal)s and seq = 4), 'UTF8')) - 66, 64), 'hex') "
    "where journal = %(journal)s",
    "deletes the head": "delete from head where journal = %(journal)s",
    "deletes every record": "delete from record where journal = %(journal)s",
    "moves a segment": "update segment set first_seq = 2 where journal = %(journal)s",
}


@pytest.mark.parametrize("hands", HANDS)
@in_loop
async def test_an_open_handle_and_the_next_open_both_find_it(
    world: PostgresWorld, hands: str
) -> None:
    """Nothing is written on top, and the session is sealed for every node."""
    store = await world.store()
    journal, other = await create_session(store), await create_session(store, OTHER)
    for number in range(6):
        await say(journal, f"{number}")
        await say(other, f"other {number}")
    for statement in HANDS[hands].split("; "):
        world.outsider.execute(statement, {"journal": world.journal(OPS)})
    reopened = await (await world.store()).open(OPS)
    assert reopened.sealed is not None
    with pytest.raises(Untrusted):
        await say(reopened, "late")
    with pytest.raises(Exception, match="ops/api"):
        await say(journal, "late", check=Check.FENCE)
    assert OPS in await store.seals()
    await say(other, "goes on", check=Check.FENCE)
    assert "late" not in texts(await everything(reopened))


@in_loop
async def test_verify_finds_a_row_beyond_the_head(world: PostgresWorld) -> None:
    """Every use of the session refuses such a row, so `verify` must not call it whole."""
    store = await world.store()
    await say(await create_session(store), "one")
    copied = "insert into record select journal, seq + 1, line from record where journal = %s "
    last = "order by seq desc limit 1"
    assert (await store.verify_session(OPS)).verdict == "holds"
    world.outsider.execute(copied + last, (world.journal(OPS),))
    found = await store.verify_session(OPS)
    assert (found.verdict, found.detail) == ("broken", "a row stands beyond the head")


@in_loop
async def test_a_closed_segment_is_checked_by_the_digest_in_the_next_header(
    world: PostgresWorld,
) -> None:
    """A change far back is found at the next open, although no record of it travels."""
    store = await world.store()
    journal = await create_session(store)
    for number in range(8):
        await say(journal, f"{number} " + "x" * (STORED_SEGMENT_BYTES // 3))
    assert world.rows("select count(*) from segment where journal = %s", world.journal(OPS)) > [
        (2,)
    ]
    assert (await (await world.store()).open(OPS)).sealed is None
    await world.flip(OPS, b"1 xxx")
    assert (await (await world.store()).open(OPS)).sealed is not None


@in_loop
async def test_a_seal_that_is_reset_in_the_head_still_stands(world: PostgresWorld) -> None:
    """The home's journal seals; the flag in the head is a hint."""
    journal = await create_session(await world.store())
    await say(journal, "one")
    await world.flip(OPS, b"one")
    assert (await (await world.store()).open(OPS)).sealed is not None
    await world.flip(OPS, b"born")
    world.rows("update head set sealed = false")
    reopened = await (await world.store()).open(OPS)
    assert reopened.sealed is not None
    with pytest.raises(Untrusted):
        await say(reopened, "late")


@in_loop
async def test_a_changed_record_of_the_home_seals_the_home(world: PostgresWorld) -> None:
    """Sessions, grants and tokens come from there: nothing is believed any more."""
    await create_session(await world.store())
    home = world.rows("select journal from head where session = '_home'")[0][0]
    world.rows(
        "update record set line = overlay(line placing 'XX'::bytea from 120) "
        "where journal = %s and seq = 3",
        home,
    )
    with pytest.raises(Untrusted):
        await world.store()


@in_loop
async def test_a_trigger_that_alters_what_is_inserted_is_found_at_the_next_look(
    world: PostgresWorld,
) -> None:
    """The server says that it kept a line, and kept another one."""
    store = await world.store()
    journal = await create_session(store)
    world.outsider.execute(
        "create function alters() returns trigger language plpgsql as "
        "$$ begin new.line := overlay(new.line placing 'XX'::bytea from 200); return new; end $$; "
        "create trigger alters before insert on record for each row execute function alters()"
    )
    await say(journal, "one")
    world.outsider.execute("drop trigger alters on record")
    with pytest.raises(Untrusted):
        await say(journal, "late", check=Check.FENCE)
    assert OPS in await store.seals()
    assert (await (await world.store()).open(OPS)).sealed is not None


@in_loop
async def test_a_function_that_only_says_kept_is_found_at_the_next_look(
    world: PostgresWorld,
) -> None:
    """A record that was acknowledged is missing, and nothing is written in its place."""
    store = await world.store()
    journal = await create_session(store)
    (text,) = (each.text for each in migrations() if each.version == 1)
    start = text.index("create function append_one(")
    true = text[start : text.index("end $$;", start) + len("end $$;")]
    true = true.replace("create function", "create or replace function")
    world.outsider.execute(
        true.replace("\nbegin\n", "\nbegin\n  outcome := 'k'; return;\n", 1).encode()
    )
    await say(journal, "one")
    world.outsider.execute(true.encode())
    with pytest.raises(CutShort):
        await say(journal, "late")
    assert OPS in await store.seals()
    assert "late" not in texts(await everything(await (await world.store()).open(OPS)))
