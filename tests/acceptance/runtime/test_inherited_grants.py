"""
A5 and P9 where a conversation goes on elsewhere: in a fork, an import, a new instance of the same
name, a restored home, a delegate, a loop of one's own, a reminder.

A grant for a session stays with that instance. A grant for everywhere counts there only as long as
current policy would take it anywhere. A restored home has none.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.assembly.restore import restore_home
from holdfast.home import Agent, Home
from holdfast.ids import SessionId
from holdfast.runtime.lifecycle.export import export_lines
from holdfast.runtime.lifecycle.fork import fork
from holdfast.runtime.lifecycle.import_file import import_file
from holdfast.session.authority.policy import Policy
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice
from tests.acceptance.runtime.test_grants import several
from tests.acceptance.runtime.test_import import HEADER, jsonl, message
from tests.acceptance.runtime.test_tightened_grants import DAY, TIGHTER, given, ruled

A = "ops/a"
Way = Callable[[Stage, Home], Awaitable[str]]


def agent(stage: Stage, way: str) -> Agent:
    """An agent that acts in every turn; for the delegate, one that hands its second act on."""
    tools = stage.effects.tools()
    helper = Agent("helper", model=ScriptModel(several(2)), tools=tools)
    hands: list[dict[str, Any]] = [
        {"call": [{"tool": "delegate_helper", "args": {"task": "deploy it"}}]},
        {"say": "handed on"},
    ]
    lines = [*several(1), *hands] if way == "delegate" else several(8)
    return Agent("ops", model=ScriptModel(lines), tools=tools, delegates=[helper])


async def sent(home: Home, session: str, text: str = "again") -> str:
    return str((await home.send(session, text, source=alice)).outcome)


async def in_a_fork(stage: Stage, home: Home) -> str:
    del stage
    end = (await home.service.show(A)).seq
    await fork(home.service.runtime, A, "ops/fork", at_seq=end, by="alice")
    return await sent(home, "ops/fork")


async def exported(stage: Stage, home: Home) -> bytes:
    """Our own export; in memory, which writes no lines, a conversation of another program."""
    if stage.kind == "memory":
        return jsonl(HEADER, message("a", None, "user", "go"), message("b", "a", "assistant", "ok"))
    return b"".join([line async for line in export_lines(home.service.runtime, A)])


async def in_an_import(stage: Stage, home: Home) -> str:
    data = await exported(stage, home)
    await import_file(home.service.runtime, "ops/import", data, source="a.jsonl", by="alice")
    return await sent(home, "ops/import")


async def in_an_import_of_the_same_name(stage: Stage, home: Home) -> str:
    data = await exported(stage, home)
    await home.service.runtime.world.store.delete(SessionId(A), by="alice")
    await import_file(home.service.runtime, A, data, source="a.jsonl", by="alice")
    return await sent(home, A)


async def in_a_delegate(stage: Stage, home: Home) -> str:
    del stage
    return await sent(home, A)


async def in_a_reminder(stage: Stage, home: Home) -> str:
    return await _reminded(stage, home, A)


async def in_a_reminder_elsewhere(stage: Stage, home: Home) -> str:
    return await _reminded(stage, home, "ops/reminded")


async def _reminded(stage: Stage, home: Home, session: str) -> str:
    await home.remind(session, "again", source=alice, every="1m", may_prompt=True, agent="ops")
    stage.clock.advance(60)
    [turn] = await home.resume(session)
    return str(turn.outcome)


async def in_a_loop(stage: Stage, home: Home) -> str:
    return await _looped(stage, home, A)


async def in_a_loop_elsewhere(stage: Stage, home: Home) -> str:
    return await _looped(stage, home, "ops/loop")


async def _looped(stage: Stage, home: Home, session: str) -> str:
    async with home.turn(session, "by my own loop", source=alice) as turn:
        gate = await turn.gate("act", {"what": "deploy"})
        if gate.may_start:
            gate = await turn.start(gate)
            stage.effects.done.append("deploy")
            await turn.record(gate, "ok", "did it")
        waits = gate.waiting
        if not waits:
            await turn.finish("done")
            return "completed"
    return "waiting"


# Whether the call runs under a grant for the session, and under one for everywhere.
WAYS: dict[str, tuple[Way, bool, bool]] = {
    "fork": (in_a_fork, False, True),
    "import": (in_an_import, False, True),
    "import of the same name": (in_an_import_of_the_same_name, False, True),
    "delegate": (in_a_delegate, False, True),
    "reminder": (in_a_reminder, True, True),
    "reminder elsewhere": (in_a_reminder_elsewhere, False, True),
    "loop": (in_a_loop, True, True),
    "loop elsewhere": (in_a_loop_elsewhere, False, True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("option", ["approve_session", "approve_everywhere"])
@in_loop
async def test_a_grant_reaches_another_place_only_by_its_scope(
    stage: Stage, way: str, option: str
) -> None:
    """P9, and the control for the tests below: without tightening, grants do count there."""
    go, under_session, everywhere = WAYS[way]
    runs = everywhere if option == "approve_everywhere" else under_session
    async with stage.open(agent(stage, way)) as home:
        await given(stage, home, option)
        assert await go(stage, home) == ("completed" if runs else "waiting")
        assert stage.effects.done == ["deploy"] * (1 + runs)


OVER: dict[str, Policy] = {**TIGHTER, "less time": ruled(None, remember_for_seconds=60)}


@pytest.mark.parametrize("tighter", OVER)
@pytest.mark.parametrize("way", WAYS)
@in_loop
async def test_no_old_grant_reaches_another_place_once_policy_is_tighter(
    stage: Stage, way: str, tighter: str
) -> None:
    """A5: in the process that gave it, and in the next one."""
    go, _, _ = WAYS[way]
    async with stage.open(agent(stage, way)) as home:
        await given(stage, home, "approve_everywhere")
    stage.clock.advance(120)
    stage.policy = OVER[tighter]
    async with stage.open(agent(stage, way)) as home:
        await go(stage, home)
        assert stage.effects.done == ["deploy"], "nothing ran without consent"


@pytest.mark.parametrize("end", ["revoked", "over"])
@pytest.mark.parametrize("way", WAYS)
@in_loop
async def test_a_grant_that_ended_reaches_no_other_place(stage: Stage, way: str, end: str) -> None:
    go, _, _ = WAYS[way]
    async with stage.open(agent(stage, way)) as home:
        await given(stage, home, "approve_everywhere")
        if end == "revoked":
            (grant,) = await home.grants()
            await home.revoke(grant.id, by=alice)
        else:
            stage.clock.advance(31 * DAY)
        assert await go(stage, home) == "waiting"
        assert stage.effects.done == ["deploy"]


# A restore notes the real time, which the made-up clock of a reminder does not reach.
@pytest.mark.parametrize("way", [way for way in WAYS if "reminder" not in way])
@in_loop
async def test_a_restored_home_has_no_grant_in_any_place(tmp_path: Path, way: str) -> None:
    go, _, _ = WAYS[way]
    stage = Stage("files", tmp_path / "home")
    async with stage.open(agent(stage, way)) as home:
        await given(stage, home, "approve_everywhere")
        await home.service.runtime.world.store.backup(tmp_path / "copy")
    await restore_home(tmp_path / "copy", tmp_path / "again", by="alice")
    stage.folder = tmp_path / "again"
    async with stage.open(agent(stage, way)) as home:
        assert await home.grants() == ()
        assert await go(stage, home) == "waiting"
    assert stage.effects.done == ["deploy"]
