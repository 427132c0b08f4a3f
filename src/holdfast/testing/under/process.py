"""
One process of the contract: `python -m holdfast.testing.under.process MODULE:LINE FOLDER ORDER`.
Prints how it ended as one line of JSON.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.testing.under.tools import Effects, RunEnd

Line = Callable[..., Awaitable[RunEnd]]
SESSION = "ops/api"


class Order(msgspec.Struct, kw_only=True):
    """The task of one process."""

    do: str  # line, fallible, answer, edit, cancel, two_loops, calls
    text: str = ""
    dedup: str = ""
    die: bool = False  # kill -9 after the line has returned
    by: str = "alice"
    option: str = "approve_once"
    only: str = ""  # of several prompts, the one whose display contains this


def main() -> None:
    name, folder, order = sys.argv[1:4]
    found = asyncio.run(_done(name, Path(folder), msgspec.json.decode(order, type=Order)))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    sys.stdout.flush()


def _line(name: str) -> Line:
    """The line of the adapter. An approver's process does without the framework."""
    module, _, attribute = name.partition(":")
    line: Line = getattr(import_module(module), attribute)
    return line


async def _done(name: str, folder: Path, order: Order) -> dict[str, Any]:
    effects = Effects(folder)
    who = holdfast.MessageSource.local(order.by)
    async with holdfast.open(folder / "state", agents=[holdfast.Agent("ops")]) as home:

        async def run() -> dict[str, Any]:
            turn = await _line(name)(
                home, SESSION, order.text, source=who, dedup=order.dedup, effects=effects
            )
            return {"turn": msgspec.to_builtins(turn)}

        match order.do:
            case "line":
                found = await run()
                if order.die:
                    os.kill(os.getpid(), signal.SIGKILL)
                return found
            case "fallible":
                try:
                    return await run()
                except Exception as exc:  # noqa: BLE001  # a framework may raise any of its own
                    return {"raised": repr(exc)}
            case "answer":
                return await _answered(home, order, who)
            case "edit":
                found = await run()
                (asked,) = await home.approvals()
                arguments = {**asked.arguments, "region": "us-1"}
                answer = await home.answer(asked, "edit", by=who, arguments=arguments, wait=False)
                (again,) = await home.approvals()
                return {**found, "answer": answer.result, "shown": again.display}
            case "cancel":
                running = asyncio.ensure_future(run())
                await effects.begun.wait()
                running.cancel()
                await asyncio.wait([running])
                return {"cancelled": running.cancelled() or running.exception() is not None}
            case "two_loops":
                return await asyncio.to_thread(_elsewhere, run)
            case _:
                calls = await home.calls(SESSION)
                return {"calls": [[each.id, each.outcome] for each in calls]}


async def _answered(
    home: holdfast.Home, order: Order, who: holdfast.MessageSource
) -> dict[str, Any]:
    answers, shown = [], []
    for each in await home.approvals():
        if order.only in each.display:
            answer = await home.answer(each, order.option, by=who, wait=False)
            answers.append(answer.reason or answer.result)
            shown.append(each.display)
    return {"answers": answers, "shown": shown}


def _elsewhere(run: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    async def tried() -> dict[str, Any]:
        try:
            await run()
        except holdfast.Unusable as exc:
            return {"refused": exc.code}
        return {"refused": None}

    return asyncio.run(tried())


if __name__ == "__main__":
    main()
