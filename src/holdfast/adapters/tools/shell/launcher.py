"""
Starts, supervises and ends a command's process group, from this side of the pipes.

`start` returns once the launcher waits, confined and in its folder. `Launched.run` sends the go
byte and stays until the end. After exit, timeout or cancellation, no process of the group and no
process with the call's name is left when it returns. Processes that may still run are reported.
Blocking work runs in owned threads.
"""

import asyncio
import contextlib
import functools
import marshal
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.adapters.tools.shell import launcher_child as launch
from holdfast.adapters.tools.shell.confinement.isolation import data_descriptor
from holdfast.adapters.tools.shell.confinement.seccomp import filter_of
from holdfast.adapters.tools.shell.confinement.view import FILTER
from holdfast.adapters.tools.shell.processes import (
    LeftBehind,
    ask_all_but_leader,
    end_call,
    end_left_behind,
    facts_of,
    signal_group,
)
from holdfast.adapters.tools.shell.programs import Program
from holdfast.adapters.tools.shell.scripts.copy import file_word
from holdfast.adapters.tools.threads import THREADS
from holdfast.errors import InvariantBroken
from holdfast.ids import CallId
from holdfast.ports.tools import CannotBind, OnOutput, ProcessFacts

_READY_SECONDS = 20.0  # a launcher needs 10 ms; a machine that needs this long cannot run anything
_GRACE_SECONDS = 2.0  # between asking a group to end and killing it
# for killed processes to go; after that, another process holds the output and is searched for
_LETTING_GO_SECONDS = 0.2
_READ_BYTES = 64 * 1024
_PIPE_BYTES_MAX = 1024 * 1024  # the largest pipe that an unprivileged process can make

_PROCESSES_APART = "--unshare-pid"  # bubblewrap's option for a pid namespace

# isolated: behind bubblewrap, which has confined it. limited: by Landlock and its own filter.
# plain: no confinement.
Mode = Literal["isolated", "limited", "plain"]
Ended = Literal["exited", "timed_out"]


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


Take = Callable[[tuple[str, ...]], Waiting | None]
"""
A spare launcher behind these words of bubblewrap, if one is kept; whoever takes it has it alone.
"""


async def start(make_plan: Callable[[], LaunchPlan], take: Take | None = None) -> "Launched":
    """Start a launcher. Raise CannotBind if it cannot get ready; then nothing ran."""
    return await started(lambda: _start(make_plan(), take))


class _Waits(Protocol):
    async def abandon(self) -> None: ...


_W = TypeVar("_W", bound=_Waits)


async def started(work: Callable[[], _W]) -> _W:
    """
    Start `work` in an owned thread. A caller that is cancelled meanwhile, however often, leaves no
    waiting process behind and stays cancelled.
    """
    starting = asyncio.ensure_future(THREADS.run(work))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _finish(_abandon(starting))
        raise


async def _abandon(starting: "asyncio.Future[_W]") -> None:
    with contextlib.suppress(CannotBind):  # nothing was started
        await (await starting).abandon()


def _start(plan: LaunchPlan, take: Take | None) -> "Launched":
    spare = take(plan.prefix) if take is not None and not plan.files else None
    if spare is not None:
        launched = Launched(plan, spare)
        if _tell(spare, plan) == "r":
            return launched
        # The spare was ended by somebody, or its surroundings have changed. A launcher that is
        # started now reports the problem, if there is one.
        launched.give_up()
    waiting = spawn(plan.prefix, plan.environment, plan.files)
    launched = Launched(plan, waiting)
    said = _tell(waiting, plan)
    if said == "r":
        return launched
    output = launched.give_up()
    raise CannotBind(f"the command can't be started: {said[1:] or output or 'the launcher died'}")


