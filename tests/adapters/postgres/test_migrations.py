"""
The schema is the sum of its migrations: printed, applied at once, or applied to an older one. A
migration that is cut in the middle leaves nothing behind.
"""

import os
import re
import threading
import time
from collections.abc import Generator

import psycopg
import pytest
from proof.rigs.postgres_cluster import Cluster

from holdfast.adapters.postgres import schema as schemas
from holdfast.adapters.postgres.schema import Migration, app_role, create_roles, migrate, version
from holdfast.adapters.postgres.server import DatabaseAddress, Wire, connect
from holdfast.errors import Busy


@pytest.fixture
def database(postgres: Cluster) -> Generator[str, None, None]:
    name = f"migrations_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f'create database "{name}"')
        yield name
        admin.execute(f'drop database "{name}" with (force)')


def _wire(postgres: Cluster, database: str, schema: str) -> Wire:
    return connect(DatabaseAddress(postgres.url(database), schema))


def _dumped(postgres: Cluster, database: str, schema: str) -> str:
    """The schema as the server describes it, without its name and the dump's own tokens."""
    found = postgres.run("pg_dump", "-s", "-n", schema, postgres.url(database)).stdout
    return re.sub(r"(?m)^\\(un)?restrict .*$", "", found).replace(schema, "SCHEMA")


def _until_newest(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """This program knows no migration after `last`."""
    known = [each for each in schemas.migrations() if each.version <= last]
    monkeypatch.setattr(schemas, "migrations", lambda: known)


def test_the_printed_schema_and_an_upgraded_one_equal_a_new_one(
    postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an operator who runs the text of `storage sql`, and for a home that was made before."""
    names = [each.name for each in schemas.migrations()]
    wire = _wire(postgres, database, "whole")
    assert migrate(wire, "whole") == names
    assert migrate(wire, "whole") == []
    with psycopg.connect(postgres.url(database), autocommit=True) as owner:
        owner.execute(schemas.sql_text("printed").encode())
    wire.close()
    wire, applied = _wire(postgres, database, "stepped"), []
    for last in range(1, len(names) + 1):
        with monkeypatch.context() as older:
            _until_newest(older, last)
            applied += migrate(wire, "stepped")
            assert version(wire, "stepped") == last
    wire.close()
    assert applied == names
    whole = _dumped(postgres, database, "whole")
    assert "append_one" in whole
    assert _dumped(postgres, database, "printed") == whole
    assert _dumped(postgres, database, "stepped") == whole


def test_a_migration_grants_to_the_role_what_is_new(
    postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role was made while the schema was older. Else every node would be refused afterwards."""
    schema = f"s{time.monotonic_ns()}"  # roles belong to the whole server
    wire = _wire(postgres, database, schema)
    try:
        with monkeypatch.context() as older:
            _until_newest(older, 1)
            migrate(wire, schema)
            create_roles(wire, schema)
        migrate(wire, schema)
        lacking = wire.rows(
            "select p.proname::text from pg_proc p where p.pronamespace = %s::regnamespace "
            "and not has_function_privilege(%s, p.oid, 'execute')",
            (schema, app_role(schema)),
        )
        assert lacking == []
    finally:
        wire.script(f'drop schema "{schema}" cascade; drop role "{app_role(schema)}"')
        wire.close()


def test_a_migration_whose_connection_is_ended_is_applied_by_the_next_run(
    postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it stays, and it says how to go on."""
    first, second, *_ = schemas.migrations()
    slow = Migration(second.version, second.name, f"{second.text}; select pg_sleep(60)")
    wire = _wire(postgres, database, "cut")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            migrate(wire, "cut")
        except Busy as exc:
            raised.append(exc)

    with monkeypatch.context() as slowed:
        slowed.setattr(schemas, "migrations", lambda: [first, slow])
        running = threading.Thread(target=run)
        running.start()
        with psycopg.connect(postgres.url(database), autocommit=True) as owner:
            end = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'"
            mine = f"{end} and datname = current_database()"
            while not owner.execute(mine).fetchall():
                time.sleep(0.02)
        running.join(30)
    assert len(raised) == 1
    assert isinstance(raised[0], Busy)
    assert raised[0].hint == "`holdfast storage status` says what was applied; run it again"
    wire = _wire(postgres, database, "cut")
    assert version(wire, "cut") == 1
    assert wire.rows("select to_regclass('cut.standing')::text") == [(None,)]
    assert migrate(wire, "cut") == [each.name for each in schemas.migrations()[1:]]
    wire.close()
