"""
The parts that the fakes share: a server on loopback in a thread of its own, the messages that
arrived there, people who write and press, and faults that the next send meets.
"""

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from holdfast.ports.chat.messages import KnownThread

if TYPE_CHECKING:
    from aiohttp import web

T = TypeVar("T")
WAIT_SECONDS = 60.0  # how long anything may take before it counts as hung
Fault = Literal["too_many", "reset_after", "refused", "server_error"]
"""
too_many: 429 with Retry-After, nothing is posted. reset_after: it is posted, and the connection is
reset. refused: an error that says no. server_error: 500, nothing is posted.
"""


@dataclass
class FakeMessage:
    """A message of the bot, as people see it now."""

    place: str
    name: str  # the platform's id of it
    text: str
    thread: str = ""
    buttons: list[tuple[str, str]] = field(default_factory=list)  # label, payload
    edits: int = 0
    # Text that the platform shows without interpreting anything in it.
    preformatted: str = ""

    def payload(self, label: str) -> str:
        return next(payload for each, payload in self.buttons if each == label)

    @property
    def labels(self) -> list[str]:
        return [label for label, _ in self.buttons]


class FakeChat:
    """Base of the fakes. Its methods are for the thread of the test."""

    kind = ""
    bot_token = ""
    acknowledges = True  # whether the vendor hears that a message was taken
    has_whispers = True  # whether words to a message's sender are for them alone
    has_history = False  # whether missed messages are read from it, or else delivered later
    can_find = False  # whether a message that may have been sent can be looked for

    def __init__(self) -> None:
        self.messages: list[FakeMessage] = []
        self.whispers: list[tuple[str, str]] = []  # user, words that only they see
        self.acknowledged: list[str] = []  # the vendor's ids of what was acknowledged
        self.faults: list[Fault] = []
        self.busy_reads = 0  # how many of the next reads of a history are refused for now, with 429
        self.requests: list[str] = []  # methods, in order
        self.port = 0
        self._changed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"fake {self.kind}", daemon=True)

    # --- for a platform

    def app(self) -> "web.Application":
        raise NotImplementedError

    def settings(self) -> str:
        """The section of holdfast.toml that leads to this fake, without its teams."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        raise NotImplementedError

    def identity(self, user: str) -> str:
        """The identity of a user in `[people]`."""
        return user

    def say(
        self, user: str, text: str, *, place: str | None = None, thread: str = "", **more: Any
    ) -> str:
        """A user writes, to the bot alone or in a place. Return the vendor's id of the message."""
        raise NotImplementedError

    def press(self, user: str, message: FakeMessage, label: str, *, payload: str = "") -> str:
        """A user presses a button. Return the vendor's id of the press."""
        raise NotImplementedError

    def redeliver(self) -> None:
        """Send everything again that was ever sent, as after a lost acknowledgement."""
        raise NotImplementedError

    def forge(self, user: str, text: str, *, place: str) -> None:
        """Somebody else writes, and pretends to be this user."""
        raise NotImplementedError

    def retry(self) -> None:
        """Send again what was not acknowledged in time, where the vendor does that."""

    def receipt(self, message: FakeMessage) -> str:
        """The name of a message in a receipt."""
        return message.name

    def missed_since(self, user: str) -> tuple[KnownThread, ...]:  # noqa: ARG002  # of a subclass
        """Threads to read, where the vendor does not deliver again what was not acknowledged."""
        return ()

    # --- for tests

    def wait(self, true: Callable[[], T], what: str, seconds: float = WAIT_SECONDS) -> T:
        """Wait until it holds, and return it."""
        ends = time.monotonic() + seconds
        with self._changed:
            while not (found := true()):
                if not self._changed.wait(max(0.0, min(0.2, ends - time.monotonic()))) and (
                    time.monotonic() > ends
                ):
                    raise TimeoutError(f"waited {seconds:g} s for {what}; it has {self.messages}")
            return found

    def message(self, place: str, contains: str) -> FakeMessage:
        """Wait for a message of the bot in a place, or in a user's direct messages."""

        def found() -> FakeMessage | None:
            return next(
                (each for each in self.messages if each.place == place and contains in each.text),
                None,
            )

        message = self.wait(found, f"{contains!r} in {place}")
        assert message is not None
        return message

    def whispered(self, user: str, count: int = 1) -> str:
        """Wait for words that only this user sees, and return the last."""

        def heard() -> list[str]:
            words = [text for who, text in self.whispers if who == user]
            return words if len(words) >= count else []

        return self.wait(heard, f"words for {user}")[-1]

    # --- the server

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._up.wait(WAIT_SECONDS):
            raise TimeoutError(f"the fake of {self.kind} did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Answer nobody any more."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        self._thread.join(WAIT_SECONDS)
        # A peer that was killed may leave a connection behind that the loop no longer ends. Close
        # it here, and not in whichever test happens to collect it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        asyncio.run(self._served())

    async def _served(self) -> None:
        from aiohttp import web

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        runner = web.AppRunner(self.app(), shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        self._up.set()
        await self._stop.wait()
        await runner.cleanup()

    def _take_fault(self) -> Fault | None:
        with self._changed:
            return self.faults.pop(0) if self.faults else None

    def _is_busy(self) -> bool:
        with self._changed:
            self.busy_reads, is_busy = max(0, self.busy_reads - 1), self.busy_reads > 0
            return is_busy

    def _note(self, do: Callable[[], T]) -> T:
        """Change something, and wake those who wait for it."""
        with self._changed:
            result = do()
            self._changed.notify_all()
            return result

    def _in_loop(self, do: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(do)


def reset(request: "web.Request") -> None:
    """Reset the connection, after the request was read."""
    import socket
    import struct

    transport = request.transport
    if transport is not None:
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
