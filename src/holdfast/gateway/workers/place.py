"""The descriptors that the parent hands to a worker: its place among the workers of a home."""

import asyncio
import os
import socket
from collections.abc import Callable

import msgspec

from holdfast.errors import Unusable
from holdfast.gateway.server.metrics import Counts
from holdfast.gateway.workers.peers import Peers
from holdfast.gateway.workers.share import Share
from holdfast.runtime.streams.feed import Feed


class WorkerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Passed on the worker's command line. The numbers are descriptors of the worker."""

    number: int
    workers: int
    drivers: int
    listening: int  # the socket of the server's port, which all workers share
    inbox: int
    outboxes: dict[int, int]  # of the other workers, by their number
    lock: int | None  # of the home: it is served as long as a worker lives
    alive: int  # a pipe that ends when the parent has gone

    @property
    def share(self) -> Share:
        return Share(self.number, self.workers, self.drivers)

    @property
    def descriptors(self) -> list[int]:
        lock = [] if self.lock is None else [self.lock]
        return [self.listening, self.inbox, *self.outboxes.values(), *lock, self.alive]

    def socket(self) -> socket.socket:
        return socket.socket(fileno=self.listening)

    def peers(self, feed: Feed, counts: Callable[[], Counts]) -> Peers:
        outboxes = {
            worker: socket.socket(fileno=outbox) for worker, outbox in self.outboxes.items()
        }
        return Peers(self.share, socket.socket(fileno=self.inbox), outboxes, feed, counts)

    async def wait_for_orphaning(self) -> None:
        """Return when the parent has gone, in whatever way."""
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        os.set_blocking(self.alive, False)  # the standard library's own way
        loop.add_reader(self.alive, gone.set)  # nobody ever writes to it
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self.alive)


def place_of(text: str) -> WorkerPlace:
    """
    Return the place that the parent gave to this process, and keep its descriptors from the
    programs that this worker starts.
    """
    try:
        place = msgspec.json.decode(text, type=WorkerPlace)
        for each in place.descriptors:
            os.set_inheritable(each, False)  # noqa: FBT003  # the standard library's own way
    except (msgspec.DecodeError, OSError) as exc:
        raise Unusable(
            f"--worker is for processes that `holdfast serve --workers` starts: {exc}",
            code="malformed",
            hint="`holdfast serve --workers 2`",
        ) from exc
    return place
