"""
Jobs as processes: let go once, alive after their driver, within their bounds, kept out of the home,
and never mistaken for another.
"""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.adapters.tools.adversary import (
    COMMAND,
    MECHANISM,
    OPEN_IF_LIMITED,
    PACKAGES,
    needs,
    open_folder,
    system_python,
    world_in,
)
from tests.adapters.tools.conftest import KEY, Place, encode
from tests.adapters.tools.conftest import run as run_tool
from tests.adapters.tools.test_shell import sleepers

__all__ = ["open_folder"]

from holdfast.adapters.tools.jobs import supervisor as supervise
from holdfast.adapters.tools.jobs import tools as job_tools
from holdfast.adapters.tools.jobs.files import STATUS, JobFiles, folder_name
from holdfast.adapters.tools.jobs.report import verified
from holdfast.adapters.tools.shell import processes
from holdfast.adapters.tools.shell.confinement.levels import MECHANISMS
from holdfast.adapters.tools.shell.shell import Shell
from holdfast.ids import InstanceId, JobId
from holdfast.journal.chain import subkey
from holdfast.ports.jobs import JobKey, JobSeen
from holdfast.ports.tools import CannotBind, JobFacts, ProcessFacts, RunsInBackground

JOB = JobId("j-" + "b" * 26)
INSTANCE = InstanceId("i-1")
NOBODY = 65534
OTHER = JobId("j-" + "a" * 26)  # of `job_process.py`
DEADLINE_SECONDS = 60.0  # for what takes a second


def key_of(instance: InstanceId, job: JobId, generation: int | None = None) -> JobKey | None:
    """As a store would derive it; see `job_process.py`."""
    return (
        JobKey(1, subkey(b"k" * 32, "job report", job, instance))
        if generation in (None, 1)
        else None
    )


def files_of(place: Place) -> JobFiles:
    return JobFiles(place.home, key_of)


def arguments_of(shell: Shell, command: str, **more: Any) -> bytes:
    return shell.validate(encode(command=command, background=True, **more))


class Job:
    """One job, from its making to its end."""

    def __init__(
        self,
        place: Place,
        command: str,
        *,
        mechanisms: Any = MECHANISMS,
        seconds: float = 60.0,
        **more: Any,
    ) -> None:
        self.place, self.files = place, files_of(place)
        self.shell = Shell(mechanisms=mechanisms)
        self.scene = place.scene()
        self.arguments = arguments_of(self.shell, command, **more)
        self.binding = self.shell.bind(self.arguments, self.scene)
        self.seconds = seconds
        self.process: ProcessFacts | None = None

    async def ready(self) -> Any:
        prepared = await self.shell.prepare_job(
            self.arguments,
            self.binding,
            self.scene,
            job=JOB,
            key=key_of(INSTANCE, JOB),
            seconds=self.seconds,
        )
        self.process = prepared.process
        return prepared

    async def over(self, secrets: tuple[str, ...] = ()) -> JobSeen:
        """Wait on the supervisor's death, then look."""
        assert self.process is not None
        await died(self.process)
        return await self.files.inspect(JOB, self.process, instance=INSTANCE, secrets=secrets)

    async def whole(self, secrets: tuple[str, ...] = ()) -> JobSeen:
        await (await self.ready()).let_go()
        return await self.over(secrets)


async def died(process: ProcessFacts) -> None:
    fd = processes.death_of(process)
    if fd is None:
        return
    try:
        ready = await asyncio.to_thread(select.select, [fd], [], [], DEADLINE_SECONDS)
        assert ready[0], "it lives on"
    finally:
        os.close(fd)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def folders(place: Place) -> list[Path]:
    return sorted((place.home / "jobs").iterdir()) if (place.home / "jobs").exists() else []


def test_nothing_runs_before_the_byte_and_nothing_after_abandon(place: Place) -> None:
    """T1: it waits, confined and in its folder, and leaves nothing behind."""

    async def story() -> None:
        job = Job(place, "echo ran > ran.txt")
        prepared = await job.ready()
        assert len(folders(place)) == 1
        assert (
            await job.files.inspect(JOB, prepared.process, instance=INSTANCE, secrets=())
        ).state == "running"
        await prepared.abandon()
        await prepared.abandon()
        assert (
            await job.files.inspect(JOB, prepared.process, instance=INSTANCE, secrets=())
        ).state == "gone"

    run(story())
    assert (folders(place), (place.workspace / "ran.txt").exists()) == ([], False)


