"""A tightened rule in holdfast.toml applies to a process that has the home open."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing.loop import in_loop

ALICE = holdfast.MessageSource.local("alice")


def settle(home: Path, *, tools: list[str], more: str = "") -> None:
    """Replaced in one step, as an editor does it."""
    model = json.dumps(f"script:{home.parent / 'story.jsonl'}")
    text = f"[agents.assistant]\nmodel = {model}\ntools = {json.dumps(tools)}\n{more}"
    new = home / "new.toml"
    new.write_text(text)
    new.chmod(0o600)
    new.rename(home / "holdfast.toml")


def story(tmp_path: Path) -> Path:
    call = {"call": [{"tool": "shell", "args": {"command": "ls"}}]}
    lines = [json.dumps(line) for line in (call, {"say": "done"})]
    (tmp_path / "story.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "ws").mkdir()
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


async def outcomes(home: Any, session: str) -> list[str]:
    found = []
    async for record in home.follow(session, after=0):
        if isinstance(record, holdfast.Record) and record.type == "call_finished":
            found.append(json.loads(record.body)["outcome"])
        if isinstance(record, holdfast.Record) and record.type == "turn_ended":
            break
    return found


@in_loop
async def test_a_level_that_settings_tighten_is_the_next_prompts_level(tmp_path: Path) -> None:
    path = story(tmp_path)
    settle(path, tools=["shell"], more='[tools.shell]\nconfine = "off"\n')
    async with holdfast.open(path) as home:
        turn = await home.send("ops/a", "go", source=ALICE, workspace=os.fspath(tmp_path / "ws"))
        assert "UNCONFINED" in turn.approvals[0].display
        settle(path, tools=["shell"], more='[tools.shell]\nconfine = "require"\n')
        late = await home.answer(turn.approvals[0], "approve_once", by=ALICE)
        assert (late.result, late.reason) == ("failed", "voided")
        turn = await home.send("ops/b", "go", source=ALICE, workspace=os.fspath(tmp_path / "ws"))
        assert not any("UNCONFINED" in each.display for each in turn.approvals)


@in_loop
async def test_a_tool_that_settings_take_from_an_agent_is_gone_at_the_next_call(
    tmp_path: Path,
) -> None:
    path = story(tmp_path)
    allowed = '[policy.personal]\nshell = "auto"\n'
    settle(path, tools=["shell"], more=allowed)
    async with holdfast.open(path) as home:
        settle(path, tools=["now"], more=allowed)
        turn = await home.send("ops/a", "go", source=ALICE, workspace=os.fspath(tmp_path / "ws"))
        assert turn.outcome == "completed"
        assert await outcomes(home, "ops/a") == ["error"]


@in_loop
async def test_nothing_is_decided_while_settings_name_a_secret_that_the_process_does_not_know(
    tmp_path: Path,
) -> None:
    path = story(tmp_path)
    settle(path, tools=["shell"])
    async with holdfast.open(path) as home:
        settle(path, tools=["shell"], more='[secrets]\nenv = ["DEPLOY_TOKEN"]\n')
        with pytest.raises(holdfast.Unusable, match="DEPLOY_TOKEN"):
            await home.send("ops/a", "go", source=ALICE, workspace=os.fspath(tmp_path / "ws"))
    async with holdfast.open(path) as home:
        turn = await home.send("ops/a", "go", source=ALICE, workspace=os.fspath(tmp_path / "ws"))
        assert turn.outcome == "waiting"
