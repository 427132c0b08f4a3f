"""
Claude's hooks against recorded input (Claude Code 2.1.326, SDK 0.2.183, `recorded.jsonl`), and
against Claude's own program with a Messages API on loopback.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast

pytest.importorskip("claude_agent_sdk", reason="make test-integrations has it")

alice = holdfast.MessageSource.local("alice")
BASH_BEFORE, FALSE_BEFORE, BASH_AFTER, FALSE_FAILED, LONE_BEFORE, LONE_AGAIN, LONE_AFTER = (
    json.loads(line) for line in (Path(__file__).parent / "recorded.jsonl").read_text().splitlines()
)


def decision(answer: dict[str, Any]) -> str:
    found: str = answer["hookSpecificOutput"]["permissionDecision"]
    return found


def story(
    folder: Path,
    told: Callable[[holdfast.Home, holdfast.ExternalTurn, Any], Awaitable[None]],
    **tools: str,
) -> None:
    """Run with the hooks of one turn; `tools` are modes."""
    from holdfast.integrations.claude import ClaudeHooks

    async def run() -> None:
        async with (
            holdfast.open(folder) as home,
            home.turn("ops/api", "go", source=alice, dedup="m1") as turn,
        ):
            known = [
                holdfast.SchemaTool(name, {"type": "object"}, mode=mode)  # type: ignore[arg-type]  # words
                for name, mode in tools.items()
            ]
            await told(home, turn, ClaudeHooks(home, turn, tools=known))

    asyncio.run(run())


async def outcomes(home: holdfast.Home) -> dict[str | None, str | None]:
    return {each.id: each.outcome for each in await home.calls("ops/api")}


def test_a_lone_call_is_deferred_and_runs_once_with_the_arguments_that_were_approved(
    tmp_path: Path,
) -> None:
    async def told(home: holdfast.Home, _: Any, hooks: Any) -> None:
        assert decision(await hooks.before(LONE_BEFORE, "toolu_0", None)) == "defer"
        assert hooks.deferred == "toolu_0"
        assert decision(await hooks.before(LONE_AGAIN, "toolu_0", None)) == "defer"
        (asked,) = await home.approvals()
        edit = {"service": "web"}
        await home.answer(asked, "edit", by=alice, arguments=edit, wait=False)
        assert decision(await hooks.before(LONE_AGAIN, "toolu_0", None)) == "defer"
        (again,) = await home.approvals()
        await home.answer(again, "approve_once", by=alice, wait=False)
        allowed = await hooks.before(LONE_AGAIN, "toolu_0", None)
        assert (decision(allowed), allowed["hookSpecificOutput"]["updatedInput"]) == ("allow", edit)
        assert decision(await hooks.before(LONE_AGAIN, "toolu_0", None)) == "deny"
        assert await hooks.after(LONE_AFTER, "toolu_0", None) == {}
        assert await outcomes(home) == {"toolu_0": "ok"}
        assert decision(await hooks.before(LONE_AGAIN, "toolu_0", None)) == "deny"

    story(tmp_path, told)


def test_a_call_beside_one_that_waits_is_refused_and_so_is_one_that_must_wait_beside_others(
    tmp_path: Path,
) -> None:
    async def told(home: holdfast.Home, _: Any, hooks: Any) -> None:
        assert decision(await hooks.before(BASH_BEFORE, None, None)) == "allow"
        refused = await hooks.before(LONE_BEFORE, None, None)
        assert decision(refused) == "deny"
        assert "by itself" in refused["hookSpecificOutput"]["permissionDecisionReason"]
        assert await home.approvals() == ()
        await hooks.after(BASH_AFTER, None, None)
        alone = {**LONE_BEFORE, "tool_use_id": "toolu_9"}
        assert decision(await hooks.before(alone, None, None)) == "defer"
        assert decision(await hooks.before(FALSE_BEFORE, None, None)) == "deny"
        assert await outcomes(home) == {
            "toolu_bash": "ok",
            "toolu_0": "cancelled",
            "toolu_9": None,
        }

    story(tmp_path, told, Bash="auto")


def test_a_sub_agent_cannot_wait_for_a_person(tmp_path: Path) -> None:
    async def told(home: holdfast.Home, _: Any, hooks: Any) -> None:
        inside = {**LONE_BEFORE, "agent_id": "a-1", "agent_type": "general-purpose"}
        assert decision(await hooks.before(inside, None, None)) == "deny"
        assert await home.approvals() == ()

    story(tmp_path, told)


def test_a_failure_is_an_error_an_interruption_and_silence_are_in_doubt(tmp_path: Path) -> None:
    async def told(home: holdfast.Home, _: Any, hooks: Any) -> None:
        for call_id in ("a", "b", "c"):
            await hooks.before({**FALSE_BEFORE, "tool_use_id": call_id}, None, None)
        await hooks.failed({**FALSE_FAILED, "tool_use_id": "a"}, None, None)
        stopped = {**FALSE_FAILED, "tool_use_id": "b", "is_interrupt": True}
        await hooks.failed(stopped, None, None)
        await hooks.settle()
        assert await outcomes(home) == {"a": "error", "b": "in_doubt", "c": "in_doubt"}

    story(tmp_path, told, Bash="auto")


def test_a_call_that_ran_without_a_gate_stops_claude(tmp_path: Path) -> None:
    async def told(_: Any, __: Any, hooks: Any) -> None:
        answer = await hooks.after(BASH_AFTER, None, None)
        assert (answer["continue_"], hooks.ungated) == (False, "Bash")

    story(tmp_path, told)


def test_a_decision_that_claude_passes_over_denies_and_closes_the_prompt(tmp_path: Path) -> None:
    from claude_agent_sdk import PermissionResultDeny, ToolPermissionContext

    async def told(home: holdfast.Home, _: Any, hooks: Any) -> None:
        await hooks.before(LONE_BEFORE, None, None)
        context = ToolPermissionContext(tool_use_id="toolu_0")
        answer = await hooks.refuse("mcp__ops__restart", {}, context)
        assert isinstance(answer, PermissionResultDeny)
        assert (await home.approvals(), hooks.deferred) == ((), None)

    story(tmp_path, told)


def test_every_hook_blocks_when_it_fails_and_a_failing_journal_fails_it(tmp_path: Path) -> None:
    async def told(_: Any, turn: Any, hooks: Any) -> None:
        matchers = [each for some in hooks.matchers().values() for each in some]
        assert [each.on_failure for each in matchers] == ["block"] * 3
        await turn.leave()
        with pytest.raises(holdfast.HoldfastError):
            await hooks.before(LONE_BEFORE, None, None)

    story(tmp_path, told)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allowed_tools", ["Bash"]),
        ("permission_mode", "bypassPermissions"),
        ("setting_sources", ["project"]),
        ("settings", "{}"),
        ("extra_args", {"dangerously-skip-permissions": None}),
        ("resume", "x"),
    ],
)
def test_options_that_let_calls_pass_beside_the_hook_are_refused_by_name(
    tmp_path: Path, name: str, value: Any
) -> None:
    from claude_agent_sdk import ClaudeAgentOptions

    from holdfast.integrations.claude import run

    async def told() -> None:
        async with holdfast.open(tmp_path) as home:
            options = ClaudeAgentOptions(**{name: value})
            with pytest.raises(holdfast.Unusable, match="permission" if "arg" in name else name):
                await run(home, "ops/api", "go", source=alice, options=options)
            assert await home.sessions() == ()

    asyncio.run(told())


@pytest.mark.parametrize("breaks", ["before", "after"])
def test_claude_runs_nothing_more_when_a_hook_fails(
    tmp_path: Path, breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude's own program: a hook that raises blocks the call, and the model is told."""
    from holdfast.integrations.claude import ClaudeHooks
    from holdfast.testing.under import Effects
    from tests.integrations.claude.scripted import line

    async def fails(*_: Any) -> dict[str, Any]:
        raise OSError("the disk is full")

    async def told() -> None:
        effects = Effects(tmp_path)
        monkeypatch.setattr(ClaudeHooks, breaks, fails)
        async with holdfast.open(tmp_path / "state") as home:
            await line(
                home, "ops/api", "note, then restart", source=alice, dedup="m1", effects=effects
            )
            found = await outcomes(home)
        if breaks == "before":
            assert (effects.lines(), found) == ([], {})
        else:
            assert effects.lines() == ["note begun"]
            assert found["n1"] == "in_doubt"

    asyncio.run(told())


def test_claude_pauses_at_the_first_call_of_a_batch_and_does_not_run_the_other(
    tmp_path: Path,
) -> None:
    from holdfast.testing.under import Effects
    from tests.integrations.claude.scripted import line

    async def told() -> None:
        effects = Effects(tmp_path)

        async def again(home: holdfast.Home) -> Any:
            return await line(
                home, "ops/api", "restart two", source=alice, dedup="m1", effects=effects
            )

        async with holdfast.open(tmp_path / "state") as home:
            assert (await again(home)).waiting
            (asked,) = await home.approvals()
            await home.answer(asked, "approve_once", by=alice, wait=False)
            done = await again(home)
            assert effects.lines() == ["restart api eu-1"]
            assert "Make this call again" in done.text
            assert await outcomes(home) == {"two-a": "ok"}

    asyncio.run(told())
