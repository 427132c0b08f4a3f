"""The shell: what was shown runs, where it was shown to, once it may, and nothing of it is left."""

import asyncio
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.tools.adversary import needs

from holdfast import limits
from holdfast.adapters.tools.shell import launcher, processes
from holdfast.adapters.tools.shell import launcher_child as launch
from holdfast.adapters.tools.shell import shell as shell_module
from holdfast.adapters.tools.shell.launcher import Launched
from holdfast.adapters.tools.shell.processes import boot_id, end_survivors, facts_of
from holdfast.adapters.tools.shell.shell import Shell, ShellSettings
from holdfast.errors import InvariantBroken
from holdfast.ports.tools import CannotBind, InvalidArguments, ProcessFacts

SCRIPT = Path(__file__).with_name("shell_process.py")


def gone(pid: int) -> bool:
    """Dead, reaped or not."""
    try:
        return b") Z" in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True


def wait_until_gone(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([fd], [], [], 30)[0], f"{pid} lives on"
    finally:
        os.close(fd)


def sleepers(mark: str) -> list[int]:
    """
    Processes that sleep for so long, by the numbers they have here: an isolated command has numbers
    of its own.
    """
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if (entry / "cmdline").read_bytes().split(b"\0")[:2] == [
                b"sleep",
                mark.encode(),
            ] and not gone(int(entry.name)):
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


def wait_until_none_sleeps(mark: str) -> None:
    for pid in sleepers(mark):
        wait_until_gone(pid)


def bound(encode: Any, scene: Any, shell: Shell | None = None, **arguments: Any) -> Any:
    tool = shell or Shell()
    return tool.bind(tool.validate(encode(**arguments)), scene)


def test_a_command_runs_in_the_workspace(place: Any, run: Any) -> None:
    returned = run(Shell(), place.scene(), command="pwd; echo héllo; echo oops >&2")
    assert (returned.outcome, returned.text) == ("ok", f"{place.workspace}\nhéllo\noops\n")


def test_a_failing_command_is_a_known_error(place: Any, run: Any) -> None:
    returned = run(Shell(), place.scene(), command="echo no; exit 3")
    assert (returned.outcome, returned.text) == ("error", "no\n[exit 3]")


def test_the_shown_command_is_the_command_that_runs(place: Any, encode: Any, run: Any) -> None:
    needs("bubblewrap")
    command = "printf '%s|' 'a ' 'b\r' x\u202ey > out"
    binding = bound(encode, place.scene(), command=command)
    level = "isolated: it reads the system, writes only its workspace, and has no network"
    assert (
        binding.display
        == f"{level}\nrun in\n| {place.workspace}\nthe command\n| printf '%s|' 'a ' 'b\\u000d' x\\u202ey > out"
    )
    run(Shell(), place.scene(), command=command)
    assert (place.workspace / "out").read_bytes() == "a |b\r|x\u202ey|".encode()


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("git push origin main", "git push"),
        ("cd sub && git -C lib fetch --all", "git fetch"),
        ("sudo -u bot curl -sS https://example.org", "curl"),
        ("timeout 5 pip install requests", "pip install"),
        ("bash -c 'npm ci && npm test'", "npm ci"),
        ("git status", None),
        ("git push --help", None),
        ("echo git push", None),
        ("npm test", None),
    ],
)
def test_a_command_that_needs_the_network_and_has_none_is_expected_to_fail(
    place: Any, encode: Any, command: str, what: str | None
) -> None:
    """An approver knows beforehand. With the network, the line is not there."""
    needs("bubblewrap")
    lines = bound(encode, place.scene(), command=command).display.split("\n")
    expected = [f"expect {what} to fail: no network"] if what else []
    assert [each for each in lines if each.startswith("expect ")] == expected
    connected = bound(encode, place.scene(), command=command, network=True)
    assert "to fail" not in connected.display


