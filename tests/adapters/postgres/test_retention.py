"""Outputs and quarantine in the database go by age, as `[retention]` says, and nothing else does."""

from collections.abc import Callable, Generator

import pytest
from proof.rigs.postgres_world import PostgresWorld

from holdfast.assembly.retention import prunable, prune
from holdfast.assembly.service import open_service
from holdfast.errors import HoldfastError
from holdfast.testing.journal_notes import create_session, say
from holdfast.testing.loop import in_loop


@pytest.fixture
def world(
    postgres_world: Callable[[], PostgresWorld],
) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


@in_loop
async def test_old_outputs_and_quarantine_go_and_new_ones_and_records_stay(
    world: PostgresWorld,
) -> None:
    """A dry run removes nothing. The journal is as long as before."""
    (world.folder / "holdfast.toml").write_text(
        f'[storage]\nurl = "{world.place.url}"\nschema = "{world.place.schema}"\n'
        '[retention]\noutputs = "7d"\nquarantine = "7d"\n'
    )
    store = await world.store()
    journal = await create_session(store)
    await say(journal, "one")
    old, new = await journal.keep_output(b"old output"), await journal.keep_output(b"new output")
    await journal.quarantine("reply", b'{"old": 1}')
    kept = await journal.quarantine("reply", b'{"new": 1}')
    records = world.rows("select count(*) from record")
    world.rows("update output set kept_at = kept_at - interval '8 days' where digest = %s", old)
    world.rows(
        "update quarantine set kept_at = kept_at - interval '8 days' "
        "where item = (select min(item) from quarantine)"
    )
    async with open_service(world.folder) as service:
        found = await prunable(service, world.folder)
        assert (len(found.outputs), len(found.quarantine)) == (1, 1)
        assert world.rows("select count(*) from output") == [(2,)]
        await prune(service, found, by="alice")
        again = await prunable(service, world.folder)
        assert (len(again.outputs), len(again.quarantine)) == (0, 0)
    assert await journal.output(new) == b"new output"
    with pytest.raises((HoldfastError, LookupError, OSError)):
        await journal.output(old)
    assert list(await journal.quarantined()) == [kept]
    assert world.rows("select count(*) from record") == records


@in_loop
async def test_nothing_of_the_last_hour_is_removed_whatever_a_node_asks(
    world: PostgresWorld,
) -> None:
    """A node whose clock is a year ahead would otherwise remove everything."""
    store = await world.store()
    journal = await create_session(store)
    await journal.keep_output(b"output")
    await journal.quarantine("reply", b"{}")
    found = world.rows("select array_agg(journal), array_agg(digest) from output")
    ahead = "select forget_outputs(now() + interval '1 year', %s, %s)"
    assert world.rows(ahead, *found[0]) == [(0,)]
    items = "(select array_agg(item) from quarantine)"
    assert world.rows(f"select forget_quarantine(now() + interval '1 year', {items})") == [(0,)]
