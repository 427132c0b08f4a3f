"""
A home in PostgreSQL by the commands: it works as a home of files does, and whatever is wrong with
the database is said with its cause and the next command. Nothing falls back to files.
"""

import asyncio
import socket
import time
from collections.abc import Generator

import psycopg
import pytest
from proof.rigs.pgbouncer import Pooler, find_pgbouncer
from proof.rigs.postgres_cluster import Cluster

from holdfast.assembly.service import open_service
from holdfast.ids import SessionId
from tests.acceptance.cli.conftest import Cli, everything_below


@pytest.fixture
def database(postgres: Cluster, request: pytest.FixtureRequest) -> Generator[str, None, None]:
    name = f"cli_{abs(hash(request.node.name))}"
    with psycopg.connect(postgres.url(), autocommit=True) as owner:
        owner.execute(f'create database "{name}"')
        yield postgres.url(name)
        owner.execute(f'drop database "{name}" with (force)')


def chosen(cli: Cli, url: str, more: str = "") -> None:
    cli.home.mkdir(mode=0o700, exist_ok=True)
    cli.settings(f'[storage]\nurl = "{url}"\n{more}\n')


def test_a_home_in_a_database_is_used_like_any_other(cli: Cli, database: str) -> None:
    """Send, pause, answer from another process, list, verify and export."""
    chosen(cli, database)
    assert cli.json("storage", "init")["made"] is True
    assert cli.json("storage", "init")["made"] is False
    assert cli("send", "notes", "shell command='echo hello'").code == 3
    (asked,) = cli.json("approvals", "list")["approvals"]
    assert cli("approvals", "answer", asked["id"], "approve_once").code == 0
    (line,) = cli.json("sessions", "list")["sessions"]
    assert (line["phase"], line["turns"]) == ("idle", 1)
    assert cli.json("verify")["home"]["verdict"] == "holds"
    assert [each["verdict"] for each in cli.json("verify")["sessions"]] == ["holds"]
    exported = cli("sessions", "export", "notes").out.splitlines()
    assert len(exported) == line["seq"]
    status = cli.json("storage", "status")
    assert (status["sessions"], status["schema_version"]) == (1, status["program_version"])
    assert cli.json("sessions", "show", "notes")["journal"] == []
    assert cli.json("sessions", "quarantine", "notes")["quarantine"] == []
    assert cli("sessions", "delete", "notes", "--yes").code == 0
    assert cli.json("sessions", "list")["sessions"] == []


@pytest.mark.parametrize("is_in_database", [True, False])
def test_an_item_in_quarantine_is_listed_and_printed_over_every_store(
    cli: Cli, database: str, *, is_in_database: bool
) -> None:
    """A person has no path to read in a database. The command prints the item of either store."""
    if is_in_database:
        chosen(cli, database)
        cli.json("storage", "init")
    cli("send", "notes", "hello")

    async def put_aside() -> None:
        async with open_service(cli.home) as service:
            journal = await service.runtime.world.store.open(SessionId("local/notes"))
            await journal.quarantine("reply", b'{"text":"too late"}')
            await journal.close()

    asyncio.run(put_aside())
    assert len(cli.json("sessions", "quarantine", "notes")["quarantine"]) == 1
    assert "too late" in cli("sessions", "quarantine", "notes", "1").out
    wrong = cli("sessions", "quarantine", "notes", "2")
    assert (wrong.code, "no item 2" in wrong.err) == (6, True)


@pytest.mark.parametrize(
    ("url", "more", "said", "hint", "code"),
    [
        ("postgresql://owner@127.0.0.1:1/x", "", "can't be reached", "check [storage] url", 5),
        ("postgresql://owner:pw@127.0.0.1:1/x", "", "has a password", "~/.pgpass", 2),
        ("not a url", "", "is not a PostgreSQL address", "postgresql:///", 2),
        ("{base}/absent", "", "does not exist", "createdb", 2),
        ("{stranger}/postgres", "", "refuses this login", "~/.pgpass", 2),
        ("{url}?sslmode=verify-full", "", "offers no TLS", "ssl = on", 2),
        ("service=absent", "", "a service that is not there", "pg_service.conf", 2),
        (
            "postgresql://owner@127.0.0.1:1,127.0.0.1:2/x",
            "",
            "port 1 failed: Connection refused; connection",  # each server's reason
            "check [storage] url",
            5,
        ),
        ("{url}", "", "has no home", "storage init", 2),
        ("{url}", 'schema = "Not Good"', "can't be the schema", "small letters", 2),
        (
            "postgresql://owner@db.example/x?sslmode=prefer",
            "",
            "does not check the server's name",
            "verify-full",
            2,
        ),
    ],
)
def test_a_database_that_cannot_be_used_is_said_and_nothing_is_made(
    cli: Cli, database: str, url: str, more: str, said: str, hint: str, code: int
) -> None:
    """Each with its cause and the next command; the folder stays as it is."""
    base = database.rpartition("/")[0]
    chosen(
        cli,
        url.format(url=database, base=base, stranger=base.replace("owner", "stranger")),
        more,
    )
    before = everything_below(cli.home)
    for words in (("sessions", "list"), ("send", "notes", "hello"), ("verify",)):
        ran = cli(*words)
        assert (ran.code, said in ran.err, hint in ran.err) == (code, True, True), ran
    assert everything_below(cli.home) == before


