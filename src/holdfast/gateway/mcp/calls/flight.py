"""
One call while this process works on it, and the requests that listen to it. It lives in memory
only: everything that must last is in the call's turn.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.errors import HoldfastError
from holdfast.limits import MCP_WAIT_SECONDS
from holdfast.runtime.external_loop.gate import Gate

WAIT_NOTE_SECONDS = 10.0  # between two notes; a client that counts from each gives up after 60
OnWait = Callable[[Gate], Awaitable[None]]
"""Called with a gate that waits for a person: at once, and again while it waits."""


async def say_nothing(_: Gate) -> None:
    pass


class Flight:
    """
    `sameness` is the session, the tool and the arguments. Each listener joins once and parts once;
    one that got its reply through to the client says so before it parts.
    """

    def __init__(
        self, sameness: tuple[str, str, str], question_seconds: float = MCP_WAIT_SECONDS
    ) -> None:
        self.sameness = sameness
        # How long a question that the server asks inside of the open call stands: the client waits,
        # and so do its next calls.
        self.question_seconds = question_seconds
        self.task: asyncio.Task[None] | None = None
        self._gate: Gate | None = None
        self._error: HoldfastError | None = None
        self._listeners = 0
        self._delivered = False
        self._let_go = False
        self._ended: bool | None = None
        self._moved = asyncio.Event()

    # --- for the desk

    def show(self, gate: Gate) -> None:
        self._gate = gate
        self._wake()

    def fail(self, error: HoldfastError) -> None:
        self._error = error
        self._wake()

    def let_go(self) -> None:
        """The server stops: nobody waits for a person any longer."""
        self._let_go = True
        self._wake()

    @property
    def is_waiting(self) -> bool:
        return self._gate is not None and self._gate.waiting

    @property
    def is_forsaken(self) -> bool:
        """True if every client left before it got the reply."""
        return self._listeners == 0 and not self._delivered

    @property
    def has_listeners(self) -> bool:
        return self._listeners > 0 and not self._let_go

    async def until_alone(self) -> None:
        while self.has_listeners:
            await self._next()

    async def is_delivered(self) -> bool:
        """Wait until a client has the reply, or none is left that could get it."""
        while self._listeners and not self._delivered:
            await self._next()
        return self._delivered

    def end(self, *, here: bool) -> None:
        """The call's turn is over. `here` says whether this flight ended it."""
        self._ended = here
        self._wake()

    # --- for listeners

    def join(self) -> None:
        self._listeners += 1

    def part(self) -> None:
        self._listeners -= 1
        self._wake()

    def deliver(self) -> None:
        self._delivered = True
        self._wake()

    async def collect(self) -> bool:
        """
        Deliver the result, and say whether this listener alone has it: it came first, and this
        flight ended the turn. Raise the flight's error.
        """
        if self._delivered:
            return False
        self.deliver()
        while self._ended is None:
            if self._error is not None:
                raise self._error
            await self._next()
        return self._ended

    async def until_decided(self) -> None:
        while self._gate is None and self._error is None:
            await self._next()

    async def until_settled(self, wait_seconds: float, on_wait: OnWait = say_nothing) -> Gate:
        """Wait for the end of the call, and so long for a person. Raise the flight's error."""
        loop = asyncio.get_running_loop()
        until, next_note = loop.time() + wait_seconds, 0.0
        while True:
            if self._error is not None:
                raise self._error
            gate = self._gate
            if gate is not None and gate.closed:
                return gate
            if gate is None or not gate.waiting:
                await self._next()
                continue
            now = loop.time()
            if now >= until or self._let_go:
                return gate
            if now >= next_note:
                next_note = now + WAIT_NOTE_SECONDS
                await on_wait(gate)  # then look again: the gate may have moved meanwhile
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(min(until, next_note) - now):
                    await self._next()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _next(self) -> None:
        await self._moved.wait()
