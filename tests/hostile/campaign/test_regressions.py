"""Findings of the campaigns, one test each: small, and without strace."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from proof.checkers.history import read_history

import holdfast
from holdfast.adapters.files import FileStore
from holdfast.adapters.files.commit import batch
from holdfast.adapters.files.home.layout import HOME_SESSION
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.adapters.tools.shell import shell
from holdfast.errors import InDoubt, NotSaved
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Draft
from holdfast.ports.tools import CannotBind
from holdfast.runtime.drive.driver import Driver
from holdfast.testing.loop import in_loop
from tests.hostile.campaign.conftest import Cli
from tests.hostile.campaign.worker import agent

alice = holdfast.MessageSource.local("alice")
OPS = SessionId("ops/api")


@in_loop
async def test_tasks_of_one_process_never_drive_one_session_together(tmp_path: Path) -> None:
    """
    L1: the claim is the process's; two drivers in it gave it up under each other, and a message was
    told as not drivable.
    """
    async with holdfast.open(
        tmp_path / "home", agents=[agent(tmp_path / "effects", "auto")]
    ) as home:

        async def send(name: str) -> str:
            return (
                await home.send(OPS, f"act what={name}", source=holdfast.MessageSource.local(name))
            ).outcome

        async with asyncio.TaskGroup() as group:
            sent = [group.create_task(send(f"p{number}")) for number in range(16)]
    assert [each.result() for each in sent] == ["completed"] * 16
    assert sorted((tmp_path / "effects").read_text().split()) == sorted(
        f"p{number}" for number in range(16)
    )
    history = await read_history(tmp_path / "home", OPS)
    assert history is not None
    assert history.owes == ()


@in_loop
async def test_a_lock_that_the_system_refuses_is_reported_and_nobody_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T7: the thread that commits for everybody died of it, and with it everybody's answer."""
    store = await FileStore.open_home(tmp_path / "home")
    journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(SessionFiles, "try_acquire", refused)
        patched.setattr(SessionFiles, "acquire", refused)
        with pytest.raises(NotSaved, match="No locks"):
            await asyncio.wait_for(
                journal.append(lambda _: [Draft("note", 1, b"{}")], since=journal.head), 30
            )
    await journal.append(lambda _: [Draft("note", 1, b"{}")], since=journal.head)
    await store.close()


@in_loop
async def test_an_anchor_that_can_not_be_synced_does_not_turn_what_was_done_into_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: the records are durable; only the anchor may lag."""

    def failing(_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("holdfast.adapters.files.home.anchor_tables.AnchorCell.sync", failing)
    async with holdfast.open(
        tmp_path / "home", agents=[agent(tmp_path / "effects", "auto")]
    ) as home:
        assert (await home.send(OPS, "act what=it", source=alice)).outcome == "completed"


def test_a_command_that_can_not_be_prepared_is_voided(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    P1: a folder flipped, or a launcher killed, between the last look and the start: a result for
    the model, not a crash.
    """
    turn = cli.json("send", OPS, "run: echo ran >> ran.txt", "--as", "alice")

    async def failing(*_: object, **__: object) -> Any:
        raise CannotBind("the folder has changed since this was approved")

    monkeypatch.setattr(shell, "start", failing)
    answered = asyncio.run(answer(cli, turn))
    assert (answered.result, answered.reason, answered.turn.outcome) == (
        "failed",
        "voided",
        "completed",
    )
    history = asyncio.run(read_history(cli.home, OPS))
    assert history is not None
    assert (history.outcomes(), cli.ran()) == (["voided"], 0)


def test_an_error_is_said_somewhere_when_stdout_is_full(cli: Cli) -> None:
    with Path("/dev/full").open("w") as full:
        process = cli.start("--json", "sessions", "list", stdout=full)
        _, err = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "could not be written" in err


def test_an_answer_that_was_recorded_is_never_reported_as_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2, D5: what fails after it is said beside it."""
    turn = cli.json("send", OPS, "run: echo ran >> ran.txt", "--as", "alice")

    async def failing(*_: object) -> None:
        raise NotSaved("the disk refused")

    monkeypatch.setattr(Driver, "run", failing)
    answered = asyncio.run(answer(cli, turn))
    assert (answered.result, answered.turn.error.code) == ("handed_on", "not_saved")
    assert (cli("--json", "resume").json["outcome"], cli.ran()) == ("completed", 1)


async def answer(cli: Cli, turn: dict[str, Any]) -> Any:
    async with holdfast.open(cli.home) as home:
        return await home.answer(
            await home.approval(turn["approvals"][0]["id"]), "approve_once", by=alice
        )


@in_loop
async def test_a_server_goes_on_after_one_failed_write_to_the_homes_own_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    T7: one error of the disk spent the home's handle for good, and a process that stays refused
    every new session until it was restarted.
    """
    move, failures = batch.move_anchor, ["once"]

    def failing(files: SessionFiles, *more: Any) -> Any:
        if files.session == HOME_SESSION and failures:
            failures.pop()
            raise OSError(errno.EIO, "Input/output error")
        return move(files, *more)

    async with holdfast.open(
        tmp_path / "home", agents=[agent(tmp_path / "effects", "ask")]
    ) as home:
        turn = await home.send(OPS, "act what=it", source=alice)
        monkeypatch.setattr(batch, "move_anchor", failing)
        with pytest.raises(InDoubt):
            await home.answer(turn.approvals[0], "approve_session", by=alice)
        assert (
            await home.answer(turn.approvals[0], "approve_session", by=alice)
        ).turn.outcome == "completed"
        failures.append("again")
        with pytest.raises(InDoubt):
            await home.send("ops/other", "act what=this", source=alice)
        assert (await home.send("ops/other", "act what=this", source=alice)).outcome == "waiting"
    async with holdfast.open(tmp_path / "home") as again:
        assert len(await again.service.grants()) == 1
        assert [each.session for each in await again.service.sessions()] == [OPS, "ops/other"]
