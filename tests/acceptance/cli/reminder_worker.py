"""
A process that fires what is due, at the same moment as others, and dies by kill -9 where it is told
to.

    python reminder_worker.py HOME GATE MODE

It opens the home, says "ready" on stdout, waits for a byte of its own from GATE, then does what
`holdfast resume` does. MODE: `live`; `decided` (killed under the write lock, with the firing
decided and nothing written); `fired` (killed when the firing is durable, before anything it owes is
done).
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from holdfast.assembly.service import open_service
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.session.events import ReminderFired
from holdfast.session.features.reminders import decide as decide_reminders


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("killed, and still here")


def arrange(mode: str) -> None:
    fire, commit = decide_reminders.fire_reminders, Ledger.commit

    def decided(*given: Any) -> Any:
        outcome = fire(*given)
        if outcome.events:
            die()
        return outcome

    async def committed(self: Ledger, *commands: Any, **more: Any) -> Any:
        outcome = await commit(self, *commands, **more)
        if any(isinstance(event, ReminderFired) for event in outcome.events):
            die()
        return outcome

    if mode == "decided":
        decide_reminders.fire_reminders = decided
    elif mode == "fired":
        Ledger.commit = committed  # type: ignore[method-assign]


async def main(home: str, gate: str, mode: str) -> None:
    arrange(mode)
    async with open_service(Path(home)) as service:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        os.read(os.open(gate, os.O_RDONLY), 1)  # blocks: nothing else runs here
        for session in await service.owing():
            turn = await service.resume(session, by="tests")
            sys.stdout.write(f"{session} {turn.turn} {turn.outcome}\n")


asyncio.run(main(*sys.argv[1:]))