def test_a_schema_of_another_version_names_the_way_on(cli: Cli, database: str) -> None:
    chosen(cli, database)
    cli.json("storage", "init")
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("update holdfast.schema_version set version = version + 100")
        assert "upgrade Holdfast" in cli("sessions", "list").err
        owner.execute("update holdfast.schema_version set version = version - 100")
        owner.execute("delete from holdfast.schema_version where version > 1")
        assert "holdfast storage migrate" in cli("sessions", "list").err


def test_a_folder_of_one_kind_is_never_used_as_the_other(cli: Cli, database: str) -> None:
    """The url is lost, or comes to a home of files: nothing is written, and the way on is said."""
    chosen(cli, database)
    cli.json("storage", "init")
    cli("send", "notes", "hello")
    cli.settings("")
    before = everything_below(cli.home)
    for words in (("sessions", "list"), ("send", "notes", "hello"), ("verify",)):
        ran = cli(*words)
        assert ran.code == 2
        assert "[storage] url is missing" in ran.err
    assert everything_below(cli.home) == before
    files = cli.on(cli.home.parent / "files")
    assert files("send", "notes", "hello").code == 0
    files.settings(f'[storage]\nurl = "{database}"\n')
    assert "holds a home of files" in files("sessions", "list").err


def _another_node(cli: Cli, database: str, *, name: str = "other") -> Cli:
    """A node folder with the same key, as an operator makes one."""
    other = cli.on(cli.home.parent / name)
    chosen(other, database)
    keys = other.home / "keys"
    keys.mkdir(mode=0o700)
    for each in (cli.home / "keys").iterdir():
        (keys / each.name).write_bytes(each.read_bytes())
        (keys / each.name).chmod(0o600)
    return other


def test_a_second_node_needs_the_key_and_then_shares_the_home(cli: Cli, database: str) -> None:
    chosen(cli, database)
    cli.json("storage", "init")
    cli("send", "notes", "hello")
    stranger = cli.on(cli.home.parent / "stranger")
    chosen(stranger, database)
    assert "has no key" in stranger("sessions", "list").err
    assert "copy keys/" in stranger("storage", "init").out
    assert not (stranger.home / "server.json").exists()
    other = _another_node(cli, database)
    assert [each["session"] for each in other.json("sessions", "list")["sessions"]] == [
        "local/notes"
    ]
    assert other("send", "notes", "hello from there").code == 0
    assert cli.json("verify")["sessions"][0]["verdict"] == "holds"
    nodes = cli.json("nodes", "list")["nodes"]
    assert [(each["state"], each["drives"]) for each in nodes] == [("silent", 0)] * 2
    assert {each["host"] for each in nodes} == {socket.gethostname()}
    assert all(each["silent_seconds"] < 120 for each in nodes)
    assert f"on {socket.gethostname()}, Holdfast" in cli("nodes", "list").out
    (other.home / "keys" / "1.key").write_bytes(bytes(32))
    assert other("sessions", "list").code != 0


def test_a_node_of_one_home_makes_no_other_home_where_a_name_is_wrong(
    cli: Cli, database: str
) -> None:
    """It would forget what it knows of its own home, and the first home would seem to be empty."""
    chosen(cli, database)
    cli.json("storage", "init")
    cli("send", "notes", "hello")
    chosen(cli, database, 'schema = "holdfats"')
    before = everything_below(cli.home)
    ran = cli("storage", "init")
    assert (ran.code, "is a node of another home" in ran.err) == (2, True), ran
    assert "under [storage]" in ran.err
    assert everything_below(cli.home) == before
    with psycopg.connect(database) as owner:
        assert owner.execute("select to_regnamespace('holdfats')").fetchall() == [(None,)]


