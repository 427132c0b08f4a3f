"""One list waits for all its writers together no longer than its bound, in made-up time."""

import asyncio

from proof.simulation.virtual_loop import run_virtually

from holdfast.adapters.inmemory.store import InMemoryStore
from holdfast.errors import Busy, NotSaved
from holdfast.ids import SessionId
from holdfast.runtime.reports.lock_budget import LockWaitBudget

NAMES = [SessionId(f"ops/{number}") for number in range(5)]


class StuckStore(InMemoryStore):
    """Somebody keeps every lock for good."""

    async def held_by(
        self, session: SessionId, *, wait_seconds: float | None = None
    ) -> Busy | None:
        assert wait_seconds is not None
        await asyncio.sleep(wait_seconds)
        return Busy(f"{session} is being written", holder="pid 4711", held_seconds=wait_seconds)


def test_many_stuck_writers_are_waited_for_as_long_as_one() -> None:
    async def waited() -> tuple[float, list[SessionId]]:
        loop = asyncio.get_running_loop()
        began, patience = loop.time(), LockWaitBudget(StuckStore(), seconds=1.0)
        for name in (*NAMES, *NAMES):
            assert await patience.busy(name) is not None
        return loop.time() - began, list(patience.found)

    assert run_virtually(waited()) == (1.0, NAMES)


def test_only_a_lock_that_somebody_holds_makes_a_session_busy() -> None:
    patience = LockWaitBudget(InMemoryStore())
    assert not patience.caught(NAMES[0], NotSaved("the disk is full"))
    assert not patience.caught(NAMES[0], Busy("its queue is full"))
    assert patience.caught(NAMES[0], Busy("is being written", holder="pid 4711", held_seconds=0.0))
    assert list(patience.found) == NAMES[:1]
