"""
The records that a turn commits together: each commit is one wait for the disk, and nothing waits for more of
them than its promises need.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.files import FileStore
from holdfast.adapters.tools.builtin.base import Builtin
from holdfast.home import Agent
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Appended
from holdfast.runtime.ledger.attempt import Attempt
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice

LOOK = {"call": [{"tool": "look", "args": {"at": "api"}}]}
HOMES = {"home", "_home"}  # of the two stores; what is caught up with there is not a commit
ACT = {"call": [{"tool": "act", "args": {"what": "deploy"}}]}


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The types of records in each commit to a session, in order."""
    found: list[list[str]] = []
    move = Attempt._move

    def told(self: Attempt, done: Appended, keeping: Any) -> None:
        if done.suffix and self._journal.session not in HOMES:
            found.append([record.type for record in done.suffix])
        move(self, done, keeping)

    monkeypatch.setattr(Attempt, "_move", told)
    return found


@in_loop
async def test_a_turn_with_a_call_that_policy_allows_is_four_commits(
    stage: Stage, commits: list[list[str]]
) -> None:
    async with stage.open(stage.agent([{"say": "hello"}, LOOK, {"say": "done"}])) as home:
        await home.send("ops/api", "begin", source=alice)
        commits.clear()
        assert (await home.send("ops/api", "look", source=alice)).reply == "done"
    assert commits == [
        ["input_accepted", "turn_started", "model_call_started"],
        ["model_answered", "call_allowed", "tool_started"],
        ["call_finished", "model_call_started"],
        ["model_answered", "turn_ended"],
    ]
    assert stage.effects.done == ["look api"]


@in_loop
async def test_calls_that_policy_allows_start_together_and_one_that_must_ask_does_not(
    stage: Stage, commits: list[list[str]]
) -> None:
    both = {"call": [*LOOK["call"], {"tool": "look", "args": {"at": "db"}}, *ACT["call"]]}
    async with stage.open(stage.agent([both, {"say": "done"}])) as home:
        turn = await home.send("ops/api", "go", source=alice)
        assert turn.outcome == "waiting"
        (with_start,) = [each for each in commits if "tool_started" in each]
        assert (with_start.count("tool_started"), with_start.count("approval_requested")) == (2, 1)
        assert sorted(stage.effects.done) == ["look api", "look db"]
        commits.clear()
        await home.answer(turn.approvals[0], "approve_once", by=alice)
    (with_start,) = [each for each in commits if "tool_started" in each]
    assert with_start == ["turn_resumed", "tool_started"]
    assert stage.effects.done[2:] == ["deploy"]


def writes(*names: str) -> dict[str, Any]:
    return {
        "call": [{"tool": "write_file", "args": {"path": name, "content": "x"}} for name in names]
    }


@in_loop
async def test_a_single_call_that_was_approved_starts_in_the_commit_that_resumes_its_turn(
    stage: Stage, commits: list[list[str]], tmp_path: Path
) -> None:
    """
    Also one that has to be looked at and got ready first: from the answer to the start the disk is
    waited for twice.
    """
    async with stage.open(
        Agent("ops", model=ScriptModel([writes("a"), {"say": "done"}]), tools=["write_file"])
    ) as home:
        turn = await home.send("ops/api", "go", source=alice, workspace=tmp_path)
        commits.clear()
        await home.answer(turn.approvals[0], "approve_once", by=alice)
    assert commits[:2] == [["approval_answered"], ["turn_resumed", "tool_started"]]
    assert (tmp_path / "a").read_text() == "x"


@in_loop
async def test_several_calls_that_were_approved_are_got_ready_side_by_side(
    stage: Stage, commits: list[list[str]], tmp_path: Path
) -> None:
    async with stage.open(
        Agent("ops", model=ScriptModel([writes("a", "b"), {"say": "done"}]), tools=["write_file"])
    ) as home:
        turn = await home.send("ops/api", "go", source=alice, workspace=tmp_path)
        commits.clear()
        for approval in turn.approvals:
            await home.answer(approval, "approve_once", by=alice)
    assert [each for each in commits if "turn_resumed" in each] == [["turn_resumed"]]
    assert [(tmp_path / name).read_text() for name in "ab"] == ["x", "x"]


@in_loop
async def test_a_call_that_is_cancelled_while_it_gets_ready_to_start_with_its_turn_never_starts(
    stage: Stage, commits: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    getting_ready, cancelled = asyncio.Event(), asyncio.Event()
    abandoned: list[str] = []
    prepare = Builtin.prepare

    async def held(self: Builtin, *arguments: Any, **named: Any) -> Any:
        prepared = await prepare(self, *arguments, **named)
        monkeypatch.setattr(type(prepared), "abandon", abandon)
        getting_ready.set()
        await cancelled.wait()
        return prepared

    async def abandon(_: Any) -> None:
        abandoned.append("abandoned")

    monkeypatch.setattr(Builtin, "prepare", held)
    async with stage.open(
        Agent("ops", model=ScriptModel([writes("a"), {"say": "done"}]), tools=["write_file"])
    ) as home:
        turn = await home.send("ops/api", "go", source=alice, workspace=tmp_path)
        answering = asyncio.ensure_future(home.answer(turn.approvals[0], "approve_once", by=alice))
        await getting_ready.wait()
        await home.cancel("ops/api", by=alice)
        cancelled.set()
        assert (await answering).turn.outcome == "cancelled"
    assert not (tmp_path / "a").exists()
    assert abandoned == ["abandoned"]
    assert "tool_started" not in [each for commit in commits for each in commit]


@in_loop
async def test_a_new_session_up_to_its_prompt_is_opened_once_and_synced_eight_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    docs/internals/path.md names each sync. The session that was created is handed on to its first
    message, and not opened again.
    """
    stage, synced, opened = Stage("files", tmp_path / "home"), list[str](), list[str]()
    for name in ("fsync", "fdatasync"):
        sync = getattr(os, name)
        monkeypatch.setattr(os, name, lambda fd, sync=sync: (synced.append(name_of(fd)), sync(fd)))
    open_session = FileStore.open

    async def record_open(store: FileStore, session: SessionId) -> Any:
        opened.append(session)
        return await open_session(store, session)

    monkeypatch.setattr(FileStore, "open", record_open)
    async with stage.open(stage.agent([ACT, ACT])) as home:
        await home.send("ops/first", "act", source=alice)
        synced.clear()
        assert (await home.send("ops/api", "act", source=alice)).outcome == "waiting"
    assert opened == []
    up_to_the_prompt = synced[: synced.index("0000.anchors", 1) + 1]
    assert up_to_the_prompt == [
        "0000.anchors",
        "segment",
        ".api.new.tmp",
        "ops",
        "segment of the home",
        "segment",
        "segment",
        "0000.anchors",
    ]


def name_of(fd: int) -> str:
    path = Path(f"/proc/self/fd/{fd}").readlink()
    if path.suffix != ".jsonl":
        return path.name
    return "segment of the home" if path.parent.name == "home" else "segment"
