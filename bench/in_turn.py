"""
Many sessions in turn: every session gets one turn with a tool call, then every session the next.

This is how a server is used. A session that is not open any more must be opened again for its next
turn, and that must not cost more as the session grows. Round 61 is compared with round 3.
"""

import asyncio
import resource
import time

from bench.ground import Ground, Row, Times, compared, told
from bench.turns import SOURCE, instant_service
from holdfast.limits import MIB
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming

PART = "sessions in turn"
EARLY, LATE = 3, 61
CROWDS = ((200, LATE), (2_000, 9))
_KIB = 1024


def measure(ground: Ground) -> list[Row]:
    rows: list[Row] = []
    for sessions, rounds in CROWDS:
        rows += asyncio.run(_crowd(ground, ground.count(sessions, 80), rounds))
    return rows


async def _crowd(ground: Ground, sessions: int, rounds: int) -> list[Row]:
    home = ground.fresh(f"in_turn{sessions}") / "home"
    by_round: dict[int, Times] = {}
    async with instant_service(home) as service:
        for number in range(1, rounds + 1):
            by_round[number] = await _round(service, sessions)
            if number == EARLY:
                memory = _resident_bytes()
    early, late = by_round[EARLY], by_round[rounds]
    grown = (_resident_bytes() - memory) / MIB
    return [
        compared(
            PART,
            f"{sessions:,} sessions, turn {rounds} of each, p50",
            late.p50,
            early.p50,
            at_most=1.2,
            note=f"limit: turn {EARLY} of each; p99 {told(late.p99)}; the process grew by "
            f"{grown:.0f} MiB meanwhile",
        )
    ]


async def _round(service: Service, sessions: int) -> Times:
    took: list[float] = []
    for number in range(sessions):
        started = time.perf_counter()
        turn = await service.send(f"bench/s{number}", Incoming(text="look", source=SOURCE))
        took.append(time.perf_counter() - started)
        assert turn.outcome == "completed", turn
    return Times(took)


def _resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
