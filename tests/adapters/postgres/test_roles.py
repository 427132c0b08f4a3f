"""The node's role can do what a node does, and nothing that would change a record."""

from collections.abc import Callable, Generator

import psycopg
import pytest
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.home.create import create_roles
from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Busy
from holdfast.ports.journal_store import Check
from holdfast.testing.journal_notes import OPS, create_session, everything, say, texts
from holdfast.testing.loop import in_loop

TABLES = (
    "head",
    "record",
    "segment",
    "moved",
    "quarantine",
    "output",
    "snapshot",
    "era",
    "node",
    "process",
    "schema_version",
    "standing",
    "belongs",
    "said",
    "said_through",
    "memory",
    "memory_size",
    "spread",
)


@pytest.fixture
def world(postgres_world: Callable[[], PostgresWorld]) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


@pytest.fixture
def login(world: PostgresWorld, postgres: Cluster) -> Generator[str, None, None]:
    """The address of a login that has the node's role and no other."""
    role = create_roles(world.place)
    name = f"login_{world.place.schema}"
    world.outsider.execute(f'create role "{name}" login; grant "{role}" to "{name}"')
    yield postgres.url().replace("owner@", f"{name}@")
    world.close()
    with psycopg.connect(postgres.url(), autocommit=True) as owner:
        owner.execute(f'drop owned by "{role}"; drop role "{name}"; drop role "{role}"')


@in_loop
async def test_a_node_with_the_role_keeps_the_whole_contract(
    world: PostgresWorld, login: str
) -> None:
    store = await PostgresStore.open_home(DatabaseAddress(login, world.place.schema), world.folder)
    try:
        journal = await create_session(store)
        claim = await journal.claim()
        assert claim is not None
        await say(journal, "driven", epoch=claim.epoch, check=Check.FENCE)
        await claim.release()
        await journal.quarantine("reply", b'{"text":"one"}')
        assert await journal.output(await journal.keep_output(b"out")) == b"out"
        assert texts(await everything(await store.open(OPS))) == ["born", "driven"]
        assert (await store.verify_session(OPS)).verdict == "holds"
        await store.delete(OPS, by="tests")
        assert list(await store.sessions()) == []
    finally:
        await store.close()


@pytest.mark.parametrize("table", TABLES)
def test_the_role_changes_no_table_itself(world: PostgresWorld, login: str, table: str) -> None:
    """Not a record, not a head, not even a cache: only the functions write."""
    with psycopg.connect(login, autocommit=True) as node:
        node.execute(f'set search_path to "{world.place.schema}"')
        node.execute(f"select * from {table}")  # noqa: S608  ours
        for statement in (
            f"delete from {table}",  # noqa: S608  ours
            f"truncate {table}",
            f"insert into {table} default values",
            f"update {table} set {_a_column(node, table)} = default",  # noqa: S608  ours
            f"drop table {table}",
            f"alter table {table} add column x int",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                node.execute(statement)


def test_every_table_is_among_those_that_the_role_must_not_change(world: PostgresWorld) -> None:
    found = world.rows(
        "select c.relname::text from pg_class c where c.relnamespace = %s::regnamespace "
        "and c.relkind in ('r', 'p', 'v', 'm')",
        f'"{world.place.schema}"',
    )
    assert sorted(TABLES) == sorted(name for (name,) in found)


def _a_column(node: "psycopg.Connection[tuple[str]]", table: str) -> str:
    row = node.execute(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 limit 1",
        (table,),
    ).fetchone()
    assert row is not None
    return row[0]


def test_nothing_but_a_journalled_deletion_removes_records(
    world: PostgresWorld, login: str
) -> None:
    """The function wants the home's record of it, in the same transaction."""
    with psycopg.connect(login, autocommit=True) as node:
        node.execute(f'set search_path to "{world.place.schema}"')
        line = b'{"type":"token_revoked","body":{"session":"ops/api","instance":"i"}}'
        with pytest.raises(psycopg.Error, match="not this deletion"):
            node.execute(
                "select * from end_journal('ops/api', 'i', null, 1, 1, '', 0, %s::bytea[], '', 0, "
                "null, null, null, (select timeline() || '/' || (select id from era)))",
                ([line],),
            )


def test_a_login_without_the_role_gets_the_next_command(
    world: PostgresWorld, postgres: Cluster
) -> None:
    import asyncio

    name = f"nobody_{world.place.schema}"
    world.outsider.execute(f'create role "{name}" login')
    try:
        url = postgres.url().replace("owner@", f"{name}@")
        with pytest.raises(Exception, match="may not do that") as caught:
            asyncio.run(
                PostgresStore.open_home(DatabaseAddress(url, world.place.schema), world.folder)
            )
        assert "storage init --create-roles" in getattr(caught.value, "hint", "")
        assert not isinstance(caught.value, Busy)
    finally:
        world.outsider.execute(f'drop role "{name}"')
