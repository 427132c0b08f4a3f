"""
Commands that start warm: each is a process of its own, forked from one that has imported our modules already.

Starting Python and importing takes nine tenths of what a command takes, and tests run more than a thousand of them. A warm one is as real as any other:
its own pid, folder, environment and descriptors; it ends by itself with its own code, and dies of signals. Only its first moments are shared.
What depends on those starts cold: what is imported when, variables that Python itself reads, another user, a tracer, a terminal.
With `--cold` everything does, as in `make test-long`.
"""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NoReturn

PACKAGES = ("holdfast.cli", "holdfast.runtime", "holdfast.adapters.files", "holdfast.adapters.tools")
MODULES = (
    "apsw",
    "holdfast.home",
    "holdfast.adapters.models.catalogue",
    "holdfast.adapters.models.demo",
    "holdfast.adapters.models.script",
    "holdfast.gateway.serving",
)
REQUEST_BYTES_MAX = 1 << 18  # more than a command line may have
FREE = ("HOLDFAST_", "COLUMNS")  # variables that nothing reads before a command runs


class WarmProcess:
    """What `subprocess.Popen` is to a process of ours. Its parent is a fork beside it, which tells how it ended."""

    def __init__(self, news: socket.socket) -> None:
        self._news = news
        self.pid = int(news.recv(32))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._news], [], [], seconds)[0]:
            self.returncode = int(self._news.recv(32))
            self._news.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class WarmStart:
    """The process that all are forked from; gone with whoever started it."""

    def __init__(self) -> None:
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST"))}
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(words, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def begins_like(self, env: Mapping[str, str]) -> bool:
        """Whether Python would start with these variables as it did here."""
        return _fixed(env) == _fixed(self._env)

    def start(self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], fds: tuple[int, int, int]) -> WarmProcess:
        """`python -m holdfast WORDS` in a session of its own, on these three descriptors, which stay the caller's."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.send(json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode())
        with theirs:
            socket.send_fds(self._door, [b"!"], [theirs.fileno(), *fds])
        return WarmProcess(ours)

    def run(self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: str, seconds: float) -> "subprocess.CompletedProcess[str]":
        """As `subprocess.run` would: to its end, and until nobody is left who could write."""
        (take, give), (hear_out, say_out), (hear_err, say_err) = os.pipe(), os.pipe(), os.pipe()
        try:
            process = self.start(words, cwd=cwd, env=env, fds=(take, say_out, say_err))
        finally:
            for fd in (take, say_out, say_err):
                os.close(fd)
        late = threading.Timer(seconds, process.kill)
        late.start()
        heard: dict[int, str] = {}
        threads = [threading.Thread(target=_feed, args=(give, stdin)), threading.Thread(target=_hear, args=(hear_err, heard))]
        for thread in threads:
            thread.start()
        _hear(hear_out, heard)
        for thread in threads:
            thread.join()
        code = process.wait()
        late.cancel()
        return subprocess.CompletedProcess([*words], code, heard[hear_out], heard[hear_err])

    def close(self) -> None:
        self._door.close()
        self._process.wait()


def _fixed(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith(FREE)}


def _feed(fd: int, text: str) -> None:
    try:
        with os.fdopen(fd, "w") as pipe:
            pipe.write(text)
    except BrokenPipeError:
        pass  # it ended without reading all of it, as it may


def _hear(fd: int, heard: dict[int, str]) -> None:
    with os.fdopen(fd) as pipe:
        heard[fd] = pipe.read()


# --- in the process that is forked


def _serve(door: socket.socket) -> None:
    """Fork for each that asks: one that becomes the command, and one beside it that waits for its end."""
    inside = (module.name for package in PACKAGES for module in walk_packages(import_module(package).__path__, f"{package}."))
    for name in (*MODULES, *inside):
        import_module(name)
    assert threading.active_count() == 1, "a fork has only one of its parent's threads"
    gc.freeze()
    while True:
        _bury()
        asked, fds, _, _ = socket.recv_fds(door, 1, 4)
        if not asked:
            return
        if os.fork() == 0:
            door.close()
            _see_to(socket.socket(fileno=fds[0]), fds[1:])
        for fd in fds:
            os.close(fd)


def _bury() -> None:
    """Those whose command has ended; how many are left of others does not matter."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _see_to(news: socket.socket, fds: Sequence[int]) -> None:
    request = json.loads(news.recv(REQUEST_BYTES_MAX))
    pid = os.fork()
    if pid == 0:
        news.close()
        _become(request, fds)
    for fd in fds:
        os.close(fd)
    news.send(str(pid).encode())
    _, status = os.waitpid(pid, 0)
    news.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(request: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.setsid()
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115  # they stay open to the end
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = request["cwd"]
    sys.argv = ["holdfast", *request["words"]]
    from holdfast.cli.main import main

    main()  # exits, and Python ends as it always does


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
