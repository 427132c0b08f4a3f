"""
A server that is kept busy: 8 clients send 20,000 messages to 200 sessions in turn, each after the
turn before it in that session has ended.

The second tenth is compared with the last: messages a second, the time of a message with its turn,
the server's CPU for it, and the memory of the server. Nothing may grow with the length of the
sessions.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx

from bench.counted import cpu_seconds
from bench.gateway import Served, server_process
from bench.ground import Ground, Row, Times, compared, told

PART = "busy server"
MESSAGES, SESSIONS, CLIENTS = 20_000, 200, 8
_POLL_SECONDS = 0.005
_WAIT_SECONDS = 60.0  # for one turn of a model that answers at once


def measure(ground: Ground) -> list[Row]:
    messages, sessions = ground.count(MESSAGES, 800), ground.count(SESSIONS, 80)
    with server_process(ground.fresh("busy")) as served:
        ended, memory, cpu = asyncio.run(_keep_busy(served, messages, sessions))
    tenth = len(ended) // 10
    first, last = ended[tenth : 2 * tenth], ended[-tenth:]
    early, late = (Times([took for _, took in part]) for part in (first, last))
    rates = [len(part) / (part[-1][0] - part[0][0]) for part in (first, last)]
    what = f"{messages:,} messages, {CLIENTS} clients, {sessions} sessions"
    return [
        compared(
            PART,
            f"{what}: messages a second at the end",
            rates[1],
            rates[0],
            at_least=0.85,
            ours_told=f"{rates[1]:.0f}/s",
            limit_told=f"{rates[0]:.0f}/s",
            note="limit: the second tenth of the same run",
        ),
        compared(
            PART,
            "a message and its turn, p50 at the end",
            late.p50,
            early.p50,
            at_most=1.15,
            note=f"p99 {told(late.p99)}; the server has {memory[-1]} MiB, after a tenth it had "
            f"{memory[0]} MiB",
        ),
        compared(
            PART,
            "the server's CPU for a message and its turn, at the end",
            cpu[-1] / tenth,
            cpu[1] / tenth,
            note="beside the clock, because a busy machine changes it less",
        ),
    ]


async def _keep_busy(
    served: Served, messages: int, sessions: int
) -> tuple[list[tuple[float, float]], list[int], list[float]]:
    """
    Return when each message's turn had ended and how long it took; the server's MiB; and its CPU
    seconds in each tenth.
    """
    ended: list[tuple[float, float]] = []
    memory: list[int] = []
    used = [cpu_seconds(served.pid)]
    numbers = iter(range(messages))

    async def client(mine: list[int], http: httpx.AsyncClient) -> None:
        for session in _in_turn(mine):
            number = next(numbers, None)
            if number is None:
                return
            started = time.perf_counter()
            name = f"/v1/sessions/bench/s{session}"
            answer = await http.post(f"{name}/messages", json={"text": f"message {number}"})
            assert answer.status_code == 202, answer.text
            await until_idle(http, name)
            now = time.perf_counter()
            ended.append((now, now - started))
            if len(ended) == messages // 10:
                memory.append(_resident_mib(served.pid))
            if len(ended) % (messages // 10) == 0:
                used.append(cpu_seconds(served.pid))

    headers = {"Authorization": f"Bearer {served.token}"}
    async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=120) as http:
        async with asyncio.TaskGroup() as group:
            for start in range(CLIENTS):
                group.create_task(client(list(range(start, sessions, CLIENTS)), http))
        memory.append(_resident_mib(served.pid))
    return ended, memory, [late - early for early, late in pairwise(used)]


def _in_turn(sessions: list[int]) -> Iterator[int]:
    while True:
        yield from sessions


async def until_idle(http: httpx.AsyncClient, name: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        if (await http.get(name)).json()["phase"] == "idle":
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise TimeoutError(name)


def _resident_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024
