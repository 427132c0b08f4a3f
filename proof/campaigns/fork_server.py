"""
Run commands without the start-up time of Python: each is a fork of one process that has imported
everything, so that a sweep can start thousands.

A fork is a normal process. It has its own session, group, streams and exit code, can be killed, and
ends as `python -m holdfast` ends. It waits at a gate before it starts, so that a tracer can attach.
Calls are counted from there. They are those of a new process, because importing makes none of them
on a home. Modules that an undisturbed command imported are imported in later forks. The forking
process has one thread and runs no command itself.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.errors import InvariantBroken
from proof.campaigns.syscalls import LIMIT, Said, SyscallFault, attached
from proof.child_process import words_for

_REQUEST_BYTES_MAX = 1 << 16
_NAMES_BYTES_MAX = 1 << 20
_ANSWERS_SECONDS_MAX = 60.0  # for a fork, or the report of an end that has happened
_ANYBODY_MAY_TRACE = (
    0x59616D61  # PR_SET_PTRACER, with -1: by default only ancestors may trace, not the tracer
)
_SAY_WHERE = signal.SIGUSR1
_SAYS_WHERE_SECONDS_MAX = 15.0  # for its first output
_QUIET_SECONDS = 0.5  # after this silence its output is complete
_FIRST = ("holdfast.cli.main", "holdfast.assembly.service")


class Warm:
    """The process that commands are forked from, one at a time."""

    def __init__(self, *, env: Mapping[str, str], cwd: Path) -> None:
        self._channel, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._channel.settimeout(_ANSWERS_SECONDS_MAX)
        with theirs:
            words = words_for("proof.campaigns.fork_server", str(theirs.fileno()))
            streams = dict.fromkeys(("stdin", "stdout"), subprocess.DEVNULL)
            self._process = subprocess.Popen(
                words, env=dict(env), cwd=cwd, pass_fds=[theirs.fileno()], **streams
            )  # type: ignore[call-overload]

    def start(
        self, words: Sequence[str], *, out: int, err: int, limit: int | None, disturbed: bool
    ) -> "Started":
        """
        Start a process that waits at its gate. Its files end at `limit`. The descriptors are its
        standard streams, and the caller closes them.
        """
        inside, outside = os.pipe()
        request = {"words": list(words), "limit": limit, "teaches": not disturbed and limit is None}
        socket.send_fds(self._channel, [json.dumps(request).encode()], [out, err, inside])
        os.close(inside)
        return Started(int(self._channel.recv(64)), outside, self._channel)

    def close(self) -> None:
        self._channel.close()
        self._process.wait(_ANSWERS_SECONDS_MAX)


class Started:
    """
    A forked command. Its pid stays reserved until the next one starts, so that a signal reaches no
    other process.
    """

    def __init__(self, pid: int, gate: int, channel: socket.socket) -> None:
        self.pid = pid
        self._gate, self._channel = gate, channel
        self._code: int | None = None
        self._watched = os.pidfd_open(pid)

    def go(self) -> None:
        os.write(self._gate, b"g")
        os.close(self._gate)

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal, or None while it runs."""
        return self.wait(0.0)

    def wait(self, seconds_max: float) -> int | None:
        if self._code is None and select.select([self._watched], [], [], seconds_max)[0]:
            self._code = int(self._channel.recv(64))
            os.close(self._watched)
        return self._code

    def signal_all(self, number: signal.Signals) -> None:
        """Signal the command and every process in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def run_warm(
    warm: Warm,
    strace: str,
    words: Sequence[str],
    fault: SyscallFault | None,
    *,
    paths: Sequence[Path],
    timeout_seconds: float,
    trace: tuple[str, Path] | None = None,
) -> Said:
    """Like `syscalls.run`, for arguments to `holdfast`."""
    limit = fault.when if fault is not None and fault.call == LIMIT else None
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    started = warm.start(
        words,
        out=out_end,
        err=err_end,
        limit=limit,
        disturbed=fault is not None or trace is not None,
    )
    os.close(out_end)
    os.close(err_end)
    ends = time.monotonic() + timeout_seconds
    code, told = None, [b"", b""]
    try:
        with attached(
            strace,
            started.pid,
            fault if limit is None else None,
            paths,
            seconds_max=timeout_seconds,
            trace=trace,
        ):
            started.go()
            told = _read_all([out, err], ends)
            code = started.wait(max(0.0, ends - time.monotonic()))
            if code is None:
                told[1] += _where_it_hangs(started, err)
    except subprocess.TimeoutExpired:
        code, told[1] = None, told[1] + b"\n(ended, and something that it started lives on)"
    os.close(out)
    os.close(err)
    return Said(code, *(each.decode(errors="replace") for each in told))


def _where_it_hangs(started: Started, err: int) -> bytes:
    """Return the stack of each of its threads, then kill it."""
    os.kill(started.pid, _SAY_WHERE)
    told, seconds_max = b"", _SAYS_WHERE_SECONDS_MAX
    while select.select([err], [], [], seconds_max)[0] and (
        piece := os.read(err, _REQUEST_BYTES_MAX)
    ):
        told, seconds_max = told + piece, _QUIET_SECONDS
    started.signal_all(signal.SIGKILL)
    started.wait(_ANSWERS_SECONDS_MAX)
    return told


def _read_all(streams: list[int], ends: float) -> list[bytes]:
    """Read until no process can write to the streams, or time is up."""
    read: dict[int, list[bytes]] = {each: [] for each in streams}
    waiting = set(streams)
    while waiting:
        ready = select.select(list(waiting), [], [], max(0.0, ends - time.monotonic()))[0]
        if not ready:
            break
        for each in ready:
            piece = os.read(each, _REQUEST_BYTES_MAX)
            read[each].append(piece)
            if not piece:
                waiting.discard(each)
    return [b"".join(read[each]) for each in streams]


# --- inside the forking process


def _main(channel: socket.socket) -> None:
    for name in _FIRST:
        importlib.import_module(name)
    earlier: int | None = None
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, _REQUEST_BYTES_MAX, 3)
        if earlier is not None:
            os.waitpid(earlier, 0)
        if not data:
            return
        request = json.loads(data)
        if threading.active_count() != 1:
            raise InvariantBroken("a process with threads can't be forked in any state")
        gc.freeze()
        learned = os.memfd_create("learned")
        pid = os.fork()
        if pid == 0:
            if not request["teaches"]:
                os.close(learned)
            _become(
                channel,
                request["words"],
                descriptors,
                request["limit"],
                learned if request["teaches"] else None,
            )
            return  # then end as a program does
        for each in descriptors:
            os.close(each)
        if not _is_wanted_to_its_end(pid, channel):
            return
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        channel.send(
            str(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status).encode()
        )
        _learn(learned)
        earlier = pid


def _is_wanted_to_its_end(pid: int, channel: socket.socket) -> bool:
    """
    Wait for the command's end. The client sends nothing while a command runs, so readable data
    means that the client is gone; then kill the command.
    """
    watched = os.pidfd_open(pid)
    ended = watched in select.select([watched, channel.fileno()], [], [])[0]
    os.close(watched)
    if ended:
        return True
    with contextlib.suppress(ProcessLookupError):  # its group may not exist yet
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    return False


def _become(
    channel: socket.socket,
    words: list[str],
    descriptors: list[int],
    limit: int | None,
    learned: int | None,
) -> None:
    os.setsid()
    out, err, gate = descriptors
    os.dup2(out, 1)
    os.dup2(err, 2)
    # The parent's streams were opened on other files and remember their properties.
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
    faulthandler.register(_SAY_WHERE, all_threads=True)
    ctypes.CDLL(None).prctl(_ANYBODY_MAY_TRACE, ctypes.c_ulong(-1), 0, 0, 0)
    channel.send(str(os.getpid()).encode())
    channel.close()
    if not os.read(gate, 1):
        os._exit(0)  # the client is gone
    for each in descriptors:
        os.close(each)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if learned is not None:
        atexit.register(_teach, learned)
    sys.argv = ["holdfast", *words]
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)


def _teach(learned: int) -> None:
    """Import the modules that the command imported, except those in its working folder."""
    here = str(Path.cwd())
    names = [
        name
        for name, module in list(sys.modules.items())
        if not str(getattr(module, "__file__", None)).startswith(here)
    ]
    os.write(learned, json.dumps(names).encode())


def _learn(learned: int) -> None:
    names = os.pread(learned, _NAMES_BYTES_MAX, 0)
    os.close(learned)
    for name in json.loads(names or b"[]"):
        if name not in sys.modules:
            with contextlib.suppress(
                ImportError
            ):  # not every name there is a module that can be imported
                importlib.import_module(name)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
