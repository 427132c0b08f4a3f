"""
A program in a terminal of its own, as a person would use it: keys go in, the screen comes out.

For `holdfast demo`, which kills a real `holdfast chat` in it, and for tests. It waits for text on
the screen, never for time to pass.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Self

_FORWARD = re.compile(r"\x1b\[(\d*)C")
_ESCAPES = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_=>]|[\r\x07\x08]"
)
_ROWS_COLUMNS = (50, 200)
# The child makes the terminal its controlling one, so that Ctrl-C reaches it as a signal, and then
# becomes the program.
_BECOME = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1],"
    " sys.argv[1:])"
)


class NotSeen(Exception):
    """The text did not appear in time; the message is the text that appeared instead."""


class PseudoTerminal:
    """A context manager. Leaving it kills the program if it still runs."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> None:
        self._keys, screen = pty.openpty()
        # No cursor position queries: nothing here would answer them.
        environment = {
            **(env if env is not None else os.environ),
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }
        environment["LINES"], environment["COLUMNS"] = map(str, _ROWS_COLUMNS)
        try:
            self.process = subprocess.Popen(  # noqa: S603  # the caller's own program
                [sys.executable, "-I", "-c", _BECOME, *argv],
                stdin=screen,
                stdout=screen,
                stderr=screen,
                env=environment,
                cwd=cwd,
                start_new_session=True,
            )
        finally:
            os.close(screen)
        self.seen = ""  # everything on the screen so far, without cursor movements
        self._raw = b""
        self._looked_to = 0

    def type(self, text: str) -> None:
        os.write(self._keys, text.encode())

    def wait_until_seen(self, text: str, *, within_seconds: float = 60.0) -> str:
        """
        Wait until the text appears after the last awaited text. Return everything from there to its
        end.
        """
        deadline = time.monotonic() + within_seconds
        while (found := self.seen.find(text, self._looked_to)) < 0:
            if not self._read(deadline - time.monotonic()):
                raise NotSeen(
                    f"{text!r} did not appear; the screen had: {self.seen[self._looked_to :]!r}"
                )
        start, self._looked_to = self._looked_to, found + len(text)
        return self.seen[start : self._looked_to]

    def _read(self, seconds: float) -> bool:
        """Read the present output. Return False if none came in time or the program has gone."""
        if seconds <= 0 or not select.select([self._keys], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self._keys, 65536)
        except OSError:  # how Linux reports that the other side is closed
            return False
        self._raw += piece
        text = _FORWARD.sub(
            lambda move: " " * int(move[1] or 1), self._raw.decode(errors="replace")
        )
        self.seen = _ESCAPES.sub("", text)
        return bool(piece)

    def kill(self) -> int:
        """kill -9. Return the program's exit status."""
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait()

    def wait_until_over(self, *, within_seconds: float = 60.0) -> int:
        """
        Return the exit code. Keep reading, so that a full screen does not keep the program from
        ending.
        """
        deadline = time.monotonic() + within_seconds
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        os.close(self._keys)
