"""
Two nodes against one: messages for each CPU-second of the nodes, with as many senders on each.

`python -m bench.database_nodes FOLDER SECONDS` is one node: it sends until the time is up and prints
its messages and its CPU.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.ground import Ground, Row, compared, python
from bench.turns import SOURCE, instant_service
from holdfast.runtime.verbs.accept import Incoming

PART = "PostgreSQL"
SENDERS = 8
SECONDS = 10.0


def nodes(ground: Ground, homes: Sequence[Any]) -> list[Row]:
    """`homes` are one node, and a pair of nodes on another home."""
    seconds = max(2.0, SECONDS * ground.scale)
    one, two = _run(homes[:1], seconds), _run(homes[1:], seconds)
    return [
        compared(
            PART,
            "messages for each CPU-second of the nodes, two nodes against one",
            two,
            one,
            at_least=0.85,
            ours_told=f"{two:,.0f}",
            limit_told=f"{one:,.0f}",
            note=f"{SENDERS} senders on each node for {seconds:g} s, a session each; the server's CPU not counted",
        )
    ]


def _run(homes: Sequence[Any], seconds: float) -> float:
    working = [
        subprocess.Popen(
            [python(), "-m", "bench.database_nodes", str(home.folder), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for home in homes
    ]
    for process in working:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    for process in working:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [json.loads(process.communicate()[0]) for process in working]
    return sum(messages for messages, _ in found) / sum(cpu for _, cpu in found)


async def _work(folder: Path, seconds: float) -> None:
    async with instant_service(folder) as service:
        names = [f"bench/{folder.name}-{number}" for number in range(SENDERS)]
        for name in names:
            await service.send(name, Incoming(text="say something", source=SOURCE))
        print("ready", flush=True)
        await asyncio.to_thread(input)
        ends, sent, used = time.monotonic() + seconds, 0, time.process_time()

        async def send(name: str) -> None:
            nonlocal sent
            while time.monotonic() < ends:
                await service.send(name, Incoming(text="say something", source=SOURCE))
                sent += 1

        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(send(name))
        print(json.dumps([sent, time.process_time() - used]))


if __name__ == "__main__":
    asyncio.run(_work(Path(sys.argv[1]), float(sys.argv[2])))
