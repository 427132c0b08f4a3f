"""
Servers that keep a connection open and answer nothing: a disk hangs, or a machine is stopped.

No error comes from such a server, so a statement would wait for ever, also after a standby has
taken over. One thread of this process ends a connection that has waited too long. Its statement is
then lost, and what became of it is found out as after any lost connection.
"""

import contextlib
import os
import socket
import threading
import time
from typing import Any

SILENT_SECONDS = 75.0  # longer than the server lets a statement run
CHECK_SECONDS = 1.0

_guard = threading.Lock()
_waiting: dict[Any, float] = {}  # the connections of the driver that wait, and since when
_thread: threading.Thread | None = None


def begin(connection: Any) -> None:
    """The connection waits for the server from now on."""
    if _thread is None or not _thread.is_alive():  # a forked process has no thread
        _start()
    with _guard:
        _waiting[connection] = time.monotonic()


def end(connection: Any) -> None:
    """The server has answered, or the connection is lost."""
    with _guard:
        _waiting.pop(connection, None)


def _start() -> None:
    global _thread  # noqa: PLW0603  one for the process
    with _guard:
        if _thread is None or not _thread.is_alive():
            _waiting.clear()
            _thread = threading.Thread(target=_run, name="holdfast-silence", daemon=True)
            _thread.start()


def _run() -> None:
    while True:
        time.sleep(CHECK_SECONDS)
        with _guard:  # nobody closes a connection meanwhile, and no other file takes its number
            before = time.monotonic() - SILENT_SECONDS
            for connection, since in list(_waiting.items()):
                if since < before:
                    _waiting.pop(connection)
                    _cut(connection)


def _cut(connection: Any) -> None:
    with (
        contextlib.suppress(Exception),  # the connection is closed already
        socket.socket(fileno=os.dup(connection.pgconn.socket)) as duplicate,
    ):
        duplicate.shutdown(socket.SHUT_RDWR)
