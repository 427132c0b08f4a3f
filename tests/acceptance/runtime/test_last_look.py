"""T1, A5: what was prepared and may not start after all is given up, and does nothing."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.tools.python.decorator import PythonTool
from holdfast.home import Agent
from holdfast.ids import CallId, SessionId, TurnId
from holdfast.runtime.drive.drive import Drive, Tasks
from holdfast.runtime.drive.tool_call import run_tool
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.events import CallFinished, ToolStarted
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice

S = SessionId("ops/api")
WRITES = Agent(
    "ops",
    model=ScriptModel(
        [
            {"call": [{"tool": "write_file", "args": {"path": "made.txt", "content": "made"}}]},
            {"say": "well"},
        ]
    ),
    tools=["write_file"],
)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    (tmp_path / "work").mkdir()
    return Stage("memory", tmp_path / "home")


@pytest.mark.parametrize("mode", ["ask", "deny"])
@in_loop
async def test_a_tool_that_needs_preparing_does_nothing_when_its_start_is_refused(
    stage: Stage, tmp_path: Path, mode: str
) -> None:
    """
    Policy was tightened while it was parked; with policy as it was, the same answer writes the
    file.
    """
    work = tmp_path / "work"
    async with stage.open(WRITES) as home:
        turn = await home.service.send(
            S,
            Incoming(
                text="write",
                source=alice,
                workspace=home.service.runtime.world.workspace(str(work)),
            ),
        )
        stage.policy = Policy(
            rules={Audience.PERSONAL: {"write_file": Rule(mode=mode)}} if mode == "deny" else {}
        )
        answer = await home.answer(turn.approvals[0], "approve_once", by=alice)
    events = [
        each for each in await stage.events(S) if isinstance(each, ToolStarted | CallFinished)
    ]
    if mode == "deny":
        assert (answer.result, answer.reason) == ("failed", "voided")
        assert [type(each) for each in events] == [CallFinished]
    else:
        assert (answer.result, answer.turn.outcome) == ("started", "completed")
        assert [type(each) for each in events] == [ToolStarted, CallFinished]
    assert [each.name for each in work.iterdir()] == ([] if mode == "deny" else ["made.txt"])


@in_loop
async def test_policy_that_is_tightened_while_a_call_gets_ready_holds_for_its_start(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A5: the call would start in the very commit that takes the answer; that commit is decided by
    what settings say right before it.
    """
    prepare = PythonTool.prepare

    async def tightening(self: PythonTool[..., Any], *args: Any, **kwargs: Any) -> Any:
        stage.policy = Policy(rules={Audience.PERSONAL: {"look": Rule(mode="deny")}})
        return await prepare(self, *args, **kwargs)

    monkeypatch.setattr(PythonTool, "prepare", tightening)
    async with stage.open(
        stage.agent([{"call": [{"tool": "look", "args": {"at": "x"}}]}, {"say": "well"}])
    ) as home:
        assert (await home.send(S, "look", source=alice)).outcome == "completed"
    (finished,) = [
        each for each in await stage.events(S) if isinstance(each, ToolStarted | CallFinished)
    ]
    assert (type(finished), finished.code, stage.effects.done) == (
        CallFinished,
        "denied_by_policy",
        [],
    )


@pytest.mark.parametrize("turn", ["t1", "t9"])
@in_loop
async def test_a_call_that_is_over_by_the_time_its_task_begins_is_left_alone(
    stage: Stage, tmp_path: Path, turn: str
) -> None:
    async with stage.open(WRITES) as home:
        service = home.service
        await service.send(
            S,
            Incoming(
                text="write",
                source=alice,
                workspace=service.runtime.world.workspace(str(tmp_path / "work")),
            ),
        )
        async with service.runtime.sessions.use(S) as ledger:
            before = ledger.state
            drive = Drive(service.runtime, service.runtime.world, ledger, 1, Tasks(ledger))
            await run_tool(drive, TurnId(turn), CallId("c-none"))
            assert ledger.state == before