def test_a_key_is_rotated_only_when_every_node_has_it(cli: Cli, database: str) -> None:
    """A node without the key could read nothing that is written from then on."""
    chosen(cli, database)
    cli.json("storage", "init")
    other = _another_node(cli, database)
    other("sessions", "list")
    ran = cli("keys", "rotate")
    assert (ran.code, "does not have key 2" in ran.err, "2.key" in ran.err) == (6, True, True), ran
    (other.home / "keys" / "2.key").write_bytes((cli.home / "keys" / "2.key").read_bytes())
    (other.home / "keys" / "2.key").chmod(0o600)
    other("sessions", "list")
    assert cli.json("keys", "rotate")["generation"] == 2
    assert other("send", "notes", "hello").code == 0
    assert cli.json("verify")["sessions"][0]["verdict"] == "holds"


def test_a_node_is_given_up_by_a_person_and_that_is_journalled(cli: Cli, database: str) -> None:
    chosen(cli, database)
    cli.json("storage", "init")
    other = _another_node(cli, database)
    cli("sessions", "list")
    (gone,) = _nodes_of(other, database)
    (mine,) = {each["node"] for each in cli.json("nodes", "list")["nodes"]} - {gone}
    assert cli("nodes", "accept", "zzz", "--reason", "gone").code == 6
    accepted = cli.json("nodes", "accept", gone[:13], "--reason", "its disk is gone")
    assert (accepted["node"], accepted["accepted"]) == (gone, True)
    assert [each["node"] for each in cli.json("nodes", "list")["nodes"]] == [mine]
    with psycopg.connect(database, autocommit=True) as owner:
        lines = owner.execute(
            "select line from holdfast.record where journal = (select journal from holdfast.head "
            "where session = '_home') order by seq desc limit 1"
        ).fetchall()
    assert b'"node_accepted"' in lines[0][0]
    assert b"its disk is gone" in lines[0][0]


def _nodes_of(cli: Cli, database: str) -> set[str]:
    """The node of this folder: the one that is seen last after it was used."""
    cli("sessions", "list")
    with psycopg.connect(database, autocommit=True) as owner:
        found = owner.execute(
            "select node::text from holdfast.node order by seen_at desc limit 1"
        ).fetchall()
    return {found[0][0]}


def test_a_rotated_key_seals_what_comes_after_it_and_both_are_needed(
    cli: Cli, database: str
) -> None:
    """The next segment is under the new key; a folder without it is refused."""
    chosen(cli, database)
    cli.json("storage", "init")
    cli("send", "notes", "hello")
    assert cli.json("keys", "rotate")["generation"] == 2
    cli("send", "notes", "hello again")
    assert '"generation":2' in cli("sessions", "export", "notes").out
    assert cli.json("verify")["sessions"][0]["verdict"] == "holds"
    (cli.home / "keys" / "2.key").unlink()
    assert cli("send", "notes", "and again").code != 0


def test_a_home_moves_from_the_database_to_files_and_back(cli: Cli, database: str) -> None:
    """`backup` writes a home of files, `restore` fills an empty schema; nothing owed runs again."""
    chosen(cli, database)
    cli.json("storage", "init")
    cli("send", "notes", "remember text='the door code is 4711'")
    for asked in cli.json("approvals", "list")["approvals"]:
        assert cli("approvals", "answer", asked["id"], "approve_once").code == 0
    assert len(_remembered(cli)) == 1
    cli("send", "notes", "hello")
    cli("send", "waits", "shell command='echo hello'")
    before = cli("sessions", "export", "notes").out
    copy = cli.home.parent / "copy"
    made = cli.json("backup", str(copy))
    assert (made["sessions"], made["broken"]) == (2, [])
    assert not (copy / "server.json").exists()
    files = cli.on(cli.home.parent / "files")
    assert files("restore", str(copy)).code == 0
    assert [each["verdict"] for each in files.json("verify")["sessions"]] == ["holds", "holds"]
    names = [each["session"] for each in files.json("sessions", "list")["sessions"]]
    assert names == ["local/notes", "local/waits"]
    assert files.json("approvals", "list")["approvals"] == []
    assert files("send", "notes", "hello there").code == 0
    files("keys", "rotate")  # the home's journal has two segments from the next record on
    files("send", "more", "hello")
    assert cli("sessions", "export", "notes").out == before
    again = cli.home.parent / "again"
    files.json("backup", str(again))
    back = cli.on(cli.home.parent / "node")
    chosen(back, database, 'schema = "second"')
    restored = back("restore", str(again))
    assert restored.code == 0, restored
    assert [each["verdict"] for each in back.json("verify")["sessions"]] == ["holds"] * 3
    assert back("send", "notes", "hello again").code == 0
    assert _remembered(back) == _remembered(files) == _remembered(cli)
    refused = back("restore", str(again))
    assert (refused.code, "has a home already" in refused.err) == (6, True), refused
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "update second.record set line = overlay(line placing 'X' from 90) where seq = 2 and "
            "journal = (select journal from second.head where session = '_home')"
        )
    assert back("sessions", "list").code == 4


