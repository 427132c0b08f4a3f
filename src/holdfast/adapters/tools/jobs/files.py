"""
HOME/jobs: one folder for each job that is a process. It holds the job's output and, after the end,
the report of its supervisor. See `holdfast.ports.jobs`.

No file is trusted because of its place in a folder: see `jobs/report.py`.

The job's supervisor creates the folder before the job is submitted. The folder is removed once the
job's end is in the journal. If a crash prevented the submission, the supervisor removes it. If the
supervisor was killed too, a process that lists the jobs a day later removes it.
"""

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast import limits
from holdfast.adapters.tools.jobs.report import (
    REPORT_BYTES_MAX,
    Report,
    generation_of,
    is_as_reported,
    returned_by,
    verified,
)
from holdfast.adapters.tools.jobs.supervisor import CALL, OUTPUT, STATUS
from holdfast.adapters.tools.shell import processes
from holdfast.ids import CallId, InstanceId, JobId, job_id
from holdfast.ports.jobs import JobKey, JobLeft, JobSeen
from holdfast.ports.tools import ProcessFacts
from holdfast.secrecy import Secret
from holdfast.threads import BLOCKING

JOBS = "jobs"
_FOLDER = re.compile(r"(j-[a-z2-7]{26})\.\d+\.\d+\Z")
_DEAD_SECONDS = (
    25 * 3600.0
    # No job runs for more than a day. No supervisor is left to report to a folder this old.
)
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


JobKeys = Callable[[InstanceId, JobId, int | None], JobKey | None]
"""
The key of a job's report: of that generation of home keys, or of the newest for a new job. None:
the home key is not there.
"""


def folder_name(job: JobId, process: ProcessFacts) -> str:
    """Return the folder name that the supervisor uses."""
    return f"{job}.{process.group}.{process.start_time}"


def unverified_end(home: str, job: JobId, process: ProcessFacts, bytes_max: int) -> bytes:
    """
    Return the last bytes of a running job's output. They are not verified: any program that may
    write into the home can have changed them.
    """
    fd = _open(Path(home) / JOBS, folder_name(job, process), OUTPUT)
    try:
        return os.pread(fd, bytes_max, max(0, os.fstat(fd).st_size - bytes_max))
    finally:
        os.close(fd)


