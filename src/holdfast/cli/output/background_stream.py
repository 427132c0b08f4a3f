"""
Output of a server that never waits for its reader.

A pipe that nobody reads is full after 64 KiB, and a terminal stops at Ctrl-S. Then a plain write
waits, and the server with it. Here a thread writes, and a bounded buffer waits for it. Output that
does not fit is dropped and counted. The descriptor stays in blocking mode, because other processes
share it.
"""

import atexit
import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO, cast

from holdfast.cli.output.terminal import guard_streams
from holdfast.limits import OUTPUT_BUFFER_BYTES_MAX

_LAST_WAIT_SECONDS = 1.0  # at the exit: a reader that is there takes all of it in less


class BackgroundStream(io.TextIOBase):
    """
    A text stream on the descriptor of another one. `gap_line` gives the line that reports how many
    writes were dropped. It follows the output that fitted.
    """

    def __init__(
        self,
        stream: TextIO,
        gap_line: Callable[[int], str],
        *,
        bytes_max: int = OUTPUT_BUFFER_BYTES_MAX,
    ) -> None:
        self._stream, self._fd = stream, stream.fileno()
        self._gap_line, self._bytes_max = gap_line, bytes_max
        self._moved = threading.Condition()
        # The condition guards these three. The count moves to zero when its line is queued.
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        threading.Thread(target=self._write_on, name="output", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> int:
        data = text.encode(self._stream.encoding, self._stream.errors or "replace")
        with self._moved:
            if self._size + len(data) > self._bytes_max:
                self._dropped += 1
            else:
                self._queue(data)
        return len(text)

    def wait_until_written(self, seconds: float) -> bool:
        """Return whether the descriptor took everything in time."""
        with self._moved:
            return self._moved.wait_for(lambda: not self._waiting, seconds)

    def _queue(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)
            self._size += len(data)
            self._moved.notify_all()

    def _write_on(self) -> None:
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._waiting)
                data = self._waiting[0]
            _write_all(self._fd, data)
            with self._moved:
                self._waiting.popleft()
                self._size -= len(data)
                dropped, self._dropped = self._dropped, 0
                if dropped:
                    self._queue(self._gap_line(dropped).encode(errors="replace"))
                self._moved.notify_all()


def _write_all(fd: int, data: bytes) -> None:
    """Write it, or lose it: the reader may have gone, or the disk may be full."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # another process has set the shared descriptor so
            waits = select.poll()
            waits.register(fd, select.POLLOUT)
            waits.poll()
        except OSError:
            return


def write_in_background(name: str, gap_line: Callable[[int], str]) -> None:
    """Make sys.stdout or sys.stderr such a stream until the process ends."""
    stream: TextIO | None = getattr(sys, name)
    try:
        if stream is None or stream.fileno() < 0:
            return
    except (OSError, ValueError):
        return  # it is closed, or only in memory
    made = BackgroundStream(stream, gap_line)
    atexit.register(made.wait_until_written, _LAST_WAIT_SECONDS)
    setattr(sys, name, cast("TextIO", made))
    guard_streams()
