"""The public API as users type it: read by mypy and by a second type checker, never run."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import assert_type

import holdfast
import holdfast.blocking
import holdfast.testing


@holdfast.tool
async def restart_service(service: str, region: str = "eu-1") -> str:
    """Restart one production service."""
    return f"{service} restarted in {region}"


@holdfast.tool(contract="pure", mode="auto", audience="team")
def service_status(service: str, call: holdfast.ToolCall) -> dict[str, str]:
    """Look at one service."""
    return {service: call.idempotency_key}


researcher = holdfast.Agent("researcher", instructions="You find things out.", tools=["read_file"])
ops = holdfast.Agent(
    "ops",
    delegates=[researcher, "somebody in settings"],
    model="demo",
    instructions="Look before you act.",
    tools=[restart_service, service_status, "read_file"],
)
alice = holdfast.MessageSource.local("alice", quotes=(holdfast.Quote("bob", "it is down again"),))


async def everything(home: holdfast.Home) -> None:
    turn = await home.send("ops/api", "restart it", source=alice, dedup="m-1", workspace="/srv/api")
    assert_type(turn, holdfast.Turn)
    assert_type(turn.reply, str | None)
    for approval in turn.approvals:
        assert_type(approval, holdfast.Approval)
        answer = await home.answer(
            approval,
            "edit",
            by=alice,
            arguments={"service": "api"},
            reason="only this one",
            answer_id="a-1",
        )
        assert_type(answer, holdfast.Answer)
        assert_type(answer.turn, holdfast.Turn)
    assert_type(await home.approvals(for_="alice"), tuple[holdfast.Approval, ...])
    assert_type(await home.approval("a-1"), holdfast.Approval)
    assert_type(await home.cancel("ops/api", by=alice), tuple[holdfast.Turn, ...])
    assert_type(await home.resume(), tuple[holdfast.Turn, ...])
    assert_type(await home.grants(), tuple[holdfast.Grant, ...])
    made = await home.remind(
        "ops/api",
        "look",
        source=alice,
        cron="0 9 * * MON",
        time_zone="Europe/Berlin",
        may_prompt=True,
    )
    assert_type(made, holdfast.Reminder)
    assert_type(await home.reminders(), tuple[holdfast.Reminder, ...])
    assert_type(await home.cancel_reminder(made.id, by=alice), holdfast.Reminder)
    assert_type(await home.session("ops/api"), holdfast.Session)
    followed: AsyncIterator[holdfast.Followed] = home.follow("ops/api", after=3)
    async with aclosing(home.follow("ops/api")) as closing:
        async for each in closing:
            assert_type(each, holdfast.Record | holdfast.Delta | holdfast.Gap)
    assert_type(await anext(followed), holdfast.Record | holdfast.Delta | holdfast.Gap)
    async with home.turn("ops/api", "from another loop", source=alice) as foreign:
        gate = await foreign.gate("restart_service", {"service": "api"})
        assert_type(gate, holdfast.Gate)
        if (started := await foreign.start(gate)).may_run:
            await foreign.record(started, "ok", "done")
        assert_type(
            await foreign.said("", [holdfast.LoopCall("c1", "restart_service", {})]),
            tuple[holdfast.Gate, ...],
        )
        assert_type(await foreign.call(gate, str), holdfast.Gate)
        assert_type(await foreign.finish("done"), holdfast.Turn)
    async with home.take_up("ops/api", "t1") as again:
        assert_type(again, holdfast.ExternalTurn)
        assert_type(await again.gates(), tuple[holdfast.Gate, ...])
    async for waiting in home.answered():
        assert_type(waiting, holdfast.OpenLoop)
    assert_type(await home.calls("ops/api"), tuple[holdfast.CallReport, ...])
    assert_type(await home.items("ops/api", adapter="a/1").list(), tuple[holdfast.Item, ...])


async def opened() -> None:
    async with holdfast.open("./state", agents=[ops]) as home:
        assert_type(home, holdfast.Home)
    async with holdfast.testing.open_in_memory(
        agents=[ops], disk=holdfast.testing.Disk(), clock=holdfast.testing.ManualClock()
    ) as home:
        await everything(home)


def blocking() -> None:
    with holdfast.blocking.open("./state", agents=[ops]) as home:
        turn = home.send("ops/api", "restart it", source=alice)
        assert_type(turn, holdfast.Turn)
    assert_type(service_status.definition.name, str)
