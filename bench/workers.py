"""
One worker and two, behind one port: messages by 16 clients to 200 sessions, each with its turn.

The figure that counts is messages per CPU-second of the workers: with a core for each of them, it
says how messages a second grow. The clients need CPU too, so on two cores the wall time shows less.
"""

import asyncio
import os
import time
from pathlib import Path

import httpx

from bench.busy_server import until_idle
from bench.gateway import Served, server_process
from bench.ground import Ground, Row, compared

PART = "workers"
MESSAGES, SESSIONS, CLIENTS = 4_000, 200, 16
_TICKS = os.sysconf("SC_CLK_TCK")


def measure(ground: Ground) -> list[Row]:
    messages = ground.count(MESSAGES, 400)
    per_cpu, per_second = {}, {}
    for workers in (1, 2):
        options = ("--workers", str(workers))
        with server_process(ground.fresh(f"workers{workers}"), options=options) as served:
            began = _cpu_seconds(served.pid)
            took = asyncio.run(_send(served, messages))
            per_cpu[workers] = messages / (_cpu_seconds(served.pid) - began)
            per_second[workers] = messages / took
    return [
        compared(
            PART,
            f"{messages:,} messages with two workers: messages per CPU-second",
            per_cpu[2],
            per_cpu[1],
            at_least=0.85,
            ours_told=f"{per_cpu[2]:.0f}",
            limit_told=f"{per_cpu[1]:.0f}",
            note=f"limit: one worker. {per_second[2]:.0f} messages a second with two, "
            f"{per_second[1]:.0f} with one, beside the clients on {os.cpu_count()} cores",
        )
    ]


async def _send(served: Served, messages: int) -> float:
    numbers = iter(range(messages))
    began = time.perf_counter()

    async def client(mine: list[int]) -> None:
        headers = {"Authorization": f"Bearer {served.token}"}
        async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=120) as http:
            while True:
                for session in mine:
                    number = next(numbers, None)
                    if number is None:
                        return
                    name = f"/v1/sessions/bench/s{session}"
                    answer = await http.post(f"{name}/messages", json={"text": f"m {number}"})
                    assert answer.status_code == 202, answer.text
                    await until_idle(http, name)

    async with asyncio.TaskGroup() as group:
        for start in range(CLIENTS):
            group.create_task(client(list(range(start, SESSIONS, CLIENTS))))
    return time.perf_counter() - began


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of the server and of its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(_own_cpu_seconds(int(each)) for each in (str(pid), *children))


def _own_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