class JobFiles:
    """The JobPlace of a home on disk."""

    def __init__(self, home: Path, keys: JobKeys) -> None:
        self._folder = home / JOBS
        self._keys = keys

    def key_of(self, instance: InstanceId, job: JobId) -> JobKey | None:
        return self._keys(instance, job, None)

    async def inspect(
        self,
        job: JobId,
        process: ProcessFacts,
        *,
        instance: InstanceId,
        secrets: tuple[Secret, ...],
    ) -> JobSeen:
        return await BLOCKING.call(lambda: self._inspect(job, process, instance, secrets))

    def _inspect(
        self, job: JobId, process: ProcessFacts, instance: InstanceId, secrets: tuple[Secret, ...]
    ) -> JobSeen:
        """
        Read the report, then check whether the supervisor is alive, then read the report again: the
        supervisor may have written it in between.
        """
        report = self._report(job, process, instance)
        if report is None:
            if processes.is_alive(process):
                return JobSeen(state="running")
            report = self._report(job, process, instance)
        _reap(process)
        if report is None:
            return JobSeen(state="gone", why=self._why_gone(folder_name(job, process)))
        output = b"" if report.failed else self._whole_output(folder_name(job, process))
        if output is None or (not report.failed and not is_as_reported(output, report)):
            why = (
                f"its supervisor reports `{report.said()}`, but the output was changed after it was"
                " written, and is not shown"
            )
            return JobSeen(state="gone", why=why)
        return JobSeen(
            state="ended",
            returned=returned_by(report, output, secrets),
            was_asked=report.was_cut_off,
        )

    def _report(self, job: JobId, process: ProcessFacts, instance: InstanceId) -> Report | None:
        try:
            raw = self._read(folder_name(job, process), STATUS, 0, REPORT_BYTES_MAX)
        except OSError:
            return None
        generation = generation_of(raw)
        key = self._keys(instance, job, generation) if generation is not None else None
        return verified(raw, key.secret, job, process) if key is not None else None

    def _why_gone(self, folder: str) -> str:
        with contextlib.suppress(OSError):
            os.lstat(self._folder / _checked(folder) / STATUS)
            return (
                "its process is gone, and the report in its place does not verify: somebody else"
                " wrote or changed it"
            )
        return "its process is gone, and left no report how it ended"

    def _whole_output(self, folder: str) -> bytes | None:
        """Return None if the output is no longer a regular file."""
        try:
            return self._read(folder, OUTPUT, 0, limits.JOB_OUTPUT_BYTES_MAX + 1)
        except OSError:
            return None

    def _read(self, folder: str, name: str, after: int, bytes_max: int) -> bytes:
        fd = _open(self._folder, _checked(folder), name)
        try:
            return os.pread(fd, bytes_max, after)
        finally:
            os.close(fd)

    def is_alive(self, process: ProcessFacts) -> bool:
        return processes.is_alive(process)

    def own_process(self) -> ProcessFacts:
        return processes.facts_of(os.getpid())

    def death_of(self, process: ProcessFacts) -> int | None:
        return processes.death_of(process)

    async def output(
        self, job: JobId, process: ProcessFacts, *, after: int, bytes_max: int
    ) -> bytes:
        with contextlib.suppress(OSError):
            return await BLOCKING.call(
                lambda: self._read(folder_name(job, process), OUTPUT, after, bytes_max)
            )
        return b""

    async def ask_to_end(self, process: ProcessFacts) -> None:
        await BLOCKING.call(lambda: processes.ask_leader(process))

    async def end(self, call: CallId, process: ProcessFacts) -> None:
        await BLOCKING.call(lambda: processes.end_survivors(call, process))

    async def clear(self, job: JobId) -> None:
        await BLOCKING.call(lambda: self._clear(job))

    def _clear(self, job: JobId) -> None:
        for folder, its_job in self._folders():
            if its_job == job:
                shutil.rmtree(self._folder / folder, ignore_errors=True)

    async def present(self) -> Sequence[JobId]:
        return await BLOCKING.call(self._present)

    def _present(self) -> Sequence[JobId]:
        return tuple(sorted({job for folder, job in self._folders() if not self._is_dead(folder)}))

    async def of_instance(self, instance: InstanceId) -> Sequence[JobLeft]:
        return await BLOCKING.call(lambda: self._of_instance(instance))

    def _of_instance(self, instance: InstanceId) -> Sequence[JobLeft]:
        return [
            left
            for folder, job in self._folders()
            if (left := self._left(folder, job)) is not None and job_id(instance, left.call) == job
        ]

    def _left(self, folder: str, job: JobId) -> JobLeft | None:
        """
        Return None if the folder does not name its call. The supervisor has then not written it
        yet, and no command has started.
        """
        _, group, start_time = folder.split(".")
        with contextlib.suppress(OSError, UnicodeError, ValueError):
            boot, call, _ = self._read(folder, CALL, 0, REPORT_BYTES_MAX).decode().split("\n")
            return JobLeft(
                job=job,
                call=CallId(call),
                process=ProcessFacts(boot_id=boot, group=int(group), start_time=int(start_time)),
            )
        return None

    def _folders(self) -> Sequence[tuple[str, JobId]]:
        try:
            found = [_FOLDER.match(name) for name in os.listdir(self._folder)]  # noqa: PTH208  names are enough
        except FileNotFoundError:
            return ()
        return [(match[0], JobId(match[1])) for match in found if match is not None]

    def _is_dead(self, folder: str) -> bool:
        """
        Delete the leftover of a job that was never submitted or whose supervisor died long ago.
        """
        with contextlib.suppress(OSError):
            if time.time() - (
                self._folder / folder
            ).stat().st_mtime > _DEAD_SECONDS and not self._has_report(folder):
                shutil.rmtree(self._folder / folder, ignore_errors=True)
                return True
        return False

    def _has_report(self, folder: str) -> bool:
        """
        Return whether there is a file that may be a report. The session that reads it verifies it.
        """
        with contextlib.suppress(OSError):
            return generation_of(self._read(folder, STATUS, 0, REPORT_BYTES_MAX)) is not None
        return False


def _open(jobs: Path, folder: str, name: str) -> int:
    """
    Open a regular file of a job's folder by descriptors and without links. A file with a second
    name elsewhere is refused.
    """
    places = [os.open(jobs, _FOLDER_FLAGS)]
    try:
        places.append(os.open(folder, _FOLDER_FLAGS, dir_fd=places[0]))
        fd = os.open(name, _READ, dir_fd=places[1])
    finally:
        for each in places:
            os.close(each)
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        os.close(fd)
        raise FileNotFoundError(name)
    return fd


def _checked(folder: str) -> str:
    if not _FOLDER.match(folder):
        raise FileNotFoundError(folder)
    return folder


def _reap(process: ProcessFacts) -> None:
    """
    Reap our own child, which is a zombie now. A process that is not our child cannot be reaped
    here.
    """
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(process.group, os.WNOHANG)
