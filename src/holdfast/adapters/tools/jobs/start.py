"""
Starts a command as a job: the launcher of `shell/launcher.py` under a supervisor that outlives this
process. Both block until they receive the go byte.

`start_job` returns once the launcher waits, confined and in its folder, and the supervisor waits
with it. Before the byte, everything ends with this process; after it, nothing does. Together with
the byte, the supervisor receives the key for its report. The key comes by pipe, never in an
argument, an environment or a file.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast import limits
from holdfast.adapters.tools.jobs import supervisor as supervise
from holdfast.adapters.tools.jobs.files import JOBS
from holdfast.adapters.tools.jobs.supervisor import go_message
from holdfast.adapters.tools.shell.environment import TOOL_VARIABLE
from holdfast.adapters.tools.shell.launcher import started
from holdfast.adapters.tools.shell.launcher_pipes import (
    LaunchPlan,
    StandardStreams,
    begin,
    launcher_words,
    wait_until_ready,
)
from holdfast.adapters.tools.shell.processes import end_call, facts_of
from holdfast.errors import InvariantBroken
from holdfast.ids import JobId
from holdfast.ports.jobs import JobKey
from holdfast.ports.tools import CannotBind, ProcessFacts
from holdfast.threads import BLOCKING

_SCRIPT = str(Path(supervise.__file__).resolve())


async def start_job(
    plan: LaunchPlan,
    home: str,
    job: JobId,
    key: JobKey,
    *,
    seconds: float,
    is_unchanged: Callable[[], bool],
) -> "LaunchedJob":
    """
    Raise CannotBind if the job cannot get ready; then nothing ran. `is_unchanged` is called right
    before the go byte.
    """
    return await started(lambda: _start(plan, home, job, key, seconds, is_unchanged))


def _start(
    plan: LaunchPlan,
    home: str,
    job: JobId,
    key: JobKey,
    seconds: float,
    is_unchanged: Callable[[], bool],
) -> "LaunchedJob":
    place = str(Path(home) / JOBS / job)
    bounds = [
        str(seconds),
        str(limits.JOB_OUTPUT_BYTES_MAX),
        "wrapped" if plan.prefix else "bare",
        f"{TOOL_VARIABLE}={plan.call}",
    ]

    def words(go: int, status: int) -> list[str]:
        supervisor = [
            os.path.realpath(sys.executable),
            "-I",
            "-S",
            _SCRIPT,
            str(go),
            str(status),
            place,
            *bounds,
        ]
        return [*supervisor, *plan.prefix, *launcher_words(plan, go, status)]

    # The supervisor does not carry the call's variable. Ending processes by the call's name leaves
    # it alive, so that it can report the end.
    environment = {name: value for name, value in plan.environment.items() if name != TOOL_VARIABLE}
    process, go, status = begin(
        words,
        environment,
        streams=StandardStreams(output=subprocess.DEVNULL),
        what="job",
        files=plan.files,
    )
    launched = LaunchedJob(plan, key, process, go, seconds=seconds, is_unchanged=is_unchanged)
    said = wait_until_ready(status)
    os.close(status)
    if said == "r":
        return launched
    launched.give_up()
    raise CannotBind(f"the job can't be started: {said[1:] or 'its supervisor died'}")


class LaunchedJob:
    """A waiting job. It is let go or abandoned, whichever comes first, and only once."""

    def __init__(
        self,
        plan: LaunchPlan,
        key: JobKey,
        process: "subprocess.Popen[bytes]",
        go_write: int,
        *,
        seconds: float,
        is_unchanged: Callable[[], bool],
    ) -> None:
        self._call = plan.call
        self._key = key
        self._process = process
        self._go_write = go_write  # while it is open, the supervisor waits
        self._is_unchanged = is_unchanged
        self._spent = False
        self.seconds_max = seconds
        self.process: ProcessFacts = facts_of(process.pid)

    async def let_go(self) -> None:
        if self._spent:
            raise InvariantBroken("a job was let go twice, or after it was abandoned")
        try:
            unchanged = await BLOCKING.call(self._is_unchanged)
        except BaseException:
            await self.abandon()
            raise
        if not unchanged:
            await self.abandon()
            raise CannotBind("the folder, a program or a script changed after this was approved")
        self._spent = True
        try:
            os.write(self._go_write, go_message(*self._key))
        except BrokenPipeError:
            raise CannotBind("its supervisor was ended by somebody") from None
        finally:
            os.close(self._go_write)
            # The job no longer belongs to this program. Its watcher reaps it.
            self._process.returncode = 0

    async def abandon(self) -> None:
        if not self._spent:
            await BLOCKING.call(self.give_up)

    def give_up(self) -> None:
        """Close the pipe. The supervisor then ends the launcher, removes the folder and exits."""
        if self._spent:
            return
        self._spent = True
        os.close(self._go_write)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            end_call(self._call, self._process.pid)
            self._process.wait()
