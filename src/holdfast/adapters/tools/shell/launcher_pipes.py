"""
Spawns a launcher and speaks with it through its pipes: its code and its call go in, its status
comes out. The launcher's own side is `launcher_child.py`.
"""

import contextlib
import functools
import marshal
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from holdfast.adapters.tools.shell import launcher_child as launch
from holdfast.adapters.tools.shell.confinement.isolation import data_descriptor
from holdfast.adapters.tools.shell.confinement.seccomp import filter_of
from holdfast.adapters.tools.shell.confinement.view import FILTER
from holdfast.adapters.tools.shell.programs import Program
from holdfast.adapters.tools.shell.scripts.copy import file_word
from holdfast.ids import CallId
from holdfast.ports.tools import CannotBind

_READY_SECONDS = 20.0  # a launcher needs 10 ms; a machine that needs this long cannot run anything
# isolated: behind bubblewrap, which has confined it. limited: by Landlock and its own filter.
# plain: no confinement.
Mode = Literal["isolated", "limited", "plain"]


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True):
    call: CallId
    mode: Mode
    prefix: tuple[str, ...]  # bubblewrap's arguments, or empty
    allowed: tuple[str, ...]  # paths that Landlock allows, each after `r` or `w`
    folders: tuple[str, ...]  # "dev:ino path" of every folder that the command may change
    filter: bytes  # of system calls, installed by the launcher; bubblewrap gets its own
    files: tuple[
        bytes, ...
    ] = ()  # private copies: bubblewrap reads each from a descriptor that its arguments name
    cwd: str
    cwd_identity: str
    program: Program
    words: tuple[str, ...]
    environment: dict[str, str]


class Waiting(NamedTuple):
    """
    A process that waits for its go byte and ends when `go_write` is closed. A launcher without a
    call sends `w` when it waits for one.
    """

    process: "subprocess.Popen[bytes]"
    go_write: int
    status_read: int


class StandardStreams(NamedTuple):
    """The standard streams of a launched process, as `subprocess` takes them."""

    input: int = subprocess.DEVNULL
    output: int = subprocess.PIPE
    errors: int = subprocess.STDOUT


def spawn(
    prefix: tuple[str, ...],
    environment: dict[str, str],
    files: Sequence[bytes] = (),
    streams: StandardStreams = StandardStreams(),  # noqa: B008  immutable
) -> Waiting:
    """Start a launcher in a group of its own. It has its code and nothing else."""

    def words(go: int, status: int) -> list[str]:
        return [
            *prefix,
            *_PYTHON,
            "-c",
            _BOOT.format(go=go, length=len(_compiled())),
            str(go),
            str(status),
        ]

    waiting = begin(words, environment, streams=streams, what="command", files=files)
    os.set_blocking(waiting.go_write, False)  # a user with very many pipes gets small ones
    _send(waiting.go_write, _compiled())
    return waiting


def begin(
    words: Callable[[int, int], Sequence[str]],
    environment: Mapping[str, str],
    *,
    streams: StandardStreams,
    what: str,
    files: Sequence[bytes] = (),
) -> Waiting:
    """
    Start a process in a group of its own with the ends of two pipes: one receives the go byte, the
    other reports that it is ready.
    """
    go_read, go_write = os.pipe()
    status_read, status_write = os.pipe()
    passed = [go_read, status_write]
    try:
        process = subprocess.Popen(  # noqa: S603  the words are bound and shown
            _with_descriptors(words(go_read, status_write), files, passed),
            stdin=streams.input,
            stdout=streams.output,
            stderr=streams.errors,
            env=environment,
            cwd="/",
            pass_fds=passed,
            start_new_session=True,
        )
    except OSError as exc:
        os.close(go_write)
        os.close(status_read)
        raise CannotBind(f"the {what} can't be started: {exc.strerror}") from exc
    finally:
        for fd in passed:
            os.close(fd)
    return Waiting(process, go_write, status_read)


def _with_descriptors(
    words: Sequence[str], files: Sequence[bytes], passed: list[int]
) -> Sequence[str]:
    """
    Put descriptor numbers into bubblewrap's arguments. Bubblewrap reads its filter and private
    files from descriptors to their end, so each start gets its own. Opened ones are added to
    `passed`.
    """
    numbers: dict[str, str] = {}
    if FILTER in words:
        passed.append(data_descriptor(filter_of("isolated", network=False)))
        numbers[FILTER] = str(passed[-1])
    for number, data in enumerate(files):
        passed.append(data_descriptor(data))
        numbers[file_word(number)] = str(passed[-1])
    return [numbers.get(word, word) for word in words]


_PYTHON = (os.path.realpath(sys.executable), "-I", "-S")
_BOOT = """# launcher_child.py of holdfast: waits for a call and one byte, then becomes the command
import marshal, posix
code = b""
while len(code) < {length}:
    piece = posix.read({go}, {length} - len(code))
    if not piece:
        posix._exit(124)
    code += piece
exec(marshal.loads(code))
"""


def tell(waiting: Waiting, plan: LaunchPlan) -> str:
    """Send the call down the pipe that later carries the go byte. Return the launcher's status."""
    variables = [f"{name}={value}" for name, value in plan.environment.items()]
    packed = b"\0".join(map(os.fsencode, (str(len(variables)), *variables, *_plan_words(plan))))
    _send(waiting.go_write, len(packed).to_bytes(8, sys.byteorder) + packed)
    return wait_until_ready(waiting.status_read)


def _send(go_write: int, message: bytes) -> None:
    """Send a message. If the launcher is gone or does not read, its status reports that."""
    poll = select.poll()
    poll.register(go_write, select.POLLOUT)
    left = memoryview(message)
    with contextlib.suppress(BrokenPipeError):
        while left and poll.poll(_READY_SECONDS * 1000):
            left = left[os.write(go_write, left) :]


@functools.cache
def _compiled() -> bytes:
    """
    Compile the launcher once per process. No call waits for the compiler, and nobody can change the
    launcher between two calls.
    """
    return marshal.dumps(
        SourceFileLoader(launch.__name__, launch.__file__).get_code(launch.__name__)
    )


def launcher_words(plan: LaunchPlan, go_read: int, status_write: int) -> Sequence[str]:
    """
    Return the launcher's command line with its source. The supervisor of a job uses it: it cannot
    send compiled code, and it has time. The source is passed as text, because an isolated view does
    not contain the file.
    """
    return (*_PYTHON, "-c", _source(), str(go_read), str(status_write), *_plan_words(plan))


@functools.cache
def _source() -> str:
    return Path(launch.__file__).read_text(encoding="utf-8")


def _plan_words(plan: LaunchPlan) -> Sequence[str]:
    return (
        plan.mode,
        plan.cwd,
        plan.cwd_identity,
        plan.program.path,
        f"{plan.program.device}:{plan.program.inode}",
        plan.filter.hex(),
        str(len(plan.allowed)),
        *plan.allowed,
        str(len(plan.folders)),
        *plan.folders,
        *plan.words,
    )


def wait_until_ready(fd: int) -> str:
    """
    Return the launcher's status for its call: `r` for ready, `n...` for not ready, empty if it died
    or took too long. A launcher that received its call by pipe sends `w` first.
    """
    said = _status(fd, _READY_SECONDS)
    return said if not said.startswith("w") else said[1:] or _status(fd, _READY_SECONDS)


def _status(fd: int, timeout_seconds: float) -> str:
    """Return the status, or an empty text if the launcher died or took too long."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(timeout_seconds * 1000):
        return ""
    return os.read(fd, 4096).decode(errors="replace")
