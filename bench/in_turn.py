"""
Many sessions in turn: every session gets one turn, then every session the next.

This is how a server is used. A session that is not open any more must be opened again for its next
turn, and that must not cost more as the session grows. The last round is compared with the third,
by the clock and by CPU, which other programs disturb less. Only these two rounds are measured: their
turns call a tool. The rounds between them make the sessions longer by a message and a reply each,
with syncs switched off.
"""

import asyncio
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
    """The turns of one round: each one's time, and each one's CPU of all threads."""

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
    measured: list[Round] = []
    memory: list[int] = []
    async with instant_service(home) as service:
        if not crowd.stays_open:
            service.runtime.sessions._idle_bytes_max = 0
        for number in range(1, crowd.rounds + 1):
            if number in (EARLY, crowd.rounds):
                measured.append(await _round(service, crowd.sessions, "look"))
                memory.append(resident_bytes())
            else:
                with without_syncs():
                    await _round(service, crowd.sessions, "say something")
    early, late = measured
    grown = (memory[1] - memory[0]) / MIB
    note = f"limit: turn {EARLY} of each; p99 {told(late.took.p99)}; memory grew by {grown:.0f} MiB"
    return [
        compared(
            PART, f"{crowd.told}, p50", late.took.p50, early.took.p50, at_most=LIMIT, note=note
        ),
        compared(PART, f"{crowd.told}, CPU, p50", late.cpu.p50, early.cpu.p50, at_most=LIMIT),
    ]


async def _round(service: Service, sessions: int, text: str) -> Round:
    took: list[float] = []
    cpu: list[float] = []
    for number in range(sessions):
        started, used = time.perf_counter(), time.process_time()
        turn = await service.send(f"bench/s{number}", Incoming(text=text, source=SOURCE))
        took.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
        assert turn.outcome == "completed", turn
    return Round(Times(took), Times(cpu))
