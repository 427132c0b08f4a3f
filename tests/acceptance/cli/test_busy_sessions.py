"""
Commands on a home in which somebody is stopped with a session's write lock in their hands: never
robbed, never waited for without end, always named (L3).
"""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from proof.rigs.peer import Peer

from holdfast.adapters.files import FileStore
from holdfast.assembly.service import open_service
from holdfast.errors import Busy
from holdfast.ids import SessionId
from holdfast.journal.verify import Verdict
from holdfast.runtime.lifecycle import delete as deletion
from holdfast.testing.loop import in_loop
from tests.acceptance.cli.conftest import Cli

OPS = SessionId("ops/api")


@contextmanager
def stopped_in(cli: Cli, *sessions: str) -> Iterator[list[Peer]]:
    """One process for each, stopped inside of its write."""
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(cli.home)) for _ in sessions]
        for peer, session in zip(peers, sessions, strict=True):
            assert peer.ask("hold", session=SessionId(session)) == {"holding": True}
            peer.stop()
        yield peers


@pytest.fixture
def outdated(cli: Cli) -> Cli:
    """
    `ops/api` was answered and `ops/new` created after the index was written; `ops/rest` it knows.
    """
    cli.json("send", "ops/rest", "hello")
    approval = cli.ask()
    before = cli.home.parent / "index.db"
    shutil.copy(cli.home / "index.db", before)
    cli.answer(approval, "deny")
    cli.json("send", "ops/new", "hello")
    shutil.copy(before, cli.home / "index.db")
    return cli


def test_lists_say_what_the_index_knows_of_a_busy_session_and_who_keeps_it(outdated: Cli) -> None:
    """
    Nothing is left out, nothing that is told as new is old, and `resume` goes on with the others.
    """
    cli = outdated
    with stopped_in(cli, "ops/api", "ops/new") as (api, new):
        lines = cli.json("sessions", "list")["sessions"]
        waiting = cli.json("approvals", "list")
        for_people = cli("approvals", "list")
        resumed = cli("--json", "resume")
    stale, unknown, rest = lines
    assert (stale["session"], stale["phase"], stale["waiting"]) == ("ops/api", "parked", 1)
    assert (unknown["session"], unknown["phase"], unknown["turns"]) == ("ops/new", "busy", 0)
    assert (rest["session"], rest["phase"], rest["busy"]) == ("ops/rest", "idle", None)
    for line, peer in ((stale, api), (unknown, new)):
        assert line["busy"].keys() == {"holder", "held_seconds"}
        assert line["busy"]["holder"].startswith(f"pid {peer.pid} ")
        assert line["busy"]["holder"].endswith(", stopped")
    assert [each["session"] for each in waiting["approvals"]] == ["ops/api"]
    assert {name: each["holder"] for name, each in waiting["busy"].items()} == {
        line["session"]: line["busy"]["holder"] for line in (stale, unknown)
    }
    assert f"ops/api is being written by pid {api.pid} " in for_people.err
    assert (resumed.code, [(each["session"], each["error"]["code"]) for each in resumed.lines]) == (
        5,
        [("ops/api", "busy"), ("ops/new", "busy")],
    )
    after = {
        line["session"]: (line["phase"], line["waiting"], line["seq"], line["busy"])
        for line in cli.json("sessions", "list")["sessions"]
    }
    assert after["ops/api"] == ("idle", 0, stale["seq"], None)
    assert after["ops/new"] == ("idle", 0, unknown["seq"], None)
    assert cli.json("approvals", "list") == {"approvals": []}


def test_half_a_record_of_a_stopped_writer_is_not_waited_for(cli: Cli) -> None:
    """Records past the anchor need the lock to be read; a list goes without it."""
    approval = cli.ask()
    with stopped_in(cli, "ops/api"):
        (segment,) = (cli.home / "sessions" / "ops" / "api").glob("*.jsonl")
        with segment.open("ab") as journal:
            journal.write(b'{"seq":')
        (cli.home / "index.db").unlink()
        told = cli.json("approvals", "list", "--all")
        sought = cli("--json", "approvals", "show", approval["id"])
        verdict = asyncio.run(_verdict(cli))
    assert (told["approvals"], list(told["busy"])) == ([], ["ops/api"])
    assert (sought.code, sought.json["error"]["code"]) == (
        5,
        "busy",
    )  # nobody has looked whether it is there
    assert (verdict.verdict, verdict.detail) == (
        "unreadable",
        f"ops/api is being written by {told['busy']['ops/api']['holder']} for 0 s or more",
    )


async def _verdict(cli: Cli) -> Verdict:
    store = await FileStore.open_home(cli.home)
    try:
        return await store.verify_session(OPS, wait_seconds=0)
    finally:
        await store.close()


@in_loop
async def test_a_session_that_somebody_keeps_locked_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do its jobs end: whoever deletes is told who holds it, and everything is as it was."""
    home = tmp_path / "home"
    ended: list[SessionId] = []

    async def end_jobs(*_: object) -> None:
        ended.append(OPS)

    monkeypatch.setattr(deletion, "end_jobs", end_jobs)
    async with open_service(home) as service:
        await service.create(OPS, by="alice")
        store: Any = service.runtime.world.store
        store._files._lock_wait_seconds = 0.1  # of what is opened from now on
        with Peer(home) as peer:
            peer.ask("hold", session=OPS)
            peer.stop()
            for delete in (
                deletion.delete(service.runtime, OPS, by="alice"),
                store.delete(OPS, by="alice"),
            ):
                with pytest.raises(Busy) as refused:
                    await delete
                assert str(refused.value.holder).startswith(f"pid {peer.pid} ")
            assert (list(await store.sessions()), ended) == ([OPS], [])
            peer.go_on()
            assert "error" not in peer.ask("go")
        await deletion.delete(service.runtime, OPS, by="alice")
        assert (list(await store.sessions()), ended) == ([], [OPS])
