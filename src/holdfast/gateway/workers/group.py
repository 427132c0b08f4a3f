"""
The parent of the workers: it starts them, starts a dead one again, and stops them together.

The parent holds the home's lock and the socket, and opens no journal. The workers inherit both, so
that the home counts as served while one of them lives. A worker that has died loses nothing: its
sessions stand in their journals, and the new worker of the same number drives the same share.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import msgspec

from holdfast.errors import Unusable
from holdfast.gateway.workers.place import WorkerPlace

# A worker that dies more often than this has a cause that a new start does not mend.
DEATHS_MAX, DEATHS_SECONDS = 5, 60.0
_log = logging.getLogger("holdfast.gateway.workers")

Command = Callable[[str], Sequence[str]]
"""Returns the command line of a worker whose place is this text."""


class WorkerGroup:
    def __init__(
        self,
        workers: int,
        sock: socket.socket,
        lock: int | None,
        command: Command,
        *,
        drivers: int | None = None,
    ) -> None:
        self._workers = workers
        self._drivers = workers if drivers is None else drivers
        self._socket = sock
        self._lock = lock
        self._command = command
        self._stopping = asyncio.Event()
        self._running: dict[int, asyncio.subprocess.Process] = {}

    def stop(self) -> None:
        """Ask each worker to stop. The second call makes them stop at once."""
        self._stopping.set()
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    async def run(self) -> None:
        """Keep the workers running until `stop` is called."""
        with _lines(self._workers) as lines, _pipe() as (alive, _held):
            try:
                async with asyncio.TaskGroup() as group:
                    for number in range(self._workers):
                        group.create_task(self._keep(self._place(number, lines, alive)))
            except* Unusable as failed:
                raise failed.exceptions[0] from None

    def _place(
        self, number: int, lines: Sequence[tuple[socket.socket, socket.socket]], alive: int
    ) -> WorkerPlace:
        others = {worker: out.fileno() for worker, (_, out) in enumerate(lines) if worker != number}
        return WorkerPlace(
            number=number,
            workers=self._workers,
            drivers=self._drivers,
            listening=self._socket.fileno(),
            inbox=lines[number][0].fileno(),
            outboxes=others,
            lock=self._lock,
            alive=alive,
        )

    async def _keep(self, place: WorkerPlace) -> None:
        """Keep one worker running. Stop all of them if it can't be."""
        deaths: deque[float] = deque(maxlen=DEATHS_MAX)
        while not self._stopping.is_set():
            process = await self._start(place)
            if self._stopping.is_set():  # a signal came while the process was made
                process.send_signal(signal.SIGTERM)
            code = await process.wait()
            del self._running[place.number]
            if self._stopping.is_set():
                return
            now = time.monotonic()
            if len(deaths) == DEATHS_MAX and now - deaths[0] < DEATHS_SECONDS:
                self.stop()
                raise Unusable(
                    f"worker {place.number} ended {DEATHS_MAX + 1} times within "
                    f"{DEATHS_SECONDS:.0f} seconds, the last time with {_ending(code)}",
                    code="worker",
                    hint="its log lines say why; `holdfast serve` without --workers shows the same "
                    "in one process",
                )
            deaths.append(now)
            _log.warning(
                "worker %d ended with %s; it is started again", place.number, _ending(code)
            )

    async def _start(self, place: WorkerPlace) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C reaches the parent alone, which stops each worker once.
        process = await asyncio.create_subprocess_exec(
            *self._command(msgspec.json.encode(place).decode()),
            pass_fds=place.descriptors,
            start_new_session=True,
        )
        self._running[place.number] = process
        return process


async def run_until_signalled(group: WorkerGroup) -> None:
    """Run until SIGTERM or SIGINT. The second signal does not wait."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, group.stop)
    try:
        await group.run()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


@contextmanager
def _lines(workers: int) -> Generator[list[tuple[socket.socket, socket.socket]], None, None]:
    """An inbox and its outbox for each worker. A message arrives whole or not at all."""
    with contextlib.ExitStack() as stack:
        lines = []
        for _ in range(workers):
            inbox, outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            lines.append((stack.enter_context(inbox), stack.enter_context(outbox)))
        yield lines


@contextmanager
def _pipe() -> Generator[tuple[int, int], None, None]:
    """The parent alone holds the end for writing, so readers see its end with the parent's."""
    read, write = os.pipe()
    try:
        yield read, write
    finally:
        os.close(read)
        os.close(write)
