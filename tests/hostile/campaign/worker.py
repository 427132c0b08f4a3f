"""
A process that works on a home through the library, told what to do by its arguments, telling on
stdout what it was told.

    python worker.py turns HOME EFFECTS COUNT        approval turns one after the other: "sent N", "answered N", or "taken N" if it got no further
    python worker.py crowd HOME NUMBER TASKS EACH SESSION...     waits for a line, then TASKS senders at once, EACH messages per session: "told SENDER N OUTCOME"
    python worker.py pairs HOME NAME SESSION         a message for every line on stdin: "told NAME N OUTCOME"
"""

import asyncio
import os
import sys
from pathlib import Path

import holdfast


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def agent(effects: Path, mode: str) -> holdfast.Agent:
    @holdfast.tool(mode=mode)
    def act(what: str) -> str:
        """Leave a line that outlives everything."""
        fd = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{what}\n".encode())
        os.fsync(fd)
        os.close(fd)
        return f"did {what}"

    return holdfast.Agent("ops", model="demo", tools=[act])


async def turns(home: Path, effects: Path, first: int, count: int) -> None:
    alice = holdfast.MessageSource.local("alice")
    async with holdfast.open(home, agents=[agent(effects, "ask")]) as opened:
        for number in range(first, first + count):
            turn = await opened.send("ops/api", f"act what={number}", source=alice)
            say(f"sent {number}")
            for approval in turn.approvals:
                taken = await opened.answer(approval, "approve_once", by=alice)
                # An answer that is durable is told as taken, whatever hindered what came after it.
                say(
                    f"answered {number}" if taken.turn.outcome == "completed" else f"taken {number}"
                )
    say("done")


async def crowd(home: Path, number: int, tasks: int, each: int, sessions: list[str]) -> None:
    async with holdfast.open(home, agents=[agent(home.parent / "effects", "auto")]) as opened:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)

        async def sender(name: str) -> None:
            for index in range(each):
                for session in sessions:
                    what = f"{name}-{index}"
                    turn = await opened.send(
                        session,
                        f"act what={what}",
                        source=holdfast.MessageSource.local(name),
                        dedup=what,
                    )
                    say(f"told {name} {index} {turn.outcome} {session}")

        async with asyncio.TaskGroup() as group:
            for task in range(tasks):
                group.create_task(sender(f"p{number}t{task}"))


async def pairs(home: Path, name: str, session: str) -> None:
    async with holdfast.open(home, agents=[agent(home.parent / "effects", "auto")]) as opened:
        say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            turn = await opened.send(
                session, f"act what={name}{line.strip()}", source=holdfast.MessageSource.local(name)
            )
            say(f"told {name} {line.strip()} {turn.outcome}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["turns", home, effects, count]:
            where = Path(effects)
            first = 1 + (int(where.read_text().splitlines()[-1]) if where.exists() else 0)
            asyncio.run(turns(Path(home), where, first, int(count)))
        case ["crowd", home, number, tasks, each, *sessions]:
            asyncio.run(crowd(Path(home), int(number), int(tasks), int(each), sessions))
        case ["pairs", home, name, session]:
            asyncio.run(pairs(Path(home), name, session))
        case other:
            sys.exit(f"no such work: {other}")
