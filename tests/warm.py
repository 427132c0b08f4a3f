"""
Commands that start warm: each is a process of its own, forked from one that has imported our
modules already.

Starting Python and importing takes nine tenths of what a command takes, and tests run more than a
thousand of them. A warm one is as real as any other: its own pid, folder, environment and
descriptors; it ends by itself with its own code, and dies of signals. Only its first moments are
shared. A test that depends on those starts cold: what is imported when, variables that Python itself
reads, another user, a tracer, a terminal. With `--cold` everything does, as in `make test-long`.
"""

import contextlib
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
from typing import Any, NoReturn, TextIO

PACKAGES = (
    "holdfast.cli",
    "holdfast.runtime",
    "holdfast.adapters.files",
    "holdfast.adapters.tools",
)
MODULES = (
    "apsw",
    "holdfast.home",
    "holdfast.adapters.models.catalogue",
    "holdfast.adapters.models.demo.model",
    "holdfast.adapters.models.script",
    "holdfast.gateway.server.serve",
)
REQUEST_BYTES_MAX = 1 << 18  # more than a command line may have
FREE = (
    "HOLDFAST_",
    "_HOLDFAST_",
    "COMP_",
    "COLUMNS",
)  # variables that nothing reads before a command runs


class WarmProcess:
    """
    The counterpart of `subprocess.Popen` for a process of ours. Its parent is the one that it was forked from,
    which tells how it ended.
    """

    def __init__(self, news: socket.socket) -> None:
        self._news = news
        self.pid = int(news.recv(32))
        self.returncode: int | None = None
        self.stdout: TextIO | None = None
        self.stderr: TextIO | None = None

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that is still to be read; then it ends, within `timeout`."""
        heard = ["", ""]
        reading = threading.Thread(target=_hear, args=(self.stderr, heard, 1))
        reading.start()
        _hear(self.stdout, heard, 0)
        reading.join()
        self.wait(timeout)
        return heard[0], heard[1]

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


def _hear(pipe: TextIO | None, heard: list[str], place: int) -> None:
    if pipe is not None and not pipe.closed:
        with pipe:
            heard[place] = pipe.read()


class WarmStart:
    """The process that all are forked from; gone with whoever started it."""

    def __init__(self) -> None:
        self._env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOLDFAST_", "PYTEST"))
        }
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                words,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def begins_like(self, env: Mapping[str, str]) -> bool:
        """Whether Python would start with these variables as it did here."""
        return _fixed(env) == _fixed(self._env)

    def start(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], fds: tuple[int, int, int]
    ) -> WarmProcess:
        """
        `python -m holdfast WORDS` in a session of its own, on these three descriptors, which stay
        the caller's.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.send(json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode())
        with theirs:
            socket.send_fds(self._door, [b"!"], [theirs.fileno(), *fds])
        return WarmProcess(ours)

    def open(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: int | None = None
    ) -> WarmProcess:
        """On two pipes, and what is given as its input."""
        (hear_out, say_out), (hear_err, say_err) = os.pipe(), os.pipe()
        take = os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin
        try:
            process = self.start(words, cwd=cwd, env=env, fds=(take, say_out, say_err))
        finally:
            for fd in (take, say_out, say_err):
                os.close(fd)
        process.stdout, process.stderr = os.fdopen(hear_out), os.fdopen(hear_err)
        return process

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: str, seconds: float
    ) -> "subprocess.CompletedProcess[str]":
        """As `subprocess.run` would: to its end, and until nobody is left who could write."""
        take, give = os.pipe()
        feeding = threading.Thread(target=_feed, args=(give, stdin))
        feeding.start()
        process = self.open(words, cwd=cwd, env=env, stdin=take)
        late = threading.Timer(seconds, process.kill)
        late.start()
        out, err = process.communicate()
        feeding.join()
        late.cancel()
        return subprocess.CompletedProcess([*words], process.wait(), out, err)

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


# --- in the process that is forked


def _serve(door: socket.socket) -> None:
    """Fork for each that asks, and tell how each ended."""
    inside = (
        module.name
        for package in PACKAGES
        for module in walk_packages(import_module(package).__path__, f"{package}.")
    )
    for name in (*MODULES, *inside):
        import_module(name)
    assert threading.active_count() == 1, "a fork has only one of its parent's threads"
    gc.freeze()
    running: dict[
        int, tuple[int, socket.socket]
    ] = {}  # by a descriptor that can be read once it has ended
    while True:
        for ready in select.select([door.fileno(), *running], [], [])[0]:
            if ready in running:
                _tell(ready, *running.pop(ready))
                continue
            asked, fds, _, _ = socket.recv_fds(door, 1, 4)
            if not asked:
                return
            news = socket.socket(fileno=fds[0])
            request = json.loads(news.recv(REQUEST_BYTES_MAX))
            pid = os.fork()
            if pid == 0:
                for each in (door, news, *(other for _, other in running.values())):
                    each.close()
                for watched in running:
                    os.close(watched)
                _become(request, fds[1:])
            for fd in fds[1:]:
                os.close(fd)
            news.send(str(pid).encode())
            running[os.pidfd_open(pid)] = (pid, news)


def _tell(watched: int, pid: int, news: socket.socket) -> None:
    os.close(watched)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with news, contextlib.suppress(BrokenPipeError):  # nobody may be left to hear it
        news.send(str(code).encode())


def _become(request: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.setsid()
    kept = [
        {"encoding": each.encoding, "errors": each.errors, "closefd": False}
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ]
    sys.stdin, sys.stdout = open(0, **kept[0]), open(1, "w", **kept[1])  # noqa: SIM115  # they stay open to the end
    sys.stderr = open(2, "w", buffering=1, **kept[2])  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    del sys.path[0]  # the folder that this process was started in
    sys.argv = ["holdfast", *request["words"]]
    from holdfast.cli.main import main

    main()  # exits, and Python ends as it always does


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