@pytest.mark.parametrize(
    ("command", "is_outside"),
    [
        ("echo hello > /etc/motd", True),
        ("echo alias >> ~/.bashrc", True),
        ("cd /etc && touch a", True),
        ("echo hello > notes", False),
        ("cat /etc/motd", False),
    ],
)
def test_a_confined_command_that_writes_outside_is_expected_to_fail(
    place: Any, encode: Any, command: str, *, is_outside: bool
) -> None:
    """The mark names the path. The line says that nothing of the user's changes there."""
    needs("bubblewrap")
    lines = bound(encode, place.scene(), command=command).display.split("\n")
    expected = ["expect writes outside the workspace to fail or to be lost"] if is_outside else []
    assert [each for each in lines if each.startswith("expect ")] == expected


def test_a_command_says_whether_it_runs_files_that_its_approval_does_not_fix(
    place: Any, encode: Any
) -> None:
    """P1: `git` runs hooks. The words of Approve once must not promise more than holds."""
    assert bound(encode, place.scene(), command="git status").runs_open_files
    assert not bound(encode, place.scene(), command="echo hi").runs_open_files


def test_lines_are_counted_and_framed(place: Any, encode: Any) -> None:
    binding = bound(encode, place.scene(), command="ls\n" + "\n" * 300 + "rm -rf x")
    assert "the command, 302 lines" in binding.display
    assert "302 lines: read to the end" in binding.warnings
    assert binding.display.endswith("| rm -rf x")


