"""
Starts, supervises and ends a command's process group, from this side of the pipes.

`start` returns once the launcher waits, confined and in its folder. `Launched.run` sends the go
byte and stays until the end. After exit, timeout or cancellation, no process of the group and no
process with the call's name is left when it returns. Processes that may still run are reported.
Blocking work runs in owned threads.
"""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Coroutine
from typing import Literal, Protocol, TypeVar

from holdfast.adapters.tools.shell.launcher_pipes import LaunchPlan, Waiting, spawn, tell
from holdfast.adapters.tools.shell.processes import (
    LeftBehind,
    ask_all_but_leader,
    end_call,
    end_left_behind,
    facts_of,
    signal_group,
)
from holdfast.errors import InvariantBroken
from holdfast.ports.tools import CannotBind, OnOutput, ProcessFacts
from holdfast.threads import BLOCKING

_GRACE_SECONDS = 2.0  # between asking a group to end and killing it
# for killed processes to go; after that, another process holds the output and is searched for
_LETTING_GO_SECONDS = 0.2
_READ_BYTES = 64 * 1024
_PIPE_BYTES_MAX = 1024 * 1024  # the largest pipe that an unprivileged process can make
_PROCESSES_APART = "--unshare-pid"  # bubblewrap's option for a pid namespace
Ended = Literal["exited", "timed_out"]


async def start(make_plan: Callable[[], LaunchPlan]) -> "Launched":
    """Start a launcher. Raise CannotBind if it cannot get ready; then nothing ran."""
    return await started(lambda: _start(make_plan()))


class _Waits(Protocol):
    async def abandon(self) -> None: ...


_W = TypeVar("_W", bound=_Waits)


async def started(work: Callable[[], _W]) -> _W:
    """
    Start `work` in an owned thread. A caller that is cancelled meanwhile, however often, leaves no
    waiting process behind and stays cancelled.
    """
    starting = asyncio.ensure_future(BLOCKING.call(work))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _finish(_abandon(starting))
        raise


async def _abandon(starting: "asyncio.Future[_W]") -> None:
    with contextlib.suppress(CannotBind):  # nothing was started
        await (await starting).abandon()


def _start(plan: LaunchPlan) -> "Launched":
    waiting = spawn(plan.prefix, plan.environment, plan.files)
    launched = Launched(plan, waiting)
    said = tell(waiting, plan)
    if said == "r":
        return launched
    output = launched.give_up()
    raise CannotBind(f"the command can't be started: {said[1:] or output or 'the launcher died'}")


class Launched:
    """A waiting launcher. `run` or `abandon` ends it, whichever comes first, and only once."""

    def __init__(self, plan: LaunchPlan, waiting: Waiting) -> None:
        self._call = plan.call
        self.prefix = (
            plan.prefix
        )  # if not empty, the leader is bubblewrap, which ends with the command inside it
        self._process = waiting.process
        self._go_write = (
            waiting.go_write
        )  # closed by `_say_go` or `give_up`; while it is open, the launcher waits
        self._status_read = waiting.status_read
        self._spent = False
        # The launcher's message after the go byte: why it could not become the command.
        self._said = ""
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
            await BLOCKING.call(self.give_up)

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
        return await _finish(BLOCKING.call(lambda: self._search(output)))

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
            await BLOCKING.call(lambda: ask_all_but_leader(self._process.pid))
        else:
            signal_group(self._process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await _wait_until_exit(self._process)
        except TimeoutError:
            pass
        await BLOCKING.call(lambda: end_call(self._call, self._process.pid))
        await _wait_until_exit(self._process)
        if _PROCESSES_APART not in self.prefix:
            self.left = await BLOCKING.call(lambda: end_left_behind(self._call, self.facts))

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
        await BLOCKING.call(lambda: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT))
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
