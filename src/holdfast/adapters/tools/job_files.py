"""
HOME/jobs: a folder for each job that is a process, with what it says and, once it is over, the word that its supervisor left. See `holdfast.ports.jobs`.

A folder is made before its job is submitted and removed once the job's end is in the journal. One that nobody submitted (a crash came first) is removed by its
supervisor, or, if that was killed too, by whoever lists them a day later.
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
from holdfast.adapters.tools.supervise import OUTPUT, STATUS
from holdfast.adapters.tools.threads import THREADS
from holdfast.ids import CallId, JobId
from holdfast.ports.jobs import JobSeen
from holdfast.ports.tools import CannotBind, ProcessFacts, ToolReturned

JOBS = "jobs"
_JOB = re.compile(r"j-[a-z2-7]{26}\Z")
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


def make_folder(home: str, job: JobId) -> str:
    """A new folder for a job, ours alone. Raises CannotBind: without it nothing is started."""
    parent = Path(home) / JOBS
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
        folder = parent / job
        folder.mkdir(mode=0o700)
    except OSError as exc:
        raise CannotBind(f"the job's folder can't be made: {exc.strerror}") from exc
    return str(folder)


class JobFiles:
    """The JobPlace of a home on disk."""

    def __init__(self, home: Path) -> None:
        self._folder = home / JOBS

    async def look(self, job: JobId, process: ProcessFacts, *, secrets: tuple[str, ...]) -> JobSeen:
        return await THREADS.run(lambda: self._look(job, process, secrets))

    def _look(self, job: JobId, process: ProcessFacts, secrets: tuple[str, ...]) -> JobSeen:
        """The word first, then whether it lives, then the word again: it may have been left in between."""
        word = self._word(job)
        if word is None:
            if processes.lives(process):
                return JobSeen(state="running")
            _reap(process)
            word = self._word(job)
        if word is None:
            return JobSeen(state="gone")
        _reap(process)
        stopped = word.ended == "asked" and word.status < 0
        return JobSeen(state="ended", returned=self._returned(job, word, secrets), was_asked=stopped)

    def _word(self, job: JobId) -> Word | None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(self._read(job, STATUS, 0, _WORD_BYTES_MAX), type=Word)
        return None

    def _read(self, job: JobId, name: str, after: int, bytes_max: int) -> bytes:
        fd = os.open(self._folder / _checked(job) / name, _READ)
        try:
            return os.pread(fd, bytes_max, after)
        finally:
            os.close(fd)

    def _returned(self, job: JobId, word: Word, secrets: tuple[str, ...]) -> ToolReturned:
        if word.failed:
            return ToolReturned(outcome="error", text=f"nothing was run: {word.failed}")
        said = Output(secrets=secrets, on_output=lambda _: None)
        with contextlib.suppress(OSError):
            said.feed(self._read(job, OUTPUT, 0, limits.JOB_OUTPUT_BYTES_MAX))
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

    async def output(self, job: JobId, *, after: int, bytes_max: int) -> bytes:
        with contextlib.suppress(OSError):
            return await THREADS.run(lambda: self._read(job, OUTPUT, after, bytes_max))
        return b""

    async def ask_to_end(self, process: ProcessFacts) -> None:
        await THREADS.run(lambda: processes.ask_leader(process))

    async def end(self, call: CallId, process: ProcessFacts) -> None:
        await THREADS.run(lambda: processes.end_survivors(call, process))

    async def clear(self, job: JobId) -> None:
        await THREADS.run(lambda: shutil.rmtree(self._folder / _checked(job), ignore_errors=True))

    async def present(self) -> Sequence[JobId]:
        return await THREADS.run(self._present)

    def _present(self) -> Sequence[JobId]:
        try:
            found = [JobId(name) for name in sorted(os.listdir(self._folder)) if _JOB.match(name)]  # noqa: PTH208  names are enough
        except FileNotFoundError:
            return ()
        return tuple(job for job in found if not self._is_dead(job))

    def _is_dead(self, job: JobId) -> bool:
        """Never submitted, or its supervisor was killed long ago: removed on the way."""
        folder = self._folder / job
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _DEAD_SECONDS and self._word(job) is None:
                shutil.rmtree(folder, ignore_errors=True)
                return True
        return False


def _checked(job: JobId) -> str:
    if not _JOB.match(job):
        raise FileNotFoundError(job)
    return job


def _reap(process: ProcessFacts) -> None:
    """If it was a child of ours, it is a zombie now; of anyone else's it is not ours to bury."""
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(process.group, os.WNOHANG)
