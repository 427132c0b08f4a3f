"""
Everything that can be wrong with the database, one row each: a sentence with the cause, the next
command, nothing written there, nothing made here, and never a home of files instead.
"""

import os
import shutil
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from proof.rigs.postgres_cluster import Cluster

from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.server import DatabaseAddress
from tests.acceptance.cli.conftest import Cli, everything_below

Owner = psycopg.Connection[Any]


class Refusal(NamedTuple):
    """`spoil` changes the database or the node's folder; it may return another address."""

    spoil: Callable[[Owner, Cli, str], str | None]
    said: str
    hint: str
    code: int


def _fakes(owner: Owner, function: str) -> None:
    """Let this server answer as another one would: the login finds our function first."""
    owner.execute("create schema fake")
    owner.execute(f"create function fake.{function}")
    owner.execute("grant usage on schema fake to public")
    _set_here(owner, "search_path = fake, pg_catalog, public")


def _set_here(owner: Owner, setting: str) -> None:
    """For this database alone: other tests use the server too."""
    owner.execute(f'alter role owner in database "{owner.info.dbname}" set {setting}')


def _old_server(owner: Owner, _: Cli, __: str) -> None:
    _fakes(
        owner,
        "current_setting(name text) returns text language sql as $$ select case name "
        "when 'server_version_num' then '130014' else pg_catalog.current_setting(name) end $$",
    )


def _standby(owner: Owner, _: Cli, __: str) -> None:
    _fakes(owner, "pg_is_in_recovery() returns boolean language sql as 'select true'")


def _newer(owner: Owner, _: Cli, __: str) -> None:
    owner.execute("update holdfast.schema_version set version = version + 100")


def _older(owner: Owner, _: Cli, __: str) -> None:
    owner.execute("delete from holdfast.schema_version where version > 1")


def _other_key(_: Owner, cli: Cli, __: str) -> None:
    (cli.home / "keys" / "1.key").write_bytes(bytes(32))


def _no_key(_: Owner, cli: Cli, __: str) -> None:
    shutil.rmtree(cli.home / "keys")


def _read_only(owner: Owner, _: Cli, __: str) -> None:
    _set_here(owner, "default_transaction_read_only = on")


def _no_role(owner: Owner, _: Cli, url: str) -> str:
    owner.execute("do $$ begin create role hf_plain login; exception when others then null; end $$")
    return url.replace("owner@", "hf_plain@")


ROWS = {
    "wrong address": Refusal(
        lambda *_: "postgresql://owner@127.0.0.1:1/x", "can't be reached", "check [storage] url", 5
    ),
    "missing role": Refusal(_no_role, "may not do that", "storage init --create-roles", 2),
    "old server": Refusal(_old_server, "PostgreSQL 13 is too old", "14 is the oldest", 2),
    "newer schema": Refusal(_newer, "this program knows", "upgrade Holdfast", 5),
    "older schema": Refusal(_older, "this program needs", "holdfast storage migrate", 2),
    "another key": Refusal(_other_key, "its first key is", "from a backup", 6),
    "no key": Refusal(_no_key, "has no key of it", "copy keys/", 6),
    "read-only login": Refusal(_read_only, "may only read", "default_transaction_read_only", 5),
    "standby": Refusal(_standby, "is a standby", "target_session_attrs=read-write", 5),
}


class Made(NamedTuple):
    """A home that every row begins with, each in a database and a folder of its own."""

    database: str
    folder: Path


@pytest.fixture(scope="module")
def made(
    postgres: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Made, None, None]:
    made = Made(f"refusals_{os.getpid()}", tmp_path_factory.mktemp("refusals") / "home")
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f'create database "{made.database}"')
        init_home(DatabaseAddress(postgres.url(made.database), "holdfast"), made.folder)
        yield made
        admin.execute(f'drop database "{made.database}" with (force)')


@pytest.fixture
def owner(postgres: Cluster, made: Made) -> Generator[tuple[Owner, str], None, None]:
    name = f"{made.database}_{time.monotonic_ns()}"
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f'create database "{name}" template "{made.database}"')
        try:
            with psycopg.connect(postgres.url(name), autocommit=True) as owner:
                yield owner, postgres.url(name)
        finally:
            admin.execute(f'drop database "{name}" with (force)')


def _everything_there(owner: Owner) -> list[tuple[Any, ...]]:
    """The records, the heads and the nodes that are there."""
    found = []
    for table in ("record", "head", "node", "process", "quarantine", "schema_version"):
        found += owner.execute(f"select '{table}', count(*) from holdfast.{table}").fetchall()  # noqa: S608  ours
    return found


@pytest.mark.parametrize("row", ROWS.values(), ids=[name.replace(" ", "_") for name in ROWS])
def test_each_is_refused_with_its_cause_and_the_next_step(
    cli: Cli, made: Made, owner: tuple[Owner, str], row: Refusal
) -> None:
    there, url = owner
    shutil.copytree(made.folder, cli.home, dirs_exist_ok=True)
    cli.home.chmod(0o700)
    other = row.spoil(there, cli, url)
    cli.settings(f'[storage]\nurl = "{other or url}"\n')
    before = _everything_there(there), everything_below(cli.home)
    ran = cli("send", "notes", "hello")
    assert (ran.code, row.said in ran.err, row.hint in ran.err) == (row.code, True, True), ran
    assert "Traceback" not in ran.err
    assert (_everything_there(there), everything_below(cli.home)) == before


def test_the_home_that_every_row_begins_with_can_be_used(
    cli: Cli, made: Made, owner: tuple[Owner, str]
) -> None:
    """So each refusal is of what the row changed."""
    there, url = owner
    shutil.copytree(made.folder, cli.home, dirs_exist_ok=True)
    cli.home.chmod(0o700)
    cli.settings(f'[storage]\nurl = "{url}"\n')
    before = _everything_there(there)
    assert cli("send", "notes", "hello").code == 0
    assert _everything_there(there) != before
