"""
One drive of one session, as a value: every step of the drive takes it. And the tasks that run
beside the driver's loop: model calls, tools and deliveries.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from holdfast.ids import TurnId
from holdfast.runtime.context import World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.runtime import Runtime
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import SessionState, Turn


class TaskName(NamedTuple):
    """The name of one task that runs beside the loop. The same task never runs twice at once."""

    kind: Literal["model", "tool", "deliver"]
    turn: TurnId
    # The id of the call or delivery.
    what: str = "-"


class Tasks:
    """The running tasks of one drive. The group exists while the loop runs."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.running: dict[TaskName, asyncio.Task[None]] = {}
        self.group: asyncio.TaskGroup

    def start(self, beside: TaskName, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the task, unless it runs already."""
        if beside in self.running:
            return

        async def guarded() -> None:
            try:
                await work()
            finally:
                self.running.pop(beside, None)
                self._ledger.wake_watchers()

        # The task name has four words: the simulation of a home reads from it the turn that a
        # request is made for.
        self.running[beside] = self.group.create_task(
            guarded(), name=f"{self._ledger.session} {' '.join(beside)}"
        )

    def stop_cancelled(self, state: SessionState) -> None:
        """Stop the tasks of turns that were cancelled or are gone."""
        for beside, task in self.running.items():
            if beside.kind == "deliver":
                continue  # a delivery outlives its turn
            turn = state.turns.get(beside.turn)
            gone = turn is None or turn.cancelled_by is not None
            if (
                gone
                and not task.cancelling()
                and (beside.kind == "tool" or turn is None or turn.model_call is None)
            ):
                task.cancel()


@dataclass(frozen=True)
class Drive:
    """Created with the claim; its epoch is the claim's."""

    runtime: Runtime
    world: World
    ledger: Ledger
    epoch: int
    tasks: Tasks

    async def grants_of(self, turn: Turn) -> tuple[GrantProposed, ...]:
        """The active grants of the turn's requester."""
        return await self.runtime.home.grants_of(turn.context.requester, self.ledger.state)