def test_a_command_too_long_to_show_is_not_approvable(place: Any, encode: Any) -> None:
    with pytest.raises(CannotBind) as refused:
        bound(encode, place.scene(), command="echo " + "a" * 60_000 + "; rm -rf x")
    assert refused.value.code == "too_long"


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": ""},
        {"command": " \n"},
        {"command": "a\0b"},
        {"command": "ls", "timeout_seconds": 0},
        {"command": "ls", "timeout_seconds": -1},
        {"command": "ls", "timeout_seconds": 1e9},
        {"command": "ls", "env": {"A": "b"}},
        {"command": "ls", "approved": True},
        {"command": ["ls"]},
        {"command": "ls", "cwd": ""},
    ],
)
def test_bad_arguments_are_refused(encode: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        Shell().validate(encode(**arguments))


def test_the_environment_is_new(place: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "LD_PRELOAD",
        "BASH_ENV",
        "ENV",
        "GIT_EXTERNAL_DIFF",
        "OPENAI_API_KEY",
        "HOLDFAST_HOME",
        "PYTHONPATH",
        "PROMPT_COMMAND",
        "BASH_FUNC_ls%%",
    ):
        monkeypatch.setenv(name, "/tmp/evil")
    text = run(Shell(), place.scene(), command="env; ls -d .").text
    assert "evil" not in text
    names = {line.split("=")[0] for line in text.splitlines() if "=" in line}
    assert names == {
        *(
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "LANG",
            "TERM",
            "TMPDIR",
            "PAGER",
            "GIT_PAGER",
            "GIT_TERMINAL_PROMPT",
            "HOLDFAST_TOOL",
        ),
        *("PWD", "SHLVL", "_"),  # bash's own
    }
    assert f"HOLDFAST_TOOL={place.scene().call}" in text


def test_no_descriptor_of_ours_is_inherited(place: Any, run: Any) -> None:
    """A lock we hold dies with us, whatever a command leaves running."""
    with (place.root / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = run(Shell(), place.scene(), command="readlink /proc/$$/fd/{0..99}; true").text
    assert [line.split(":")[0] for line in text.split()] == ["/dev/null", "pipe", "pipe"]


def test_a_command_runs_where_very_many_descriptors_are_open(place: Any, run: Any) -> None:
    """
    A server with a thousand followers: `select` knows none beyond the 1,024th, and a command that
    had run took the server with it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE,
        (max(soft, 4096) if hard == resource.RLIM_INFINITY else min(max(soft, 4096), hard), hard),
    )
    held = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(1100)]
    try:
        returned = run(Shell(), place.scene(), command="echo done")
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (returned.outcome, returned.text) == ("ok", "done\n")


def test_there_is_no_input_and_no_terminal(place: Any, run: Any) -> None:
    assert run(
        Shell(), place.scene(), command="cat; tty; ps -o sid= -p $$ >/dev/null"
    ).text.startswith("not a tty")


def test_a_secret_is_refused_in_and_hidden_out(place: Any, encode: Any, run: Any) -> None:
    scene = place.scene(secrets=("sk-live-12345",))
    with pytest.raises(CannotBind) as refused:
        bound(encode, scene, command="curl -H sk-live-12345 x")
    assert refused.value.code == "secret"
    heard: list[bytes] = []
    returned = run(
        Shell(),
        scene,
        command="printf 'a sk-li'; printf 've-12345 b sk-liv'",
        on_output=heard.append,
    )
    assert (returned.text, b"".join(heard)) == ("a [secret] b sk-liv", b"a [secret] b sk-liv")


def test_a_secret_whose_bytes_are_not_text_is_hidden_as_a_command_prints_it(
    place: Any, run: Any
) -> None:
    returned = run(
        Shell(),
        place.scene(secrets=("sk-live-\udcff12345",)),
        command="printf 'a sk-live-\\37712345 b'",
    )
    assert returned.text == "a [secret] b"


def test_output_is_bounded_for_the_model_and_kept_beside(place: Any, run: Any) -> None:
    returned = run(Shell(), place.scene(), command="seq 100000; exit 1")
    assert len(returned.text.encode()) <= limits.TOOL_OUTPUT_VIEW_BYTES
    assert returned.text.startswith("1\n2\n")
    assert returned.text.endswith("99999\n100000\n[exit 1]")
    assert returned.full == b"".join(b"%d\n" % n for n in range(1, 100_001))


def test_endless_output_is_not_kept_without_end(place: Any, run: Any) -> None:
    returned = run(
        Shell(),
        place.scene(),
        command=f"head -c {limits.TOOL_OUTPUT_KEPT_BYTES + 500_000} /dev/zero | tr '\\0' x; echo END",
    )
    assert len(returned.full) == limits.TOOL_OUTPUT_KEPT_BYTES
    assert returned.text.endswith("END\n")


@pytest.mark.parametrize("mechanism", ["landlock", "bubblewrap"])
def test_a_timeout_ends_the_whole_group(place: Any, run: Any, mechanism: Any) -> None:
    mark = f"1000.{os.getpid()}1"
    command = f"trap '' TERM; sleep {mark} & (setsid sleep {mark} & wait) & echo begun; wait; wait"
    returned = run(
        Shell(mechanisms=(mechanism,)), place.scene(), command=command, timeout_seconds=0.4
    )
    assert (
        returned.outcome,
        returned.text.splitlines()[:: len(returned.text.splitlines()) - 1],
    ) == ("timed_out", ["begun", "[ended after 0.4 s]"])
    wait_until_none_sleeps(mark)


def test_nothing_of_an_isolated_command_is_left_whatever_it_let_go_of(place: Any, run: Any) -> None:
    """
    It left the group, has no output of ours and no name of the call: its namespace ends with the
    command.
    """
    mark = f"1000.{os.getpid()}3"
    command = f"mkfifo up; env -i setsid sh -c 'echo up > up; exec sleep {mark}' < /dev/null > /dev/null 2>&1 & read word < up"
    assert run(Shell(mechanisms=("bubblewrap",)), place.scene(), command=command).outcome == "ok"
    wait_until_none_sleeps(mark)


# Ways to outlive a command. Each says its number in `pid`, and waits for a word that never comes.
LEAVING = {
    "own session": "setsid sh inner &",
    "own session, nothing held": "setsid sh inner < /dev/null > /dev/null 2>&1 &",
    "double fork": "(setsid sh -c 'sh inner & exit' < /dev/null > /dev/null 2>&1 &);",
    "no hangup": "nohup setsid sh inner > /dev/null 2>&1 & disown;",
    "own group": "set -m; sh inner < /dev/null > /dev/null 2>&1 &",
}


def leave(place: Any, how: str) -> str:
    (place.workspace / "inner").write_text("echo $$ > pid; echo up > up; read word < never")
    return f"mkfifo up never; {how} read word < up"


@pytest.mark.parametrize("how", LEAVING.values(), ids=LEAVING)
def test_the_shell_ends_and_reports_processes_that_a_command_left_behind(
    place: Any, run: Any, how: str
) -> None:
    """It would go on unseen and unasked for, with a call's name that is over."""
    returned = run(Shell(mechanisms=("landlock",)), place.scene(), command=leave(place, how))
    note = "[ended with it: 1 that it had left behind: sh]\n[to keep something running, start it with `background`]"
    assert (returned.outcome, returned.text) == ("ok", note)
    wait_until_gone(int((place.workspace / "pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="the mark is a resource limit of Linux")
@pytest.mark.parametrize("how", LEAVING.values(), ids=LEAVING)
def test_the_shell_reports_left_processes_that_cleared_their_environment(
    place: Any, run: Any, how: str
) -> None:
    """Its environment is cleared, its group, session and output are its own: the mark is not."""
    returned = run(
        Shell(mechanisms=("landlock",)),
        place.scene(),
        command=leave(place, how.replace("sh inner", "env -i PATH=/usr/bin:/bin sh inner")),
    )
    pid = int((place.workspace / "pid").read_text())
    try:
        assert (returned.outcome, returned.text) == (
            "ok",
            f"[still running, left behind by this command: sh ({pid})]",
        )
    finally:
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)


def test_a_mark_that_somebody_puts_on_another_process_ends_nobody(place: Any, run: Any) -> None:
    """Else a command could have others ended that it may not signal itself."""
    shell, scene = Shell(), place.scene()
    other = subprocess.Popen(["sleep", "1000"])
    try:
        mark = launch.mark_of(scene.call.encode())
        resource.prlimit(other.pid, 10, (mark, mark))
        assert processes.end_left_behind(scene.call, processes.facts_of(os.getpid())).running == (
            f"sleep ({other.pid})",
        )
        assert run(shell, scene, command="true").text == ""  # it is older than the command
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_command_that_leaves_nothing_behind_says_nothing_of_it(place: Any, run: Any) -> None:
    assert (
        run(Shell(), place.scene(), command="echo there | cat; sleep 1000 & (exit 3)").text
        == "there\n[exit 3]"
    )


def test_the_commands_own_timeout_is_shown_and_kept(place: Any, encode: Any) -> None:
    assert (
        "for at most 0.2 s"
        in bound(encode, place.scene(), command="sleep 1000", timeout_seconds=0.2).display
    )
    shell = Shell()

    async def go() -> Any:
        arguments = shell.validate(encode(command="sleep 1000", timeout_seconds=0.2))
        prepared = await shell.prepare(
            arguments, shell.bind(arguments, place.scene()), place.scene(), idempotency_key="k"
        )
        return await prepared.go(timeout_seconds=600, on_output=lambda _: None)

    assert asyncio.run(go()).outcome == "timed_out"


@pytest.mark.parametrize("mechanism", ["landlock", "bubblewrap"])
def test_a_command_is_asked_to_end_before_it_is_ended(
    place: Any, encode: Any, mechanism: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        launcher, "_GRACE_SECONDS", 60.0
    )  # a busy machine may need longer than a person would wait
    shell, scene, heard = Shell(mechanisms=(mechanism,)), place.scene(), bytearray()

    async def cancel() -> None:
        arguments = shell.validate(
            encode(command="trap 'echo tidied; exit' TERM; sleep 1000 & echo ready; wait")
        )
        prepared = await shell.prepare(
            arguments, shell.bind(arguments, scene), scene, idempotency_key="k"
        )
        ready = asyncio.Event()

        def hear(chunk: bytes) -> None:
            heard.extend(chunk)
            ready.set()

        task = asyncio.ensure_future(prepared.go(timeout_seconds=600, on_output=hear))
        await ready.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert heard == b"ready\ntidied\n"


def test_the_eldest_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Numbers say nothing about age: they come round again. A shell must hear of it before it sees its
    child end.
    """
    asked: list[int] = []
    started = {4: 10, 5: 40, 7: 30, 9: 20}
    monkeypatch.setattr(processes, "_members", lambda *_: set(started))
    monkeypatch.setattr(processes, "_stat", lambda pid: (4, started[pid], "S"))
    monkeypatch.setattr(os, "kill", lambda pid, _: asked.append(pid))
    processes.ask_all_but_leader(4)
    assert asked == [9, 7, 5]


@pytest.mark.parametrize("mechanism", ["landlock", "bubblewrap"])
def test_cancelling_ends_grandchildren_too(place: Any, encode: Any, mechanism: Any) -> None:
    shell, scene, mark = Shell(mechanisms=(mechanism,)), place.scene(), f"1000.{os.getpid()}4"
    heard = bytearray()

    async def cancel() -> ProcessFacts:
        command = f"(sleep {mark} & echo one; setsid sleep {mark} & echo two; wait) & trap '' TERM; wait; wait"
        arguments = shell.validate(encode(command=command))
        prepared = await shell.prepare(
            arguments, shell.bind(arguments, scene), scene, idempotency_key="k"
        )
        two = asyncio.Event()

        def hear(chunk: bytes) -> None:
            heard.extend(chunk)
            if heard.count(b"\n") == 2:
                two.set()

        task = asyncio.ensure_future(prepared.go(timeout_seconds=600, on_output=hear))
        await two.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert prepared.process is not None
        return prepared.process

    facts = asyncio.run(cancel())
    wait_until_gone(facts.group)
    wait_until_none_sleeps(mark)


@pytest.mark.parametrize("mechanism", ["landlock", "bubblewrap"])
def test_the_shell_ends_the_process_group_of_a_command(
    place: Any, run: Any, mechanism: Any
) -> None:
    mark = f"1000.{os.getpid()}5"
    assert (
        run(
            Shell(mechanisms=(mechanism,)), place.scene(), command=f"sleep {mark} & echo begun"
        ).text
        == "begun\n"
    )
    wait_until_none_sleeps(mark)


def test_nothing_runs_before_go_and_nothing_after_abandon(place: Any, encode: Any) -> None:
    shell, scene = Shell(), place.scene()

    async def abandon() -> None:
        arguments = shell.validate(encode(command="touch ran"))
        prepared = await shell.prepare(
            arguments, shell.bind(arguments, scene), scene, idempotency_key="k"
        )
        assert prepared.process is not None
        assert prepared.process == facts_of(prepared.process.group)
        await prepared.abandon()
        await prepared.abandon()
        assert gone(prepared.process.group)
        with pytest.raises(InvariantBroken):
            await prepared.go(timeout_seconds=60, on_output=lambda _: None)

    asyncio.run(abandon())
    assert not (place.workspace / "ran").exists()


def test_a_launcher_that_died_before_go_ran_nothing(place: Any, encode: Any) -> None:
    shell, scene = Shell(mechanisms=("landlock",)), place.scene()

    async def go() -> Any:
        arguments = shell.validate(encode(command="touch ran"))
        prepared = await shell.prepare(
            arguments, shell.bind(arguments, scene), scene, idempotency_key="k"
        )
        assert prepared.process is not None
        os.killpg(prepared.process.group, signal.SIGKILL)
        wait_until_gone(prepared.process.group)
        return await prepared.go(timeout_seconds=30, on_output=lambda _: None)

    returned = asyncio.run(go())
    assert (returned.outcome, returned.text) == (
        "error",
        "nothing was run: the launcher was ended by somebody",
    )
    assert not (place.workspace / "ran").exists()


@pytest.mark.parametrize("mechanism", ["landlock", "bubblewrap"])
def test_a_launcher_whose_parent_is_killed_runs_nothing(place: Any, mechanism: str) -> None:
    """kill -9 between ready and go: the pipe closes, the launcher ends."""
    process = subprocess.Popen(
        [sys.executable, SCRIPT, "WAIT", place.home, place.workspace, mechanism, "touch ran"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    launcher = os.pidfd_open(said["group"])
    process.kill()
    process.wait()
    assert select.select([launcher], [], [], 30)[0]
    os.close(launcher)
    process.stdout.close()
    assert not (place.workspace / "ran").exists()


def test_a_launcher_starts_where_a_pipe_holds_one_page(
    place: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a user who has very many pipes: its code goes through it in pieces."""
    made = os.pipe

    def small() -> tuple[int, int]:
        pipe = made()
        fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, 4096)
        return pipe

    monkeypatch.setattr(launcher.os, "pipe", small)
    assert run(Shell(), place.scene(), command="echo ran").text == "ran\n"


def test_survivors_of_a_crash_are_ended_by_start_time_or_by_name(place: Any) -> None:
    call = place.scene().call
    leader = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    named = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={"HOLDFAST_TOOL": call})
    other = subprocess.Popen(
        ["sleep", "1000"], start_new_session=True, env={"HOLDFAST_TOOL": call + "x"}
    )
    facts = facts_of(leader.pid)
    try:
        reused = ProcessFacts(
            boot_id=facts.boot_id, group=other.pid, start_time=facts.start_time - 1
        )
        rebooted = ProcessFacts(
            boot_id="another boot", group=facts.group, start_time=facts.start_time
        )
        assert end_survivors(place.scene().call + "none", reused) == 0
        assert end_survivors(place.scene().call + "none", rebooted) == 0
        assert (leader.poll(), named.poll(), other.poll()) == (None, None, None)
        assert end_survivors(call, facts) == 2
        assert (leader.wait(30), named.wait(30), other.poll()) == (
            -signal.SIGKILL,
            -signal.SIGKILL,
            None,
        )
        assert facts.boot_id == boot_id()
    finally:
        for process in (leader, named, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    "times", [60, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_a_folder_or_a_parent_flipped_again_and_again_never_runs_elsewhere(
    place: Any, encode: Any, times: int
) -> None:
    """
    Bind in one folder, flip it (itself, or a link above it) at any moment up to go: it runs there,
    or not at all.
    """
    good, bad = place.workspace / "good", place.workspace / "bad"
    for folder in (good, bad):
        (folder / "in").mkdir(parents=True)
    link = place.workspace / "link"
    shell, scene = Shell(), place.scene()
    arguments = shell.validate(encode(command="touch here", cwd="link/in"))
    ran = refused = 0

    def point_to(folder: Path) -> None:
        fresh = place.workspace / "fresh"
        fresh.symlink_to(folder)
        fresh.rename(link)

    async def one(number: int) -> bool:
        point_to(good)
        binding = shell.bind(arguments, scene)
        if number % 4 == 0:
            point_to(bad)
        if number % 4 == 1:
            good.rename(place.workspace / "aside")
            bad.rename(good)
        try:
            prepared = await shell.prepare(arguments, binding, scene, idempotency_key="k")
            if number % 4 == 2:
                point_to(bad)
            returned = await prepared.go(timeout_seconds=30, on_output=lambda _: None)
        except CannotBind:
            return False
        finally:
            if number % 4 == 1:
                good.rename(bad)
                (place.workspace / "aside").rename(good)
        return bool(returned.outcome == "ok")

    async def many() -> None:
        nonlocal ran, refused
        for number in range(times):
            if await one(number):
                ran += 1
            else:
                refused += 1

    asyncio.run(many())
    assert not (bad / "in" / "here").exists()
    assert (ran, refused) == (times // 4, times - times // 4)  # only the undisturbed quarter ran


def test_the_launcher_itself_enters_only_the_bound_folder(
    place: Any, encode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the last look were fooled: the folder is entered by identity before go, and kept."""
    good, bad = place.workspace / "good", place.workspace / "bad"
    good.mkdir()
    bad.mkdir()
    shell, scene = Shell(), place.scene()
    arguments = shell.validate(encode(command="touch here", cwd="good"))

    async def flip(moment: str) -> str:
        binding = shell.bind(arguments, scene)
        monkeypatch.setattr(shell, "bind", lambda *_: binding)
        try:
            if moment == "before":
                good.rename(place.workspace / "aside")
                bad.rename(good)
            prepared = await shell.prepare(arguments, binding, scene, idempotency_key="k")
            if moment == "after":
                good.rename(place.workspace / "aside")
                bad.rename(good)
            return (await prepared.go(timeout_seconds=30, on_output=lambda _: None)).outcome
        except CannotBind:
            return "refused"
        finally:
            monkeypatch.undo()

    assert asyncio.run(flip("before")) == "refused"
    assert not list(place.workspace.rglob("here"))
    good.rename(bad)
    (place.workspace / "aside").rename(good)
    assert asyncio.run(flip("after")) == "ok"
    assert list(place.workspace.rglob("here")) == [place.workspace / "aside" / "here"]


@pytest.mark.parametrize(
    "change", ["replaced", "edited", "earlier in PATH", "appeared", "script", "removed"]
)
def test_a_changed_program_or_script_voids_what_was_approved(
    place: Any, encode: Any, change: str
) -> None:
    early, late = place.root / "early", place.root / "late"
    early.mkdir()
    late.mkdir()

    def program(folder: Path, text: str) -> None:
        (folder / "prog").write_text(f"#!/bin/sh\n{text}\n")
        (folder / "prog").chmod(0o755)

    if change != "appeared":
        program(late, "echo good > ran")
    (place.workspace / "s.py").write_text("open('ran', 'w')")
    shell, scene = Shell(search_path=f"{early}:{late}:/usr/bin:/bin"), place.scene()
    command = "python3 s.py" if change == "script" else "prog"
    arguments = shell.validate(encode(command=command))

    def attack() -> None:
        if change == "replaced":
            (late / "prog").unlink()
            program(late, "echo evil > ran")
        elif change == "edited":
            facts = (late / "prog").stat()
            (late / "prog").write_bytes((late / "prog").read_bytes().replace(b"good", b"evil"))
            os.utime(late / "prog", ns=(facts.st_atime_ns, facts.st_mtime_ns))
        elif change in ("earlier in PATH", "appeared"):
            program(early, "echo evil > ran")
        elif change == "script":
            (place.workspace / "s.py").write_text("open('RAN', 'w')")
        else:
            (late / "prog").unlink()

    async def go() -> Any:
        before = shell.bind(arguments, scene)
        prepared = await shell.prepare(arguments, before, scene, idempotency_key="k")
        attack()
        assert shell.bind(arguments, scene) != before
        return await prepared.go(timeout_seconds=30, on_output=lambda _: None)

    returned = asyncio.run(go())
    assert (returned.outcome, returned.text.startswith("nothing was run")) == ("error", True)
    assert not (place.workspace / "ran").exists()


def test_another_interpreter_voids_what_was_approved(
    place: Any, encode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, scene = Shell(), place.scene()
    arguments = shell.validate(encode(command="ls"))
    before = shell.bind(arguments, scene)
    fake = place.root / "bash"
    fake.write_bytes(Path("/bin/bash").read_bytes())
    fake.chmod(0o755)
    monkeypatch.setattr(shell_module, "_SHELLS", (str(fake),))
    assert shell.bind(arguments, scene).interpreter != before.interpreter
    with pytest.raises(CannotBind):
        asyncio.run(shell.prepare(arguments, before, scene, idempotency_key="k"))


def test_equal_calls_bind_equally(place: Any, encode: Any) -> None:
    assert bound(encode, place.scene(), command="ls | sort") == bound(
        encode, place.scene(), command="ls | sort"
    )


@pytest.mark.parametrize("cwd", ["missing", "file", "{home}", "{home}/keys", "link"])
def test_a_missing_folder_and_a_folder_of_the_home_are_refused(
    place: Any, encode: Any, cwd: str
) -> None:
    (place.workspace / "file").write_text("")
    (place.workspace / "link").symlink_to(place.home)
    with pytest.raises(CannotBind) as refused:
        bound(encode, place.scene(), command="ls", cwd=cwd.format(home=place.home))
    assert refused.value.code == ("cannot_bind" if cwd in ("missing", "file") else "hard_deny")


def test_a_folder_outside_is_said_to_be_outside(place: Any, encode: Any) -> None:
    binding = bound(encode, place.scene(), command="ls", cwd="/usr")
    assert (binding.reach, binding.cwd) == ("outside", "/usr")
    assert "run outside the workspace, in\n| /usr" in binding.display


def test_a_relative_folder_without_a_workspace_is_refused(place: Any, encode: Any) -> None:
    with pytest.raises(CannotBind):
        bound(encode, place.scene(workspace=None), command="ls")


@pytest.mark.parametrize("times", [1, 3])
def test_cancelling_while_the_launcher_starts_leaves_none(
    place: Any, encode: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """
    However often: a server that is told to stop cancels once, and again when nobody waits any
    longer.
    """
    shell, scene = Shell(), place.scene()
    made: list[Launched] = []
    original = Launched.__init__
    loops: list[asyncio.AbstractEventLoop] = []
    begun, go_on = asyncio.Event(), threading.Event()

    def remember(self: Launched, *arguments: Any) -> None:
        original(self, *arguments)
        made.append(self)
        loops[0].call_soon_threadsafe(begun.set)
        assert go_on.wait(60)

    monkeypatch.setattr(Launched, "__init__", remember)

    async def cancel() -> None:
        arguments = shell.validate(encode(command="touch ran"))
        task = asyncio.ensure_future(
            shell.prepare(arguments, shell.bind(arguments, scene), scene, idempotency_key="k")
        )
        loops.append(asyncio.get_running_loop())
        await begun.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.wait(
                [task], timeout=0
            )  # it hears of it, and can't be done: the thread has not gone on
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert [gone(one.facts.group) for one in made] == [True]
    assert not (place.workspace / "ran").exists()


def test_a_start_that_fails_after_a_cancel_is_still_a_cancel() -> None:
    """Told as a failure of the call, the turn would go on as if nobody had asked it to stop."""
    go_on = threading.Event()

    def fails() -> Any:
        assert go_on.wait(60)
        raise CannotBind("the launcher died")

    async def cancel() -> None:
        task = asyncio.ensure_future(launcher.started(fails))
        await asyncio.wait([task], timeout=0)
        task.cancel()
        await asyncio.wait([task], timeout=0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())


def test_signals_are_as_a_command_expects_them(place: Any, run: Any) -> None:
    """Python ignores SIGPIPE; a command that inherits that never ends behind `head`."""
    said, _, ignored = run(
        Shell(), place.scene(), command="yes | head -1; grep SigIgn /proc/self/status"
    ).text.split()
    of_the_c_library = (
        0b11 << 31
    )  # 32 and 33 are its own; nobody can reset them, whoever ignored them
    assert (said, int(ignored, 16) & ~of_the_c_library) == ("y", 0)


@pytest.mark.timeout(60)
def test_the_launcher_stops_reading_a_pipe_that_never_falls_silent() -> None:
    """
    A command that is over is over, whoever still writes into its pipe, and however fast: everything
    else waits on the loop that reads it.
    """
    read, write = os.pipe()
    for each in (read, write):
        os.set_blocking(each, False)
    heard = 0

    def goes_on(chunk: bytes) -> None:
        nonlocal heard
        heard += len(chunk)
        os.write(write, chunk)

    os.write(write, b"y\n" * 1024)
    launcher._read_rest(read, goes_on)
    assert heard == launcher._PIPE_BYTES_MAX
    os.close(write)
    os.close(read)


@pytest.mark.parametrize(
    ("arguments", "memorable"),
    [
        ({}, True),
        ({"cwd": "sub"}, True),
        ({"cwd": ".."}, False),
        ({"cwd": "led"}, False),
        ({"network": True}, False),
    ],
)
def test_no_grant_reaches_the_network_or_a_folder_outside_the_workspace(
    place: Any, encode: Any, arguments: dict[str, Any], memorable: bool
) -> None:
    """P9: `cat config`, approved everywhere, must not read the config of another folder."""
    (place.workspace / "sub").mkdir()
    (place.workspace / "led").symlink_to(place.root)
    shell = Shell()
    binding = shell.bind(
        shell.validate(encode(command="cat config", **arguments)), place.scene(home=None)
    )
    assert binding.memorable is memorable


def test_the_prompt_names_what_settings_let_a_command_read(place: Any, encode: Any) -> None:
    needs("bubblewrap")
    private = place.root / "tool\nchain"
    private.mkdir()
    found = {}
    for read in ((), (str(private),)):
        shell = Shell(read=read)
        found[read] = shell.bind(shell.validate(encode(command="ls")), place.scene())
    plain, wider = found.values()
    assert plain != wider
    assert "| " + str(private).replace("\n", "\\u000a") in wider.display.splitlines()


def test_settings_are_asked_at_every_look(place: Any, encode: Any) -> None:
    """A tightened setting applies to a process that runs on, and to a prompt that stands."""
    said = ShellSettings(confine="off", network="always")
    shell = Shell(settings=lambda: said)
    asked = shell.validate(encode(command="ls"))
    assert shell.bind(asked, place.scene()).level == "unconfined"
    said = ShellSettings(network="never")
    with pytest.raises(CannotBind, match="'never'"):
        shell.bind(shell.validate(encode(command="ls", network=True)), place.scene())
