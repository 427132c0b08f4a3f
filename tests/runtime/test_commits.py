"""What a turn commits together: each commit is one wait for the disk, and nothing waits for more of them than its promises need."""

from typing import Any

import pytest

from holdfast.ports.journal_store import Appended
from holdfast.runtime.attempt import Attempt
from holdfast.testing.loop import in_loop
from tests.runtime.conftest import Stage, alice

LOOK = {"call": [{"tool": "look", "args": {"at": "api"}}]}
ACT = {"call": [{"tool": "act", "args": {"what": "deploy"}}]}


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The types of records in each commit, in order."""
    found: list[list[str]] = []
    move = Attempt._move

    def told(self: Attempt, done: Appended, keeping: Any) -> None:
        if done.suffix:
            found.append([record.type for record in done.suffix])
        move(self, done, keeping)

    monkeypatch.setattr(Attempt, "_move", told)
    return found


@in_loop
async def test_a_turn_with_a_call_that_policy_allows_is_four_commits(stage: Stage, commits: list[list[str]]) -> None:
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
async def test_calls_that_policy_allows_start_together_and_one_that_must_ask_does_not(stage: Stage, commits: list[list[str]]) -> None:
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
