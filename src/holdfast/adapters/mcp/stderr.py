"""
A server's words about itself, on stderr: in a file below the home, bounded, with secrets hidden.

They help a person to find a fault. No model sees them.
"""

import asyncio
import contextlib
import os
from pathlib import Path

from holdfast.limits import MCP_STDERR_BYTES_MAX
from holdfast.secrecy import Secret, StreamedBytes, secrecy_of

_READ_BYTES = 64 * 1024
_DROPPED = b"[earlier lines were dropped]\n"


class StderrFile:
    """Owns the descriptor, and reads it until the server closes it."""

    def __init__(self, errors: int, path: Path, secrets: tuple[Secret, ...]) -> None:
        self._errors, self._path = errors, path
        self._loop = asyncio.get_running_loop()
        self._file = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        self._size = os.fstat(self._file).st_size
        self._streamed = StreamedBytes(secrecy_of(secrets), self._keep)
        os.set_blocking(errors, False)
        self._loop.add_reader(errors, self._readable)

    def _readable(self) -> None:
        try:
            chunk = os.read(self._errors, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if chunk:
            self._streamed.hear(chunk)
        else:
            self.close()

    def _keep(self, data: bytes) -> None:
        if self._size + len(data) > MCP_STDERR_BYTES_MAX:
            os.ftruncate(self._file, 0)
            data = _DROPPED + data[-MCP_STDERR_BYTES_MAX // 2 :]
            self._size = 0
        self._size += len(data)
        with contextlib.suppress(OSError):  # a full disk must not end a server
            os.write(self._file, data)

    def close(self) -> None:
        if self._errors < 0:
            return
        self._loop.remove_reader(self._errors)
        self._streamed.end()
        os.close(self._errors)
        os.close(self._file)
        self._errors = -1