@pytest.mark.parametrize("mechanism", ["landlock", "bubblewrap"])
def test_no_process_of_a_job_survives_its_reported_end(place: Place, mechanism: Any) -> None:
    """
    Not what left its group and let go of everything, nor what hides its name, nor what those have
    started in turn.
    """
    mark = f"1000.{os.getpid()}6"
    (place.workspace / "inner").write_text(f"echo up > up; exec sleep {mark}")
    (place.workspace / "outer").write_text(f"setsid sh inner & exec sleep {mark}")
    command = "mkfifo up; env -i PATH=$PATH setsid sh outer < /dev/null > /dev/null 2>&1 & (true &); read word < up"

    async def story() -> None:
        seen = await Job(place, command, mechanisms=(mechanism,)).whole()
        assert seen.returned is not None
        assert (seen.state, seen.returned.outcome) == ("ended", "ok")
        # Behind bubblewrap they end with their namespace, and nobody has to look for them.
        left = "[ended with it: 2 that it had left behind: sleep]"
        assert seen.returned.text == (left if mechanism == "landlock" else "")

    run(story())
    assert sleepers(mark) == []


REAPING = """
import os
from holdfast.adapters.tools.jobs import supervisor as supervise

read, write = os.pipe()
command = os.fork()
if not command:
    os.close(write)
    os.read(read, 1)
    os._exit(3)
left = [os.fork() or os._exit(0) for _ in range(3)]
for each in left:
    os.waitid(os.P_PID, each, os.WEXITED | os.WNOWAIT)
supervise._reap_orphans(command)
os.close(write)
os.waitid(os.P_PID, command, os.WEXITED | os.WNOWAIT)
supervise._reap_orphans(command)
print(os.waitpid(-1, 0)[0] == command)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("nobody else")
"""


