"""
HOME/jobs: a folder for each job that is a process, with what it says and, once it is over, the word that its supervisor left. See `holdfast.ports.jobs`.

A folder is made by the job's supervisor before the job is submitted, and removed once the job's end is in the journal. One that nobody submitted (a crash came
first) is removed by its supervisor, or, if that was killed too, by whoever lists them a day later.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.adapters.tools import processes
from holdfast.adapters.tools.output import Output
from holdfast.adapters.tools.supervise import CALL, OUTPUT, STATUS
from holdfast.adapters.tools.threads import THREADS
from holdfast.ids import CallId, InstanceId, JobId, job_id
from holdfast.ports.jobs import JobLeft, JobSeen
from holdfast.ports.tools import ProcessFacts, ToolReturned
from holdfast.secrecy import Secret

JOBS = "jobs"
_ID = re.compile(r"j-[a-z2-7]{26}\Z")
_FOLDER = re.compile(r"(j-[a-z2-7]{26})\.\d+\.\d+\Z")
_CUT_OFF = (128 + 15, 128 + 9)  # how bubblewrap, and a shell, tell of a child that a signal ended
_WORD_BYTES_MAX = 16 * 1024
_DEAD_SECONDS = 25 * 3600.0  # no job runs for more than a day, so a folder this old without a word has nobody left who could leave one
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Word(msgspec.Struct, frozen=True):
    """What a supervisor left."""

    ended: str  # exited, timed_out, asked
    status: int
    bytes: int
    failed: str
    at_ms: int


def folder_name(job: JobId, process: ProcessFacts) -> str:
    """As the supervisor names it."""
    return f"{job}.{process.group}.{process.start_time}"


def newest_output(home: str, job: JobId) -> Path | None:
    """What a running job says goes there; of attempts that died before they were submitted something older may be left."""
    found = [*(Path(home) / JOBS).glob(f"{job}.*/{OUTPUT}")] if _ID.match(job) else []
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


class JobFiles:
    """The JobPlace of a home on disk."""

    def __init__(self, home: Path) -> None:
        self._folder = home / JOBS

    async def look(self, job: JobId, process: ProcessFacts, *, secrets: tuple[Secret, ...]) -> JobSeen:
        return await THREADS.run(lambda: self._look(job, process, secrets))

    def _look(self, job: JobId, process: ProcessFacts, secrets: tuple[Secret, ...]) -> JobSeen:
        """The word first, then whether it lives, then the word again: it may have been left in between."""
        folder = folder_name(job, process)
        word = self._word(folder)
        if word is None:
            if processes.lives(process):
                return JobSeen(state="running")
            _reap(process)
            word = self._word(folder)
        if word is None:
            return JobSeen(state="gone")
        _reap(process)
        stopped = word.ended == "asked" and (word.status < 0 or word.status in _CUT_OFF)
        return JobSeen(state="ended", returned=self._returned(folder, word, secrets), was_asked=stopped)

    def _word(self, folder: str) -> Word | None:
        with contextlib.suppress(OSError, ValueError, RecursionError):  # of msgspec among them; a word that can't be read is none
            return msgspec.json.decode(self._read(folder, STATUS, 0, _WORD_BYTES_MAX), type=Word)
        return None

    def _read(self, folder: str, name: str, after: int, bytes_max: int) -> bytes:
        fd = os.open(self._folder / _checked(folder) / name, _READ)
        try:
            return os.pread(fd, bytes_max, after)
        finally:
            os.close(fd)

    def _returned(self, folder: str, word: Word, secrets: tuple[Secret, ...]) -> ToolReturned:
        if word.failed:
            return ToolReturned(outcome="error", text=f"nothing was run: {word.failed}")
        said = Output(secrets=secrets, on_output=lambda _: None)
        with contextlib.suppress(OSError):
            said.feed(self._read(folder, OUTPUT, 0, limits.JOB_OUTPUT_BYTES_MAX))
        said.close()
        dropped = word.bytes - limits.JOB_OUTPUT_BYTES_MAX
        notes = [f"[{dropped} further bytes were dropped]"] if dropped > 0 else []
        if word.ended == "timed_out":
            text, full = said.view("\n".join([*notes, "[ended: its time was over]"]))
            return ToolReturned(outcome="timed_out", text=text, full=full)
        if word.status:
            notes.append(f"[exit {word.status}]" if word.status > 0 else f"[ended by signal {-word.status}]")
        text, full = said.view("\n".join(notes))
        return ToolReturned(outcome="ok" if word.status == 0 else "error", text=text, full=full)

    def lives(self, process: ProcessFacts) -> bool:
        return processes.lives(process)

    def own_process(self) -> ProcessFacts:
        return processes.facts_of(os.getpid())

    def death_of(self, process: ProcessFacts) -> int | None:
        return processes.death_of(process)

    async def output(self, job: JobId, process: ProcessFacts, *, after: int, bytes_max: int) -> bytes:
        with contextlib.suppress(OSError):
            return await THREADS.run(lambda: self._read(folder_name(job, process), OUTPUT, after, bytes_max))
        return b""

    async def ask_to_end(self, process: ProcessFacts) -> None:
        await THREADS.run(lambda: processes.ask_leader(process))

    async def end(self, call: CallId, process: ProcessFacts) -> None:
        await THREADS.run(lambda: processes.end_survivors(call, process))

    async def clear(self, job: JobId) -> None:
        await THREADS.run(lambda: self._clear(job))

    def _clear(self, job: JobId) -> None:
        for folder, its_job in self._folders():
            if its_job == job:
                shutil.rmtree(self._folder / folder, ignore_errors=True)

    async def present(self) -> Sequence[JobId]:
        return await THREADS.run(self._present)

    def _present(self) -> Sequence[JobId]:
        return tuple(sorted({job for folder, job in self._folders() if not self._is_dead(folder)}))

    async def of_life(self, instance: InstanceId) -> Sequence[JobLeft]:
        return await THREADS.run(lambda: self._of_life(instance))

    def _of_life(self, instance: InstanceId) -> Sequence[JobLeft]:
        return [left for folder, job in self._folders() if (left := self._left(folder, job)) is not None and job_id(instance, left.call) == job]

    def _left(self, folder: str, job: JobId) -> JobLeft | None:
        """None where nothing says whose it is: its supervisor has not said so yet, and has let nothing go."""
        _, group, start_time = folder.split(".")
        with contextlib.suppress(OSError, UnicodeError, ValueError):
            boot, call, _ = self._read(folder, CALL, 0, _WORD_BYTES_MAX).decode().split("\n")
            return JobLeft(job=job, call=CallId(call), process=ProcessFacts(boot_id=boot, group=int(group), start_time=int(start_time)))
        return None

    def _folders(self) -> Sequence[tuple[str, JobId]]:
        try:
            found = [_FOLDER.match(name) for name in os.listdir(self._folder)]  # noqa: PTH208  names are enough
        except FileNotFoundError:
            return ()
        return [(match[0], JobId(match[1])) for match in found if match is not None]

    def _is_dead(self, folder: str) -> bool:
        """Never submitted, or its supervisor was killed long ago: removed on the way."""
        with contextlib.suppress(OSError):
            if time.time() - (self._folder / folder).stat().st_mtime > _DEAD_SECONDS and self._word(folder) is None:
                shutil.rmtree(self._folder / folder, ignore_errors=True)
                return True
        return False


def _checked(folder: str) -> str:
    if not _FOLDER.match(folder):
        raise FileNotFoundError(folder)
    return folder


def _reap(process: ProcessFacts) -> None:
    """If it was a child of ours, it is a zombie now; of anyone else's it is not ours to bury."""
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(process.group, os.WNOHANG)
