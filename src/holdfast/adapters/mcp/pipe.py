"""
A server on the other end of two pipes: one line is one message.

The reader keeps at most one line, and a line has a bound. A server that goes past it, or sends a
line that cannot be read strictly, is cut off: nothing after it could be trusted to be a message.
"""

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.adapters.mcp.connection import (
    TOO_MUCH,
    Asked,
    NeverSent,
    OnQuestion,
    ReplyLost,
    Talk,
)
from holdfast.adapters.mcp.messages import (
    Malformed,
    ServerReply,
    read_message,
    write_notification,
    write_request,
)
from holdfast.adapters.mcp.replies.questions import AskableCalls, OpenQuestions
from holdfast.limits import MCP_MESSAGE_BYTES_MAX, MIB

_READ_BYTES = 64 * 1024
_CANCELLED = "notifications/cancelled"


class PipeConnection:
    """
    Owns both descriptors, which do not block. `on_broken` is called once, with the reason, when the
    connection is over and nobody closed it.
    """

    def __init__(
        self, *, reads: int, writes: int, on_broken: Callable[[str], None] = lambda _: None
    ) -> None:
        self._reads, self._writes = reads, writes
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._line = bytearray()
        self._talk = Talk()  # since the last reply
        self._next = 1
        self._waiting: dict[int, asyncio.Future[ServerReply]] = {}
        self._askable = AskableCalls()
        self._writing = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None  # of the writer that waits for room
        self._over = ""
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)
        self._loop.add_reader(reads, self._readable)

    @property
    def is_open(self) -> bool:
        return not self._over

    def speak(self, version: str, *, names_requests: bool = False) -> None:
        """Nothing on a pipe depends on the version."""

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        on_question: OnQuestion | None = None,
    ) -> ServerReply:
        del headers  # a pipe has none
        (reply,) = await self._exchanged([(method, params)], timeout_seconds, on_question)
        return reply

    async def read(self, asked: Sequence[Asked], *, timeout_seconds: float) -> list[ServerReply]:
        return await self._exchanged(asked, timeout_seconds, None)

    async def _exchanged(
        self, asked: Sequence[Asked], timeout_seconds: float, on_question: OnQuestion | None
    ) -> list[ServerReply]:
        numbers = range(self._next, self._next + len(asked))
        self._next += len(asked)
        replies = {number: self._loop.create_future() for number in numbers}
        self._waiting.update(replies)
        lines = [write_request(number, *each) for number, each in zip(numbers, asked, strict=True)]
        try:
            async with asyncio.timeout(timeout_seconds) as limit:
                await self._send(b"\n".join(lines))
                if on_question is None:
                    return [await each for each in replies.values()]
                asking = OpenQuestions(on_question, self._send, limit)
                async with self._askable.during(asking):
                    return [await each for each in replies.values()]
        except TimeoutError:
            self._tell_cancelled(numbers)
            raise ReplyLost(f"no reply came within {timeout_seconds:g} s") from None
        except asyncio.CancelledError:
            self._tell_cancelled(numbers)
            raise
        finally:
            for number in numbers:
                self._waiting.pop(number, None)

    async def notify(self, method: str) -> None:
        with contextlib.suppress(NeverSent, ReplyLost):
            await self._send(write_notification(method))

    async def close(self) -> None:
        self._end("it was closed")

    # --- writing

    async def _send(self, message: bytes) -> None:
        """
        Write one line. A line is never mixed with another. If the caller gives up in the middle of
        one, the connection ends: the next line would go on where this one broke off.
        """
        left = memoryview(message + b"\n")
        async with self._writing:
            whole = len(left)
            while left:
                if self._over:
                    self._fail(self._over, sent=len(left) < whole)
                try:
                    left = left[os.write(self._writes, left) :]
                except BlockingIOError:
                    await self._until_writable(is_begun=len(left) < whole)
                except OSError as exc:
                    self._end(f"the server no longer reads ({exc.strerror})")
                    self._fail(self._over, sent=len(left) < whole)

    @staticmethod
    def _fail(why: str, *, sent: bool) -> None:
        raise ReplyLost(why) if sent else NeverSent(why)

    async def _until_writable(self, *, is_begun: bool) -> None:
        """Return once there is room, or the connection is over."""
        self._room = ready = self._loop.create_future()
        self._loop.add_writer(self._writes, _settle, ready)
        try:
            await ready
        except asyncio.CancelledError:
            if is_begun:
                self._break("a message to it was cut off")
            raise
        finally:
            self._room = None
            if not self._over:
                self._loop.remove_writer(self._writes)

    def _tell_cancelled(self, numbers: Iterable[int]) -> None:
        """Let the server stop early if it likes. The outcome stays in doubt."""
        for number in numbers:
            self._say(write_notification(_CANCELLED, {"requestId": number, "reason": "gave up"}))

    def _say(self, message: bytes) -> None:
        """Write a short line at once, whole or not at all. Its loss does not matter."""
        if self._over or self._writing.locked() or len(message) >= select.PIPE_BUF:
            return
        with contextlib.suppress(OSError):
            os.write(self._writes, message + b"\n")

    # --- reading

    def _readable(self) -> None:
        try:
            chunk = os.read(self._reads, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError as exc:
            self._break(f"the server can no longer be read ({exc.strerror})")
            return
        if not chunk:
            self._break("the server has closed its output")
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._line += line
            whole, self._line = bytes(self._line), bytearray()
            if not self._take(whole):
                return
        self._line += rest
        if len(self._line) > MCP_MESSAGE_BYTES_MAX:
            self._break(f"the server sent a line of more than {MCP_MESSAGE_BYTES_MAX // MIB} MiB")

    def _take(self, line: bytes) -> bool:
        """Take one whole line. Return whether the connection goes on."""
        if self._talk.is_too_much(len(line) + 1):
            self._break(f"the server sent {TOO_MUCH}")
            return False
        if not line.strip():
            return True
        if len(line) > MCP_MESSAGE_BYTES_MAX:
            self._break(f"the server sent a line of more than {MCP_MESSAGE_BYTES_MAX // MIB} MiB")
            return False
        try:
            message = read_message(line)
        except Malformed as exc:
            if line.lstrip().startswith(b"{"):
                self._break(str(exc))
            else:
                self._break("the server wrote a line to its output that is not a message")
            return False
        if isinstance(message, ServerReply):
            waiting = self._waiting.get(message.id)
            if waiting is not None and not waiting.done():
                self._talk.replied()
                waiting.set_result(message)
        elif message.id is not None:
            answer = self._askable.take(message)
            if answer is not None:
                self._say(answer)
        return True

    # --- the end

    def _break(self, why: str) -> None:
        if not self._over:
            self._end(why)
            self._on_broken(why)

    def _end(self, why: str) -> None:
        if self._over:
            return
        self._over = why
        self._line = bytearray()
        self._loop.remove_reader(self._reads)
        self._loop.remove_writer(self._writes)
        os.close(self._reads)
        os.close(self._writes)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ReplyLost(why))
                waiting.exception()  # its request may be in the middle of a line, and look no more
        if self._room is not None:
            _settle(self._room)


def _settle(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
