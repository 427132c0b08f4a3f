"""
The threads that read: each has a connection of its own, made at first use and again after a loss.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.errors import Busy, InvariantBroken

T = TypeVar("T")

_THREADS = 4  # and as many connections; more callers wait


class Readers:
    def __init__(self, connect: Callable[[], Wire]) -> None:
        self._connect = connect
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="holdfast-read")
        self._own = threading.local()
        self._guard = threading.Lock()
        self._wires: list[Wire] = []
        self.waiting = 0  # reads under way, and those that wait for a thread

    @property
    def connections(self) -> int:
        with self._guard:
            return sum(each.is_usable for each in self._wires)

    def submit(self, work: Callable[[Wire], T]) -> "Future[T]":
        with self._guard:
            self.waiting += 1
        submitted = self._threads.submit(self._run, work)
        submitted.add_done_callback(self._count_down)
        return submitted

    def _count_down(self, _: "Future[Any]") -> None:
        with self._guard:
            self.waiting -= 1

    def _run(self, work: Callable[[Wire], T]) -> T:
        """A lost connection is made again, once: what runs here may run twice."""
        for is_last in (False, True):
            wire: Wire | None = getattr(self._own, "wire", None)
            if wire is None or not wire.is_usable:
                wire = self._own.wire = self._connect()
                with self._guard:
                    self._wires = [each for each in self._wires if each.is_usable]
                    self._wires.append(wire)
            try:
                return work(wire)
            except Lost as exc:
                wire.close()
                if is_last:
                    raise Busy(f"the connection was lost: {exc}", hint="try again") from exc
        raise InvariantBroken("a read ended without an outcome")

    def close(self) -> None:
        """Wait for what runs, and close the connections."""
        self._threads.shutdown(wait=True)
        for wire in self._wires:
            wire.close()
