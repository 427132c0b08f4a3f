"""
Mistakes that a type checker must see: never run, and read by mypy, which calls an ignore that
ignores nothing an error.

Each line is a program that would have failed, or worse, would not have.
"""

import holdfast
import holdfast.testing

alice = holdfast.MessageSource.local("alice")


@holdfast.tool
def restart(service: str) -> str:
    """Restart one service."""
    return service


restart(7)  # type: ignore[arg-type]
holdfast.tool(mode="always")  # type: ignore[call-overload]
holdfast.open("./state", agents=[restart])  # type: ignore[list-item]
holdfast.Agent("ops", delegates=[restart])  # type: ignore[list-item]
holdfast.MessageSource.local(7)  # type: ignore[arg-type]
holdfast.testing.crash_after("ToolStarted")  # type: ignore[arg-type]


async def mistaken(home: holdfast.Home) -> None:
    home.send("ops/api", "restart it", source=alice)  # type: ignore[unused-coroutine]
    await home.send("ops/api", "restart it")  # type: ignore[call-arg]
    turn = await home.send("ops/api", "restart it", source="alice")  # type: ignore[arg-type]
    await home.answer("a-1", "approve_once", by=alice)  # type: ignore[arg-type]
    answer = await home.answer(turn.approvals[0], "approve_once", by="alice")  # type: ignore[arg-type]
    assert turn.outcome != "complete"  # type: ignore[comparison-overlap]
    assert answer.result != "refused"  # type: ignore[comparison-overlap]
    turn.outcome = "completed"  # type: ignore[misc]
    turn.reply.upper()  # type: ignore[union-attr]
    async for each in home.follow("ops/api"):
        each.seq  # type: ignore[union-attr]  # noqa: B018
    async with home.turn("ops/api", "from another loop", source=alice) as own:
        gate = await own.gate("restart", {"service": "api"})
        await own.record(gate, "success", "restarted")  # type: ignore[arg-type]
        await own.record(gate, "ok", {"restarted": True})  # type: ignore[arg-type]
