"""
Waking others on the same home: one datagram socket per listener in HOME/run, and one datagram per notice.

Addressed through the folder's descriptor (/proc/self/fd/N/name), so that a home of any path length fits an address. A notice is a hint:
full buffers, dead listeners and platforms without such sockets are passed over in silence, and a dead listener's socket is removed.
"""

import asyncio
import contextlib
import errno
import os
import secrets
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.adapters.files.paths import make_folder, open_folder
from holdfast.errors import HoldfastError, Unusable
from holdfast.ids import SessionId, session_id

RUN = "run"
_NOTICE_BYTES_MAX = 256  # longer than any session id
_QUEUED_MAX = 1024  # a listener that sleeps longer than this looks again by itself
_HAS_PROC = Path("/proc/self/fd").is_dir()


class FileNotifier:
    """See `holdfast.ports.notifier.Notifier`. Any number may exist on one home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def notify(self, session: SessionId) -> None:
        with contextlib.suppress(OSError, HoldfastError):
            folder = self._folder()
            try:
                listening = [name for name in os.listdir(folder) if name.endswith(".sock")]  # noqa: PTH208  by descriptor
                if listening:
                    self._send(folder, listening, session)
            finally:
                os.close(folder)

    def _folder(self) -> int:
        home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return open_folder(home, RUN)
        finally:
            os.close(home)

    def _send(self, folder: int, listening: list[str], session: SessionId) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
            for name in listening:
                try:
                    sender.sendto(session.encode(), _address(folder, name))
                except ConnectionRefusedError:
                    with contextlib.suppress(OSError):  # nobody is behind it any more
                        os.unlink(name, dir_fd=folder)
                except OSError as exc:
                    if exc.errno not in {errno.EAGAIN, errno.ENOBUFS, errno.ENOENT}:
                        raise

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[SessionId]]:
        queue: asyncio.Queue[SessionId] = asyncio.Queue(_QUEUED_MAX)
        loop = asyncio.get_running_loop()
        made = self._bind()

        def arrived() -> None:
            if made is None:
                return
            with contextlib.suppress(BlockingIOError, asyncio.QueueFull):
                while True:
                    notice = made[0].recv(_NOTICE_BYTES_MAX)
                    with contextlib.suppress(Unusable, UnicodeDecodeError):  # anyone of this user may send bytes
                        queue.put_nowait(session_id(notice.decode()))

        if made is not None:
            loop.add_reader(made[0], arrived)
        try:
            yield _notices(queue)
        finally:
            if made is not None:
                loop.remove_reader(made[0])
                self._unbind(*made)

    def _bind(self) -> tuple[socket.socket, str] | None:
        if not _HAS_PROC:
            return None
        name = f"{os.getpid()}-{secrets.token_hex(4)}.sock"
        try:
            home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                make_folder(home, RUN)
                folder = open_folder(home, RUN)
            finally:
                os.close(home)
            try:
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
                listener.bind(_address(folder, name))
            finally:
                os.close(folder)
        except (OSError, HoldfastError):
            return None
        return listener, name

    def _unbind(self, listener: socket.socket, name: str) -> None:
        listener.close()
        with contextlib.suppress(OSError, HoldfastError):
            folder = self._folder()
            try:
                os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)


def _address(folder: int, name: str) -> str:
    return f"/proc/self/fd/{folder}/{name}"


async def _notices(queue: "asyncio.Queue[SessionId]") -> AsyncIterator[SessionId]:
    while True:
        yield await queue.get()