def spawn(
    prefix: tuple[str, ...], environment: dict[str, str], files: Sequence[bytes] = ()
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

    waiting = begin(words, environment, output=subprocess.PIPE, what="command", files=files)
    os.set_blocking(waiting.go_write, False)  # a user with very many pipes gets small ones
    _send(waiting.go_write, _compiled())
    return waiting


def begin(
    words: Callable[[int, int], Sequence[str]],
    environment: Mapping[str, str],
    *,
    output: int,
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
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
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
_BOOT = """# shell/launcher_child.py of holdfast: waits for a call and for one byte, then becomes the command
import marshal, posix
code = b""
while len(code) < {length}:
    piece = posix.read({go}, {length} - len(code))
    if not piece:
        posix._exit(124)
    code += piece
exec(marshal.loads(code))
"""


def _tell(waiting: Waiting, plan: LaunchPlan) -> str:
    """Send the call down the pipe that later carries the go byte. Return the launcher's status."""
    variables = [f"{name}={value}" for name, value in plan.environment.items()]
    told = b"\0".join(map(os.fsencode, (str(len(variables)), *variables, *_plan_words(plan))))
    _send(waiting.go_write, len(told).to_bytes(8, sys.byteorder) + told)
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


class Launched:
    """A waiting launcher. `run` or `abandon` ends it, whichever comes first, and only once."""

    def __init__(self, plan: LaunchPlan, waiting: Waiting) -> None:
        self._call = plan.call
        self.has_files = bool(plan.files)
        self.prefix = (
            plan.prefix
        )  # if not empty, the leader is bubblewrap, which ends with the command inside it
        self._process = waiting.process
        self._go_write = (
            waiting.go_write
        )  # closed by `_say_go` or `give_up`; while it is open, the launcher waits
        self._status_read = waiting.status_read
        self._spent = False
        self._said = (
            ""  # the launcher's message after the go byte: why it could not become the command
        )
        self.left = LeftBehind()
        self.facts: ProcessFacts = facts_of(waiting.process.pid)

    async def run(self, *, timeout_seconds: float, on_output: OnOutput) -> tuple[Ended, int]:
        """
        Return (how it ended, exit status). The whole group is gone when this returns or raises.
        """
        if self._spent:
            raise InvariantBroken("a launched command was started twice, or after it was abandoned")
        self._spent = True
        pipe = self._process.stdout
        assert pipe is not None  # noqa: S101  for the type checker: it was asked for
        os.set_blocking(pipe.fileno(), False)
        self._say_go()
        loop = asyncio.get_running_loop()
        loop.add_reader(pipe.fileno(), _read_some, loop, pipe.fileno(), on_output)
        ended: Ended = "exited"
        try:
            async with asyncio.timeout(timeout_seconds):
                await _wait_until_exit(self._process)
            if await self._end_left(pipe.fileno()):
                raise asyncio.CancelledError  # noqa: TRY301  it came meanwhile
        except TimeoutError:
            ended = "timed_out"
            if await _finish(self._end()):
                raise asyncio.CancelledError from None
        except asyncio.CancelledError:
            await _finish(self._end())
            raise
        finally:
            loop.remove_reader(pipe.fileno())
            # The command is not reaped yet, so its number is still its own. Processes that it left
            # in its group end with it.
            signal_group(self._process.pid, signal.SIGKILL)
            status = self._process.wait()
            _read_rest(pipe.fileno(), on_output)
            pipe.close()
            if self._status_has_words():
                self._said = os.read(self._status_read, 4096).decode(errors="replace") or self._said
            os.close(self._status_read)
        return ended, status

    @property
    def failed_to_exec(self) -> str:
        """The launcher's message if it could not become the command."""
        return self._said[1:]

    def _say_go(self) -> None:
        try:
            os.write(self._go_write, b"g")
        except BrokenPipeError:
            self._said = "nthe launcher was ended by somebody"  # it never got the byte
        finally:
            os.close(self._go_write)

    async def abandon(self) -> None:
        if not self._spent:
            await THREADS.run(self.give_up)

    def give_up(self) -> str:
        """End a launcher that never got its byte. Return its or bubblewrap's message."""
        if self._spent:
            return ""
        self._spent = True
        os.close(self._go_write)
        signal_group(self._process.pid, signal.SIGKILL)
        output, _ = self._process.communicate()
        os.close(self._status_read)
        return output.decode(errors="replace")[:400].strip()

    async def _end_left(self, output: int) -> bool:
        """
        End the processes that the command left in its group, and those that escaped from it. Return
        whether this task was cancelled meanwhile.
        """
        signal_group(self._process.pid, signal.SIGKILL)
        if (
            _PROCESSES_APART in self.prefix
        ):  # every process in the namespace ended with its first process
            return False
        return await _finish(THREADS.run(lambda: self._search(output)))

    def _search(self, output: int) -> None:
        """
        Walk once over all processes that began after the launcher, and once more if a process still
        holds the output.
        """
        self.left = end_left_behind(self._call, self.facts)
        if self.left.ended and not _is_let_go(output, _LETTING_GO_SECONDS):
            end_call(self._call, self._process.pid)

    async def _end(self) -> None:
        """Ask the group to end, then kill it and every process with the call's name."""
        if self.prefix:
            await THREADS.run(lambda: ask_all_but_leader(self._process.pid))
        else:
            signal_group(self._process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await _wait_until_exit(self._process)
        except TimeoutError:
            pass
        await THREADS.run(lambda: end_call(self._call, self._process.pid))
        await _wait_until_exit(self._process)
        if _PROCESSES_APART not in self.prefix:
            self.left = await THREADS.run(lambda: end_left_behind(self._call, self.facts))

    def _status_has_words(self) -> bool:
        """
        Return whether the status pipe has data or has ended. This uses `poll`, because `select`
        cannot handle descriptors above 1,023, and a server may have many followers.
        """
        poll = select.poll()
        poll.register(self._status_read, select.POLLIN)
        return bool(poll.poll(0))


async def _finish(ending: Coroutine[None, None, None]) -> bool:
    """Run to the end, however often this task is cancelled meanwhile. Return whether it was."""
    task = asyncio.ensure_future(ending)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    return cancelled


async def _wait_until_exit(process: "subprocess.Popen[bytes]") -> None:
    """
    Wait until the process is dead. It is not reaped yet, so its number and its group stay its own.
    """
    if not hasattr(os, "pidfd_open"):  # macOS
        await THREADS.run(lambda: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT))
        return
    loop = asyncio.get_running_loop()
    dead: asyncio.Future[None] = loop.create_future()
    fd = os.pidfd_open(process.pid)
    loop.add_reader(fd, _settle, dead)
    try:
        await dead
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _is_let_go(fd: int, seconds: float) -> bool:
    """Return whether the other end of the pipe is closed, now or within this time."""
    poll = select.poll()
    poll.register(fd, 0)  # POLLHUP is always reported; readable data is not requested
    return any(events & select.POLLHUP for _, events in poll.poll(seconds * 1000))


def _settle(dead: "asyncio.Future[None]") -> None:
    if not dead.done():
        dead.set_result(None)


def _read_some(loop: asyncio.AbstractEventLoop, fd: int, on_output: OnOutput) -> None:
    try:
        chunk = os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return
    if chunk:
        on_output(chunk)
    else:
        loop.remove_reader(fd)


def _read_rest(fd: int, on_output: OnOutput) -> None:
    """
    Read the rest of the pipe. A process that still holds its other end has left the group. It may
    write without end, so this does not wait for it.
    """
    left = _PIPE_BYTES_MAX
    while left > 0:
        try:
            chunk = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            return
        on_output(chunk)
        left -= len(chunk)
