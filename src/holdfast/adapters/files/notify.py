"""
Wake other processes of the same home: one datagram socket per listener in HOME/run, one datagram
per notice.

Sockets are addressed through the folder's descriptor (/proc/self/fd/N/name), so that a home path of
any length fits an address. A notice is a hint: full buffers, dead listeners and platforms without
such sockets are ignored silently, and a dead listener's socket is removed. Listeners of the same
notifier are called directly.
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
from holdfast.adapters.files.session.locks import KeptFile
from holdfast.adapters.listener import Listener
from holdfast.errors import HoldfastError, Unusable
from holdfast.ids import SessionId, session_id

RUN = "run"
_NOTICE_BYTES_MAX = 256  # longer than any session id
_HAS_PROC = Path("/proc/self/fd").is_dir()


class FileNotifier:
    """See `holdfast.ports.notifier.Notifier`. Any number may exist on one home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._pid = os.getpid()
        self._own: dict[str, Listener] = {}
        self._kept: KeptFile | None = None

    def notify(self, session: SessionId) -> None:
        for listener in tuple(self._own.values()):
            listener.hear(session)
        with contextlib.suppress(OSError, HoldfastError):
            folder = self._folder()
            listening = [
                name
                for name in os.listdir(folder)  # noqa: PTH208
                if name.endswith(".sock") and name not in self._own
            ]
            if listening:
                _send(folder, listening, session)

    def _folder(self) -> int:
        """Return the descriptor of HOME/run, and reopen it if the folder was removed."""
        if self._kept is None or self._pid != os.getpid() or os.fstat(self._kept.fd).st_nlink == 0:
            self._pid = os.getpid()
            self._kept = KeptFile(_open_folder(self._home))
        return self._kept.fd

    def _let_go(self) -> None:
        """
        Close the folder when the last listener stops, so that the home is not kept open. The next
        notice opens it again.
        """
        if self._kept is not None and self._pid == os.getpid():
            self._kept.close()
        self._kept = None

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[SessionId]]:
        loop = asyncio.get_running_loop()
        listener = Listener(loop)
        made = _bind(self._home)
        name = made[1] if made is not None else f"here-{secrets.token_hex(4)}"

        def arrived() -> None:
            with contextlib.suppress(BlockingIOError):
                while made is not None:
                    notice = made[0].recv(_NOTICE_BYTES_MAX)
                    with contextlib.suppress(
                        Unusable, UnicodeDecodeError
                    ):  # any program of this user may send bytes
                        listener.take(session_id(notice.decode()))

        if made is not None:
            loop.add_reader(made[0], arrived)
        self._own[name] = listener
        try:
            yield listener.notices()
        finally:
            del self._own[name]
            if made is not None:
                loop.remove_reader(made[0])
                made[0].close()
                with contextlib.suppress(OSError, HoldfastError):
                    os.unlink(name, dir_fd=self._folder())
            if not self._own:
                self._let_go()


def _open_folder(path: Path, *, make: bool = False) -> int:
    home = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if make:
            make_folder(home, RUN)
        return open_folder(home, RUN)
    finally:
        os.close(home)


def _bind(home: Path) -> tuple[socket.socket, str] | None:
    if not _HAS_PROC:
        return None
    name = f"{os.getpid()}-{secrets.token_hex(4)}.sock"
    try:
        folder = _open_folder(home, make=True)
        try:
            listener = _socket()
            listener.bind(_address(folder, name))
        finally:
            os.close(folder)
    except (OSError, HoldfastError):
        return None
    return listener, name


def _send(folder: int, listening: list[str], session: SessionId) -> None:
    with _socket() as sender:
        for name in listening:
            try:
                sender.sendto(session.encode(), _address(folder, name))
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):  # its listener is dead
                    os.unlink(name, dir_fd=folder)
            except OSError as exc:
                if exc.errno not in {errno.EAGAIN, errno.ENOBUFS, errno.ENOENT}:
                    raise


def _socket() -> socket.socket:
    return socket.socket(
        socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    )


def _address(folder: int, name: str) -> str:
    return f"/proc/self/fd/{folder}/{name}"
