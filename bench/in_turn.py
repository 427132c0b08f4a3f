"""
Many sessions in turn: every session gets one turn, then every session the next.

This is how a server is used. A session that is not open any more must be opened again for its next
turn, and that must not cost more as the session grows. The last turn of each is compared with the
third turn of as many younger sessions, by the clock and by CPU. Old and young have their turns
alternately, so that whatever else the machine does falls on both. Only these turns are measured:
they call a tool. The rounds before them make the sessions longer by a message and a reply each, with
syncs switched off.
"""

import asyncio
import os
import time
from typing import NamedTuple

from bench.ground import Ground, Row, Times, compared, resident_bytes, told, without_syncs
from bench.turns import SOURCE, instant_service
from holdfast.limits import MIB
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming

PART = "sessions in turn"
EARLY, LATE = 3, 61
LIMIT = 1.2


class Crowd(NamedTuple):
    sessions: int
    rounds: int
    stays_open: bool = True

    @property
    def told(self) -> str:
        anew = "" if self.stays_open else ", each opened anew for every turn"
        return f"{self.sessions:,} sessions{anew}, turn {self.rounds} of each"


CROWDS = (Crowd(200, LATE), Crowd(60, LATE, stays_open=False), Crowd(2_000, 5))


class Round(NamedTuple):
    """The turns of one age: each one's time, and each one's CPU of all threads."""

    took: Times
    cpu: Times


def measure(ground: Ground) -> list[Row]:
    rows: list[Row] = []
    for crowd in CROWDS:
        sessions = ground.count(crowd.sessions, 20)
        rows += asyncio.run(_crowd(ground, crowd._replace(sessions=sessions)))
    return rows


async def _crowd(ground: Ground, crowd: Crowd) -> list[Row]:
    home = ground.fresh(f"in_turn{crowd.sessions}") / "home"
    memory: list[int] = []
    async with instant_service(home) as service:
        if not crowd.stays_open:
            service.runtime.sessions._idle_bytes_max = 0
        with without_syncs():
            for number in range(1, crowd.rounds):
                await _talk(service, "old", crowd.sessions)
                if number in (EARLY, crowd.rounds - 1):
                    memory.append(resident_bytes())
            for _ in range(1, EARLY):
                await _talk(service, "young", crowd.sessions)
        # Else the first sync of a session writes what its rounds without syncs have left.
        os.sync()
        early, late = await _alternately(service, crowd.sessions)
    grown = (memory[1] - memory[0]) / MIB
    note = (
        f"limit: turn {EARLY} of as many; p99 {told(late.took.p99)}; memory grew by {grown:.0f} MiB"
    )
    return [
        compared(
            PART, f"{crowd.told}, p50", late.took.p50, early.took.p50, at_most=LIMIT, note=note
        ),
        compared(PART, f"{crowd.told}, CPU, p50", late.cpu.p50, early.cpu.p50, at_most=LIMIT),
    ]


async def _talk(service: Service, age: str, sessions: int) -> None:
    for number in range(sessions):
        await service.send(f"{age}/s{number}", Incoming(text="say something", source=SOURCE))


async def _alternately(service: Service, sessions: int) -> tuple[Round, Round]:
    """The next turn of every young session, and of every old one."""
    took: dict[str, list[float]] = {"young": [], "old": []}
    cpu: dict[str, list[float]] = {"young": [], "old": []}
    for number in range(sessions):
        for age in ("young", "old") if number % 2 else ("old", "young"):
            started, used = time.perf_counter(), time.process_time()
            turn = await service.send(f"{age}/s{number}", Incoming(text="look", source=SOURCE))
            took[age].append(time.perf_counter() - started)
            cpu[age].append(time.process_time() - used)
            assert turn.outcome == "completed", turn
    young, old = (Round(Times(took[age]), Times(cpu[age])) for age in took)
    return young, old