def _remembered(cli: Cli) -> list[str]:
    return [each["text"] for each in cli.json("memory", "list")["memory"]]


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_server_that_keeps_nothing_durable_is_refused(
    cli: Cli, database: str, postgres: Cluster, setting: str
) -> None:
    if setting == "synchronous_commit":
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute("alter role owner set synchronous_commit = off")
        try:
            chosen(cli, database)
            assert "synchronous_commit is off" in cli("storage", "init").err
        finally:
            with psycopg.connect(database, autocommit=True) as owner:
                owner.execute("alter role owner reset synchronous_commit")
        return
    with psycopg.connect(postgres.url(), autocommit=True) as owner:
        owner.execute(f"alter system set {setting} = off")
        owner.execute("select pg_reload_conf()")
        try:
            chosen(cli, database)
            assert f"{setting} is off" in cli("storage", "init").err
        finally:
            owner.execute(f"alter system reset {setting}")
            owner.execute("select pg_reload_conf()")


def test_a_pooler_without_a_direct_address_is_said_with_the_setting_that_helps(
    cli: Cli, database: str, postgres: Cluster
) -> None:
    """LISTEN succeeds there and hears nothing, so it is found out another way."""
    program = find_pgbouncer()
    if program is None:
        pytest.skip("needs PgBouncer (on Debian: pgbouncer), which is not installed")
    pooler = Pooler(program, postgres)
    try:
        pooled = database.replace(f":{postgres.port}/", f":{pooler.port}/")
        chosen(cli, database)
        cli.json("storage", "init")
        chosen(cli, pooled)
        assert cli("send", "notes", "hello").code == 0
        status = cli.json("storage", "status")
        assert (status["pooled"], status["notices"]) == (True, "polled")
        told = [each for each in cli.json("doctor")["checks"] if each["check"] == "storage"]
        assert [each for each in told if "storage.listen_url" in (each["hint"] or "")], told
        chosen(cli, pooled, f'listen_url = "{database}"')
        assert cli.json("storage", "status")["notices"] == "heard"
        assert cli("send", "notes", "hello again").code == 0
        chosen(cli, pooled, f'listen_url = "{pooled}"')
        status = cli.json("storage", "status")
        assert (status["notices"], "to a pooler" in status["why_polled"]) == ("polled", True)
        chosen(cli, pooled, f'listen_url = "{postgres.url("template1")}"')
        status = cli.json("storage", "status")
        assert (status["notices"], "no home" in status["why_polled"]) == ("polled", True)
        assert cli.json("verify")["sessions"][0]["verdict"] == "holds"
    finally:
        pooler.stop()


def test_a_session_names_its_store_and_no_path(cli: Cli, database: str) -> None:
    chosen(cli, database)
    cli.json("storage", "init")
    cli("send", "notes", "hello")
    shown = cli.json("sessions", "show", "notes")
    assert (shown["journal"], shown["store"]) == ([], "postgres:holdfast")
    files = cli.on(cli.home.parent / "files")
    files("send", "notes", "hello")
    shown = files.json("sessions", "show", "notes")
    assert (len(shown["journal"]), shown["store"]) == (1, None)


def test_sessions_are_pruned_and_deleted_in_the_database(cli: Cli, database: str) -> None:
    """By the journalled decision alone; nothing of them stays but that they were deleted."""
    chosen(cli, database, '[retention]\nsessions = "1s"')
    cli.json("storage", "init")
    cli("send", "old", "hello")
    cli("send", "waits", "shell command='echo hello'")
    cli("send", "gone", "hello")
    assert cli("sessions", "delete", "gone", "--yes").code == 0
    time.sleep(1.2)  # by the clock of the server and this one
    assert cli.json("sessions", "prune")["sessions"] == ["local/old"]
    listed = cli.json("sessions", "list")["sessions"]
    assert [each["session"] for each in listed] == ["local/waits"]
    with psycopg.connect(database, autocommit=True) as owner:
        for table in ("head", "standing", "belongs"):
            found = owner.execute(
                f"select session from holdfast.{table} where session in ('local/old', 'local/gone')"  # noqa: S608  ours
            ).fetchall()
            assert found == [], table
