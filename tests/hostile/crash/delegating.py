"""
A process that hands a task on, asks, answers or goes on, through the library on real files; and
dies by SIGKILL at one exact place.

    python delegating.py send|answer|finish HOME EFFECTS POINT

POINT is `none`, `created` (the delegate's session exists, nobody was told), or `TYPE@CHANNEL`: right
after such a record is durable in a session of that channel. Nothing is flushed, released or closed
in order: the next process finds what the disk has.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast.adapters.files import FileStore
from holdfast.runtime.ledger.attempt import Attempt

S = "ops/api"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_after_record(kind: str, channel: str) -> None:
    write = Attempt.write

    async def writes(self: Attempt, *given: Any, **more: Any) -> Any:
        before = self.position.seq
        done = await write(self, *given, **more)
        if self._journal.session.startswith(f"{channel}/") and any(
            each.type == kind and each.seq > before for each in done.suffix
        ):
            die()
        return done

    Attempt.write = writes  # type: ignore[method-assign]


def die_after_creation() -> None:
    create = FileStore.create

    async def creates(self: FileStore, session: Any, *given: Any, **more: Any) -> Any:
        journal = await create(self, session, *given, **more)
        if session.startswith("delegate/"):
            die()
        return journal

    FileStore.create = creates  # type: ignore[method-assign]


def agents(home: Path, effects: Path) -> holdfast.Agent:
    @holdfast.tool
    def act(what: str) -> str:
        """Leave a line that outlives everything."""
        fd = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{what}\n".encode())
        os.fsync(fd)
        os.close(fd)
        return f"did {what}"

    helper = holdfast.Agent("helper", model=f"script:{home.parent / 'helper.jsonl'}", tools=[act])
    return holdfast.Agent(
        "ops", model=f"script:{home.parent / 'ops.jsonl'}", tools=[act], delegates=[helper]
    )


async def work(verb: str, home: Path, effects: Path) -> dict[str, Any]:
    alice = holdfast.MessageSource.local("alice")
    async with holdfast.open(home, agents=[agents(home, effects)]) as opened:
        if verb == "send":
            turn = await opened.send(S, "deploy it", source=alice)
            return {"outcome": turn.outcome, "asks": [each.path for each in turn.approvals]}
        if verb == "finish":
            await opened.resume()
        for approval in await opened.approvals(for_="alice"):
            await opened.answer(approval, "approve_once", by=alice)
        if verb == "finish":
            await opened.resume()
        turn = await opened.service.turn(S, "t1")  # type: ignore[arg-type]
        lines = await opened.service.sessions()
        owing = await opened.service.owing()
    return {
        "reply": turn.reply,
        "parents": [line.parent for line in lines],
        "phases": [line.phase for line in lines],
        "owing": list(owing),
    }


if __name__ == "__main__":
    verb, home, effects, point = sys.argv[1:]
    kind, _, channel = point.partition("@")
    if kind == "created":
        die_after_creation()
    elif kind != "none":
        die_after_record(kind, channel)
    os.write(1, json.dumps(asyncio.run(work(verb, Path(home), Path(effects)))).encode())