def test_the_supervisor_reaps_orphans_of_a_job_while_the_job_runs() -> None:
    """
    One that runs for days may leave many: each would keep its number. The command's own end is left
    to be told.
    """
    done = subprocess.run(
        [sys.executable, "-c", REAPING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nnobody else\n", "")


def test_a_jobs_output_and_outcome_are_kept_until_they_are_cleared(place: Place) -> None:
    async def story() -> None:
        job = Job(place, "echo out; echo err >&2; pwd; exit 3")
        seen = await job.whole()
        assert seen.returned is not None
        assert (seen.state, seen.returned.outcome, seen.returned.text) == (
            "ended",
            "error",
            f"out\nerr\n{place.workspace}\n[exit 3]",
        )
        assert (
            await job.files.inspect(
                JOB, job.process or processes.facts_of(1), instance=INSTANCE, secrets=()
            )
            == seen
        )
        assert await job.files.present() == (JOB,)
        await job.files.clear(JOB)
        assert await job.files.present() == ()

    run(story())


@pytest.fixture
def driver(place: Place) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []

    def start(
        what: str,
        command: str,
        mechanisms: str = "landlock,bubblewrap",
        prefix: tuple[str, ...] = (),
    ) -> "subprocess.Popen[str]":
        words = [
            *prefix,
            sys.executable,
            str(Path(__file__).parent / "job_process.py"),
            what,
            str(place.home),
            str(place.workspace),
            mechanisms,
            command,
        ]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def said(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


def test_a_job_whose_driver_is_killed_before_the_byte_runs_nothing(
    place: Place, driver: Any
) -> None:
    """The pipe closes: launcher, supervisor and folder go by themselves."""
    process = driver("WAIT", "echo ran > ran.txt")
    facts = ProcessFacts(**said(process))
    process.kill()
    process.wait()
    run(died(facts))
    assert (folders(place), (place.workspace / "ran.txt").exists()) == ([], False)


def test_a_job_whose_driver_is_killed_after_the_byte_goes_on(place: Place, driver: Any) -> None:
    """It is found again by its facts, and whoever looks hears how it ended."""
    os.mkfifo(place.workspace / "hold")
    process = driver("GO", "read line < hold; echo the word is $line")
    facts = ProcessFacts(**said(process))
    assert said(process) == {"level": "isolated"}
    process.kill()
    process.wait()
    job = JobId("j-" + "a" * 26)
    files = files_of(place)

    async def story() -> JobSeen:
        assert (await files.inspect(job, facts, instance=INSTANCE, secrets=())).state == "running"
        await asyncio.to_thread((place.workspace / "hold").write_text, "late\n")
        await died(facts)
        return await files.inspect(job, facts, instance=INSTANCE, secrets=())

    seen = run(story())
    assert seen.returned is not None
    assert (seen.state, seen.returned.outcome, seen.returned.text) == (
        "ended",
        "ok",
        "the word is late\n",
    )


def test_another_process_is_never_taken_for_a_jobs(place: Place) -> None:
    """Another boot, another start time under the same number, a number that is nobody's."""

    async def story() -> None:
        job = Job(place, "true")
        prepared = await job.ready()
        facts: ProcessFacts = prepared.process
        changed = [
            msgspec.structs.replace(facts, boot_id="another"),
            msgspec.structs.replace(facts, start_time=facts.start_time + 1),
            msgspec.structs.replace(facts, group=2**22 - 1),
        ]
        for other in changed:
            assert not processes.is_alive(other)
            assert processes.death_of(other) is None
            processes.ask_leader(other)  # reaches nobody
        assert processes.is_alive(facts)
        await prepared.abandon()

    run(story())


def test_a_supervisor_that_is_killed_leaves_no_word_and_what_it_ran_is_ended(place: Place) -> None:
    async def story() -> None:
        os.mkfifo(place.workspace / "began")
        mark = f"1000.{os.getpid()}7"
        job = Job(place, f"sleep {mark} & echo begun > began; wait")
        prepared = await job.ready()
        await prepared.let_go()
        await asyncio.to_thread((place.workspace / "began").read_text)
        while not (found := sleepers(mark)):  # noqa: ASYNC110  # the fork becomes `sleep`
            await asyncio.sleep(0)
        (command,) = found
        facts = processes.facts_of(command)
        os.kill(prepared.process.group, signal.SIGKILL)
        assert (await job.over()).state == "gone"
        await job.files.end(job.scene.call, prepared.process)
        await died(facts)

    run(story())


def test_a_job_ends_when_its_time_is_over_with_all_it_started(place: Place) -> None:
    async def story() -> None:
        job = Job(
            place, "echo begun; (trap '' TERM; sleep 1000) & wait; sleep 1000", timeout_seconds=0.3
        )
        seen = await job.whole()
        assert seen.returned is not None
        assert (seen.returned.outcome, seen.returned.text) == (
            "timed_out",
            "begun\n[ended: its time was over]",
        )
        assert processes.end_call(job.scene.call, None) == 0

    run(story())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_job_that_is_asked_to_end_says_how_it_did(place: Place, mechanism: Any) -> None:
    """Its own ending is a real outcome; one that is cut off may have done anything."""
    needs(mechanism)

    async def story(command: str) -> JobSeen:
        os.mkfifo(place.workspace / "began")
        job = Job(place, command, mechanisms=(mechanism,))
        assert job.binding.level == ("limited" if mechanism == "landlock" else "isolated")
        prepared = await job.ready()
        await prepared.let_go()
        assert await asyncio.to_thread((place.workspace / "began").read_text) == "begun\n"
        await job.files.ask_to_end(prepared.process)
        await job.files.ask_to_end(prepared.process)
        seen = await job.over()
        (place.workspace / "began").unlink()
        await job.files.clear(JOB)
        return seen

    tidy = run(story("trap 'echo tidied; exit 0' TERM; echo begun > began; sleep 1000 & wait"))
    assert (tidy.returned.outcome, tidy.returned.text, tidy.was_asked) == ("ok", "tidied\n", False)
    cut = run(story("echo begun > began; exec sleep 1000"))
    assert (cut.returned.outcome, cut.was_asked) == ("error", True)


def test_a_jobs_output_on_disk_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output after the bound is counted and dropped; the command goes on."""
    monkeypatch.setattr("holdfast.limits.JOB_OUTPUT_BYTES_MAX", 1000)

    async def story() -> None:
        job = Job(place, "head -c 5000 /dev/zero | tr '\\0' x; echo done > done.txt")
        seen = await job.whole()
        (folder,) = folders(place)
        assert (folder / "output").stat().st_size == 1000
        assert seen.returned is not None
        assert seen.returned.text == "x" * 1000 + "\n[4000 further bytes were dropped]"

    run(story())
    assert (place.workspace / "done.txt").read_text() == "done\n"


def test_a_secret_in_what_a_job_says_is_hidden(place: Place) -> None:
    seen = run(Job(place, "echo swordfish-77 is the word").whole(("swordfish-77",)))
    assert seen.returned.text == "[secret] is the word\n"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_way_leads_from_a_job_into_the_home(place: Place, mechanism: Any) -> None:
    """
    P8: not the key, not its own folder, not through its descriptors, its supervisor's, or its
    parent's environment.
    """
    needs(mechanism)
    tries = [
        f"cat {place.key}",
        f"cat {place.home}/jobs/*/output",
        f"ls {place.home}/jobs",
        f"echo forged > {place.home}/jobs/status",
        "cat /proc/$PPID/fd/{3..20} < /dev/null",
        "for fd in /proc/self/fd/*; do readlink $fd; done",
        "readlink /proc/$PPID/cwd /proc/[0-9]*/fd/*",
    ]
    command = "\n".join(f"({each}) 2>&1" for each in tries)
    seen = run(Job(place, command, mechanisms=(mechanism,)).whole())
    assert KEY not in seen.returned.text
    assert JOB not in seen.returned.text
    assert not (place.home / "jobs" / "status").exists()


@pytest.mark.skipif(
    os.getuid() != 0,
    reason="only root can become another user; otherwise every test here runs unprivileged already",
)
def test_the_key_of_a_report_is_out_of_reach_for_every_program_of_the_same_user(
    open_folder: Path,
) -> None:
    """
    The supervisor has it in memory alone: not in an argument, an environment or a file, and nobody
    of that user may look into it. Not even unconfined.
    """
    place = Place(open_folder, home="a/home", workspace="b/ws")
    tries = "; ".join(
        f"head -c1 /proc/$PPID/{each} > /dev/null 2>&1 && echo open {each}"
        for each in ("environ", "mem", "maps", "fd/0", "fd/3")
    )
    seeks = f"cat /proc/$PPID/cmdline | tr '\\0' '\\n' > words; grep -rl {key_of(INSTANCE, OTHER).secret.hex()} {place.home} words"  # type: ignore[union-attr]
    own = "tr '\\0' '\\n' < /proc/self/environ; ls -l /proc/self/fd"
    process, facts = as_nobody(open_folder, place, "none", f"{tries}; {seeks}; {own}; echo tried")
    try:
        run(died(facts))
    finally:
        process.kill()
        process.communicate()
    seen = run(files_of(place).inspect(OTHER, facts, instance=INSTANCE, secrets=()))
    assert (
        seen.returned.outcome,
        "tried" in seen.returned.text,
        "open " in seen.returned.text,
    ) == ("ok", True, False)
    assert key_of(INSTANCE, OTHER).secret.hex() not in seen.returned.text  # type: ignore[union-attr]
    assert "jobs" not in seen.returned.text  # no descriptor of the job's folder
    assert len(seen.returned.text.splitlines()) < 40


def as_nobody(
    folder: Path, place: Place, mechanisms: str, command: str
) -> tuple["subprocess.Popen[str]", ProcessFacts]:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    packages = os.pathsep.join(
        path for path in sys.path if path and not path.startswith(sys.base_prefix)
    )
    process = subprocess.Popen(
        [
            system_python(),
            Path(__file__).parent / "job_process.py",
            "GO",
            place.home,
            place.workspace,
            mechanisms,
            command,
        ],
        stdout=subprocess.PIPE,
        text=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        env={"PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    facts = ProcessFacts(**said(process))
    assert said(process) == {"level": "unconfined"}
    return process, facts


@pytest.mark.parametrize("level", ["isolated", "limited"])
def test_a_job_reaches_no_more_than_a_command_of_its_level(open_folder: Path, level: str) -> None:
    """Nothing here needs root: every known way out is tried from inside an ordinary user's job."""
    needs(MECHANISM[level])
    with world_in(open_folder) as world:
        process = subprocess.Popen(
            [
                system_python(),
                Path(__file__).parent / "job_process.py",
                "GO",
                world.home,
                world.workspace,
                MECHANISM[level],
                COMMAND,
            ],
            stdout=subprocess.PIPE,
            text=True,
            env=PACKAGES,
            **world.as_owner,
        )
        try:
            facts = ProcessFacts(**said(process))
            assert said(process) == {"level": level}
            run(died(facts))
        finally:
            process.kill()
            process.communicate()
        seen = run(
            JobFiles(world.home, key_of).inspect(OTHER, facts, instance=INSTANCE, secrets=())
        )
        # The supervisor ends whatever a job leaves behind, at every level.
        assert not world.survivor_lives()
    allowed = OPEN_IF_LIMITED.keys() - {"survivor"} if level == "limited" else set()
    lines = {line for line in seen.returned.text.splitlines() if not line.startswith("[")}
    assert (seen.returned.outcome, lines) == ("ok", {"tried", *allowed})


def test_going_to_the_background_is_part_of_what_is_approved(place: Place) -> None:
    """
    P1, P4: another argument, another digest, another display; and a function's definition says it.
    """
    shell, scene = Shell(), place.scene()
    assert isinstance(shell, RunsInBackground)
    plain, background = shell.validate(encode(command="ls")), arguments_of(shell, "ls")
    assert (shell.is_background(plain), shell.is_background(background)) == (False, True)
    shown, other = shell.bind(plain, scene), shell.bind(background, scene)
    assert "in the background, as a job that outlives this turn" in other.display
    assert shown.display != other.display
    assert shown.digest() != other.digest()
    assert plain != background


def test_a_changed_script_is_not_let_go(place: Place) -> None:
    """P1: looked at once more right before the byte."""

    async def story() -> None:
        script = place.workspace / "deploy.sh"
        script.write_text("echo one > ran.txt\n")
        job = Job(place, "bash deploy.sh")
        prepared = await job.ready()
        script.write_text("echo two > ran.txt\n")
        with pytest.raises(CannotBind, match="changed after this was approved"):
            await prepared.let_go()

    run(story())
    assert (folders(place), (place.workspace / "ran.txt").exists()) == ([], False)


def test_a_half_written_report_does_not_count(place: Place) -> None:
    """The rename is what says it; whatever lies beside it, or is not a word at all, says nothing."""

    async def story() -> None:
        files = files_of(place)
        gone = ProcessFacts(boot_id=processes.boot_id(), group=2**22 - 1, start_time=1)
        folder = place.home / "jobs" / f"{JOB}.{gone.group}.{gone.start_time}"
        folder.mkdir(parents=True)
        for name, text in (
            (
                ".status.tmp",
                '{"ended": "exited", "status": 0, "bytes": 0, "failed": "", "at_ms": 1}',
            ),
            ("status", '{"ended": "exi'),
        ):
            (folder / name).write_text(text)
            assert (await files.inspect(JOB, gone, instance=INSTANCE, secrets=())).state == "gone"

    run(story())


def test_a_folder_that_nobody_will_speak_of_again_is_removed_a_day_later(place: Place) -> None:
    folder = place.home / "jobs" / f"{JOB}.1.1"
    folder.mkdir(parents=True)
    files = files_of(place)
    assert run(files.present()) == (JOB,)
    os.utime(folder, (time.time() - 26 * 3600,) * 2)
    assert run(files.present()) == ()
    assert folders(place) == []


def test_a_job_id_leads_to_no_other_file(place: Place) -> None:
    (place.home / "jobs").mkdir()
    (place.home / "jobs" / "status").write_text(
        '{"ended": "exited", "status": 0, "bytes": 0, "failed": "", "at_ms": 1}'
    )
    gone = ProcessFacts(boot_id="x", group=1, start_time=1)
    for name in ("..", ".", "../keys", "j-" + "a" * 25, "j-" + "A" * 26):
        assert (
            run(files_of(place).inspect(JobId(name), gone, instance=INSTANCE, secrets=())).state
            == "gone"
        )
        assert run(files_of(place).output(JobId(name), gone, after=0, bytes_max=10)) == b""


@pytest.mark.timeout(60)
def test_a_jobs_end_waits_for_nobody_who_left_its_group_and_never_stops_talking() -> None:
    """Its supervisor would never leave word, hear no cancel, and run past the job's time."""
    read, write = os.pipe()
    for each in (read, write):
        os.set_blocking(each, False)
    os.write(write, b"y\n" * 1024)
    record = supervise.OutputFile(write, 2**40)  # what is kept is said again at once
    record.take_rest(read)
    assert record.total == supervise._PIPE_BYTES_MAX
    os.close(write)
    record = supervise.OutputFile(write, 0)
    record.take_rest(read)
    assert (record.total, record.kept) == (2048, 0)
    os.close(read)


class Foreign:
    """A child that became another user: it hears nothing of ours, and ends by itself."""

    pid = 2**30  # nobody's: beyond what a kernel gives out

    def __init__(self, out: int, looks: int) -> None:
        self.out, self._looks = out, looks

    def is_dead(self) -> bool:
        self._looks -= 1
        return self._looks < 0


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_command_that_may_not_be_signalled_is_waited_for_and_its_word_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapped: bool
) -> None:
    """Else its supervisor would die of it, and nobody would ever know how the job ended."""

    def refused(group: int, _number: int) -> None:
        raise PermissionError(f"not our group: {group}")

    monkeypatch.setattr(os, "killpg", refused)
    monkeypatch.setattr(supervise, "_GRACE_SECONDS", 0.0)
    out, said = os.pipe()
    woken, wake = os.pipe()
    for fd in (out, woken):
        os.set_blocking(fd, False)
    os.write(said, b"as root\n")
    with (tmp_path / "output").open("wb") as output:
        record = supervise.OutputFile(output.fileno(), 1000)
        ended = supervise._watch(Foreign(out, 4), record, woken, 0.0, wrapped)  # type: ignore[arg-type]  # as much of it as is asked
    for fd in (out, said, woken, wake):
        os.close(fd)
    assert (ended, record.total, (tmp_path / "output").read_bytes()) == (
        "timed_out",
        8,
        b"as root\n",
    )


def test_a_job_that_is_cleared_away_meanwhile_has_said_nothing(place: Place) -> None:
    facts = JobFacts(job=JOB, tool="shell", submitted_at=1, process=processes.facts_of(os.getpid()))
    assert (
        run_tool(job_tools.job_status(), place.scene(jobs=(facts,)), job=JOB).text
        == f"{JOB} (shell) runs.\n"
    )


@pytest.mark.parametrize("left", [b'{"ended":"\xff"}', b'{"x":' + b"[" * 4_000, b"{}"])
def test_an_unreadable_report_does_not_count(place: Place, left: bytes) -> None:
    facts = ProcessFacts(
        boot_id="another", group=4_194_305, start_time=1
    )  # above every kernel's numbers
    folder = place.home / "jobs" / folder_name(JOB, facts)
    folder.mkdir(parents=True)
    (folder / STATUS).write_bytes(left)
    assert run(files_of(place).inspect(JOB, facts, instance=INSTANCE, secrets=())).state == "gone"


@pytest.mark.parametrize("other", ["job", "boot_id", "group", "start_time"])
def test_a_report_under_the_right_key_is_about_one_job_and_one_run(other: str) -> None:
    """T2: a supervisor of an earlier attempt at the same job has the same key."""
    key, job = b"k" * 32, JobId("j-1")
    process = ProcessFacts(boot_id="b", group=7, start_time=8)
    facts = {"job": job, "boot": "b", "group": 7, "start_time": 8, "at_ms": 1, "generation": 1}
    ended = {"ended": "exited", "status": 0, "failed": "", "left": 0, "left_names": []}
    body = msgspec.json.encode({**ended, **facts, "bytes": 0, "kept": 0, "digest": ""})
    raw = body + b"\n" + supervise.mac_of(body, key).encode() + b"\n"
    assert verified(raw, key, job, process) is not None
    if other == "job":
        job = JobId("j-2")
    else:
        process = msgspec.structs.replace(process, **{other: "c" if other == "boot_id" else 9})
    assert verified(raw, key, job, process) is None
