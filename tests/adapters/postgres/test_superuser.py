"""A superuser of the database edits, deletes, swaps and sets back rows: each is found, none is used."""

import asyncio
import shutil
from collections.abc import Callable, Generator

import pytest
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.schema import migrations
from holdfast.adapters.postgres.session.position import STORED_SEGMENT_BYTES
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Busy, CutShort, InDoubt, Untrusted, Unusable
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


WIPES = {
    "a cell": lambda node: (node / "anchors/0000.anchors").write_bytes(bytes(512)),
    "a table": lambda node: (node / "anchors/0000.anchors").unlink(),
    "the tables and their list": lambda node: shutil.rmtree(node / "anchors"),
    "the node's file": lambda node: (
        (node / "anchors/0000.anchors").unlink(),
        (node / "server.json").unlink(),
    ),
    "a changed node's file": lambda node: (
        (node / "anchors/0000.anchors").unlink(),
        (node / "server.json").write_bytes(b"{}"),
    ),
}


@pytest.mark.parametrize("wiped", WIPES)
@in_loop
async def test_a_wiped_anchor_does_not_undo_an_acknowledged_record(
    world: PostgresWorld, wiped: str
) -> None:
    """
    A superuser takes records away, and somebody without a key wipes what the node knew of them: the
    session is sealed, or the folder is refused until a person makes it a new node.
    """
    store = await world.store()
    journal = await create_session(store)
    for number in range(6):
        await say(journal, f"{number}")
    await store.close()
    for statement in HANDS["sets the head back"].split("; "):
        world.outsider.execute(statement, {"journal": world.journal(OPS)})
    WIPES[wiped](world.folder)
    if wiped not in ("a cell", "a table"):
        with pytest.raises(Unusable, match="removed or changed"):
            await world.store()
        assert init_home(world.place, world.folder).is_new_node
        assert (await world.store()).node
        return
    again = await world.store()
    assert (await again.verify_session(OPS)).verdict == "cut_short"
    assert (await again.open(OPS)).sealed is not None


@pytest.mark.parametrize("wiped", [False, True])
@in_loop
async def test_a_wiped_anchor_of_the_home_does_not_undo_a_deletion(
    world: PostgresWorld, wiped: bool
) -> None:
    """The home's journal has every revocation and seal, and its anchor counts like a session's."""
    store = await world.store()
    await create_session(store)
    before = world.rows("select seq, mac, at from head where journal = 1")
    await create_session(store, OTHER)
    await store.close()
    ((seq, mac, at),) = before
    world.rows("delete from record where journal = 1 and seq > %s", seq)
    world.rows("update head set seq = %s, mac = %s, at = %s where journal = 1", seq, mac, at)
    if wiped:
        (world.folder / "anchors/_home").unlink()
    with pytest.raises(Untrusted):
        await world.store()


@in_loop
async def test_a_session_of_another_node_is_not_taken_for_a_wiped_one(
    world: PostgresWorld,
) -> None:
    """A node that never saw a session has no anchor of it, and opens it."""
    first = await world.store()
    await say(await create_session(first), "here")
    folder = world.folder.parent / "second"
    folder.mkdir(mode=0o700)
    shutil.copytree(world.folder / "keys", folder / "keys")
    second = await PostgresStore.open_home(world.place, folder, ahead_ms=None)
    try:
        opened = await second.open(OPS)
        await say(opened, "there")
        assert texts(await everything(opened)) == ["born", "here", "there"]
        assert first.node != second.node
    finally:
        await second.close()


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


@in_loop
async def test_a_head_that_is_marked_as_over_seals_the_session(world: PostgresWorld) -> None:
    """Only the home's journal ends an instance. Unsealed, each use would say to open it again."""
    journal = await create_session(await world.store())
    await say(journal, "one")
    world.rows("update head set ended = true where journal = %s", world.journal(OPS))
    again = await world.store()
    assert (await again.open(OPS)).sealed is not None
    assert OPS in await again.seals()


@in_loop
async def test_a_home_that_is_cut_is_found_at_the_next_look_of_a_running_process(
    world: PostgresWorld,
) -> None:
    """Its last record may be a revocation. A look reads the last known record again."""
    store = await world.store()
    await create_session(store)
    ((seq, mac, at),) = world.rows("select seq, mac, at from head where journal = 1")
    await create_session(store, OTHER)
    world.rows("delete from record where journal = 1 and seq > %s", seq)
    world.rows("update head set seq = %s, mac = %s, at = %s where journal = 1", seq, mac, at)
    with pytest.raises(Untrusted):
        await store.sessions()


@in_loop
async def test_a_home_without_its_era_is_refused_and_no_append_waits_for_ever(
    world: PostgresWorld,
) -> None:
    store = await world.store()
    journal = await create_session(store)
    world.rows("delete from era")
    for _ in range(2):
        with pytest.raises(Busy):
            await say(journal, "late")
    with pytest.raises(Unusable, match="which history"):
        await world.store()


@in_loop
async def test_an_answer_that_is_not_ours_gives_every_waiting_append_an_outcome(
    world: PostgresWorld,
) -> None:
    """A lane that ended with it would leave its callers waiting for ever."""
    store = await world.store()
    await create_session(store)
    world.rows("alter function lock_head(bigint) rename to lock_head_before")
    world.rows(
        "create function lock_head(p_journal bigint) returns table (seq text, epoch text) "
        "language sql as $$ select null::text, null::text $$"
    )
    for _ in range(2):
        journal = await store.open(OPS)
        world.rows("update head set epoch = epoch + 1 where journal = %s", world.journal(OPS))
        with pytest.raises(InDoubt):
            await asyncio.wait_for(say(journal, "late"), 10)
    world.rows("drop function lock_head(bigint)")
    world.rows("alter function lock_head_before(bigint) rename to lock_head")
    journal = await store.open(OPS)
    await say(journal, "goes on")
    assert texts(await everything(journal)) == ["born", "goes on"]
