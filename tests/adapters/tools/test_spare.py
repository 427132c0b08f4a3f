"""
A spare launcher: a command that runs in one is the same command, kept out of the same home, found
again by the same name; and the spare itself is nobody's.
"""

import asyncio
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.tools.adversary import (
    COMMAND,
    MECHANISM,
    OPEN_IF_LIMITED,
    PACKAGES,
    World,
    needs,
    open_folder,
    system_python,
    world_in,
)
from tests.adapters.tools.spare_process import PromptSpare, call_at
from tests.adapters.tools.test_shell import gone, sleepers, wait_until_none_sleeps

import holdfast
from holdfast.adapters.tools.shell.processes import _members, end_survivors, facts_of
from holdfast.adapters.tools.shell.shell import Shell
from holdfast.adapters.tools.shell.spare import SpareLauncher
from holdfast.ids import CallId
from holdfast.ports.tools import ProcessFacts
from holdfast.testing import ScriptModel
from holdfast.wiring import open_service

__all__ = ["open_folder"]
HERE = Path(__file__).parent
SCRIPT = HERE / "spare_process.py"
MECHANISMS = ["landlock", "bubblewrap"]


@pytest.fixture
def spare() -> Iterator[PromptSpare]:
    made = PromptSpare()
    yield made
    made.close()


def shell_with(spare: PromptSpare, mechanism: Any) -> Shell:
    needs(mechanism)
    return Shell(mechanisms=(mechanism,), spare=spare)


async def prepared(shell: Shell, scene: Any, encode: Any, command: str) -> Any:
    arguments = shell.validate(encode(command=command))
    return await shell.prepare(arguments, shell.bind(arguments, scene), scene, idempotency_key="k")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_command_can_not_tell_that_it_runs_in_a_spare(
    place: Any, encode: Any, spare: PromptSpare, mechanism: str
) -> None:
    """
    Same folder, environment, descriptors, rights, bounds and signals; and the spare was one process
    for one call.
    """
    shell = shell_with(spare, mechanism)
    command = (
        "pwd; env; ls /proc/self/fd; ulimit -a; umask; cat /proc/self/cgroup; id; "
        "grep -E '^(Cap|SigBlk|SigIgn|NoNewPrivs|Seccomp|Groups)' /proc/self/status; ps -o sid=,pgid= -p $$ | awk '{print $1 == $2}'"
    )

    async def runs() -> list[Any]:
        found = []
        for _ in range(3):
            kept = spare.leader if found else None
            ready = await prepared(shell, place.scene(), encode, command)
            assert kept in (None, ready.process.group)
            found.append(
                (ready.process.group, await ready.go(timeout_seconds=60, on_output=lambda _: None))
            )
        return found

    (first, fresh), (second, spared), (third, again) = asyncio.run(runs())
    assert fresh.outcome == "ok"
    assert len({first, second, third, spare.leader}) == 4
    assert fresh.text == spared.text == again.text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_spare_with_a_call_carries_its_name_before_it_may_go(
    place: Any, encode: Any, spare: PromptSpare, mechanism: str
) -> None:
    """
    By name alone, as after a crash in which bubblewrap died: the launcher is found and ended, and
    nothing ran.
    """
    shell, scene = shell_with(spare, mechanism), place.scene()

    async def killed() -> None:
        await (await prepared(shell, scene, encode, "true")).go(
            timeout_seconds=60, on_output=lambda _: None
        )
        kept = spare.leader
        assert end_survivors(scene.call, None) == 0  # a spare is no call's
        ready = await prepared(shell, scene, encode, "touch ran")
        assert ready.process == facts_of(kept)
        assert end_survivors(CallId(scene.call + "x"), None) == 0
        assert end_survivors(scene.call, None) == 1
        await ready.abandon()

    asyncio.run(killed())
    assert not (place.workspace / "ran").exists()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_spare_knows_nothing_of_any_call(
    place: Any, encode: Any, spare: PromptSpare, mechanism: str
) -> None:
    shell, scene = shell_with(spare, mechanism), place.scene()

    async def run() -> None:
        await (await prepared(shell, scene, encode, "true # telltale")).go(
            timeout_seconds=60, on_output=lambda _: None
        )

    asyncio.run(run())
    spare.wait_until_up()
    members = _members(spare.leader, None)
    assert len(members) == (
        1 if mechanism == "landlock" else 3
    )  # the launcher; bubblewrap in front of it and in its namespace
    for pid in members:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"telltale" not in words
        assert (str(place.workspace).encode() in words) == words.startswith(
            b"/usr/bin/bwrap"
        )  # which shows it the workspace
        if os.geteuid() == 0:  # else it can't even be looked at, once it waits
            assert scene.call.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
            assert str(Path(f"/proc/{pid}/cwd").readlink()) == "/"
            held = {
                str(each.readlink()).partition(":")[0] for each in Path(f"/proc/{pid}/fd").iterdir()
            }
            assert held <= {"pipe", "/dev/null", "anon_inode"}


class Owner:
    """A process of its own with a spare, and what it says next, line by line."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def says(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def started(
    place: Any, what: str, mechanism: str, command: str = ""
) -> Generator[Owner, None, None]:
    """Its first command has run; it is killed in the end."""
    needs(mechanism)
    with subprocess.Popen(
        [sys.executable, SCRIPT, what, place.home, place.workspace, mechanism, command],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"},
    ) as process:
        owner = Owner(process)
        try:
            assert owner.says()["level"] in ("isolated", "limited")
            assert owner.says()["outcome"] == "ok"
            yield owner
        finally:
            owner.kill()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_spare_ends_with_whoever_kept_it(place: Any, mechanism: str) -> None:
    with started(place, "WAIT", mechanism) as owner:
        leader = owner.says()["spare"]
        watched = os.pidfd_open(leader)
        owner.kill()
        assert select.select([watched], [], [], 60)[0], "the spare outlives its owner"
        os.close(watched)


def test_a_forked_child_keeps_no_spare_of_its_parents_alive(place: Any) -> None:
    with started(place, "FORK", "landlock") as owner:
        leader, child = owner.says()["spare"], owner.says()["child"]
        watched = os.pidfd_open(leader)
        try:
            owner.kill()
            assert select.select([watched], [], [], 60)[0], "the spare outlives its owner"
            os.kill(child, 0)  # it lives, and has copies of everything that its parent had
        finally:
            os.kill(child, signal.SIGKILL)
            os.close(watched)


@pytest.mark.parametrize(
    ("mechanism", "known_by"),
    [("landlock", "name"), ("bubblewrap", "group"), ("bubblewrap", "name")],
)
def test_what_ran_in_a_spare_is_ended_after_a_crash(
    place: Any, mechanism: str, known_by: str
) -> None:
    """kill -9 of the owner while the command runs; a part of it has left its group."""
    os.mkfifo(place.workspace / "up")
    mark = f"1000.{os.getpid()}8"
    command = f"setsid sleep {mark} & sleep {mark} & echo up > up; wait"
    with started(place, "RUN", mechanism, command) as owner:
        leader, ready = owner.says()["spare"], owner.says()
        assert ready["group"] == leader
        assert (place.workspace / "up").read_text() == "up\n"
        owner.kill()
        facts = ProcessFacts(
            boot_id=facts_of(leader).boot_id, group=leader, start_time=ready["start_time"]
        )
        until = time.monotonic() + 20
        while len(sleepers(mark)) < 2 and time.monotonic() < until:
            continue  # a fork becomes `sleep` a moment after it is made
        assert len(sleepers(mark)) == 2
        assert end_survivors(call_at(place.workspace), facts if known_by == "group" else None) >= 2
        wait_until_none_sleeps(mark)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_command_can_tell_a_spare_what_to_run(
    place: Any, encode: Any, spare: PromptSpare, mechanism: str
) -> None:
    """
    A word on its pipe would run unconfined. The pipe is there for whoever can open it under /proc.
    """
    shell = shell_with(spare, mechanism)

    async def tell() -> tuple[int, Any, Any]:
        await (await prepared(shell, place.scene(), encode, "true")).go(
            timeout_seconds=60, on_output=lambda _: None
        )
        ready = await prepared(
            shell,
            place.scene(),
            encode,
            "for fd in $(cat told); do echo x >> $fd && echo WROTE; done 2>&1; true",
        )
        spare.make(ready._launched.prefix)  # the next one, before this one goes
        kept = spare.leader
        descriptors = [
            f"/proc/{pid}/fd/{number}" for pid in _members(kept, None) for number in range(20)
        ]
        (place.workspace / "told").write_text(" ".join(descriptors))
        told = await ready.go(timeout_seconds=60, on_output=lambda _: None)
        assert len(told.text.splitlines()) == len(descriptors)
        last = await prepared(shell, place.scene(), encode, "echo as told")
        return (
            kept,
            told,
            (
                last.process.group,
                (await last.go(timeout_seconds=60, on_output=lambda _: None)).text,
            ),
        )

    kept, told, last = asyncio.run(tell())
    assert told.outcome == "ok"
    assert "WROTE" not in told.text
    assert last == (kept, "as told\n")


@pytest.mark.parametrize("level", ["isolated", "limited"])
def test_a_command_in_a_spare_reaches_no_more_than_another_of_its_level(
    open_folder: Path, level: str
) -> None:
    needs(MECHANISM[level])
    with world_in(open_folder) as world:
        # A command with a bound script starts a launcher of its own: this one is not bound.
        first, _, kept, ready, result = as_owner(
            world, "RUN", MECHANISM[level], f"exec {COMMAND}", lines=5
        )
    assert (first["level"], ready["group"]) == (level, kept["spare"])
    allowed = OPEN_IF_LIMITED.keys() - {"survivor"} if level == "limited" else set()
    lines = {line for line in result["text"].splitlines() if not line.startswith("[")}
    assert (result["outcome"], lines) == ("ok", {"tried", *allowed})


def test_nobody_of_the_same_user_can_open_what_a_spare_has_open(open_folder: Path) -> None:
    with world_in(open_folder) as world:
        assert as_owner(world, "LOOK", "landlock", "", lines=4)[-1] == {"opened": []}


def as_owner(world: World, what: str, mechanism: str, command: str, *, lines: int) -> list[Any]:
    with subprocess.Popen(
        [system_python(), SCRIPT, what, world.home, world.workspace, mechanism, command],
        stdout=subprocess.PIPE,
        env=PACKAGES,
        **world.as_owner,
    ) as process:
        assert process.stdout is not None
        try:
            return [json.loads(process.stdout.readline()) for _ in range(lines)]
        finally:
            process.kill()


@pytest.mark.parametrize("given_up", ["umask", "bound"])
def test_a_spare_of_before_is_not_used_where_a_new_one_would_have_less(
    place: Any, encode: Any, spare: PromptSpare, given_up: str
) -> None:
    """
    A program may give up rights while its home is open; what it starts from then on has them no
    more.
    """
    shell = shell_with(spare, "landlock")

    async def run() -> tuple[int, str]:
        ready = await prepared(
            shell, place.scene(), encode, "umask" if given_up == "umask" else "ulimit -Sn"
        )
        return ready.process.group, (
            await ready.go(timeout_seconds=60, on_output=lambda _: None)
        ).text.strip()

    bounds, mask = resource.getrlimit(resource.RLIMIT_NOFILE), os.umask(0o022)
    try:
        assert asyncio.run(run())[1] == ("0022" if given_up == "umask" else str(bounds[0]))
        kept = spare.leader
        if given_up == "umask":
            os.umask(0o077)
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, (bounds[0] - 1, bounds[1]))
        group, told = asyncio.run(run())
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)
    assert told == ("0077" if given_up == "umask" else str(bounds[0] - 1))
    assert group != kept
    assert gone(kept)


def test_a_spare_of_another_confinement_is_not_used(
    place: Any, encode: Any, spare: PromptSpare
) -> None:
    bare, wrapped = shell_with(spare, "landlock"), shell_with(spare, "bubblewrap")

    async def both() -> tuple[int, int, str]:
        await (await prepared(bare, place.scene(), encode, "true")).go(
            timeout_seconds=60, on_output=lambda _: None
        )
        kept = spare.leader
        ready = await prepared(wrapped, place.scene(), encode, f"cat {place.key} 2>&1; echo $?")
        return (
            kept,
            ready.process.group,
            (await ready.go(timeout_seconds=60, on_output=lambda _: None)).text,
        )

    kept, group, text = asyncio.run(both())
    assert group != kept
    assert gone(kept)
    assert "key-material" not in text


def test_a_spare_that_somebody_ended_is_replaced(
    place: Any, encode: Any, spare: PromptSpare
) -> None:
    shell = shell_with(spare, "landlock")

    async def run() -> str:
        await (await prepared(shell, place.scene(), encode, "true")).go(
            timeout_seconds=60, on_output=lambda _: None
        )
        os.kill(spare.leader, signal.SIGKILL)
        ready = await prepared(shell, place.scene(), encode, "echo ran")
        return str((await ready.go(timeout_seconds=60, on_output=lambda _: None)).text)

    assert asyncio.run(run()) == "ran\n"


def test_two_commands_at_once_never_share_a_spare_and_a_closed_one_is_gone(
    place: Any, encode: Any, spare: PromptSpare
) -> None:
    shell = shell_with(spare, "landlock")

    async def run() -> set[int]:
        await (await prepared(shell, place.scene(), encode, "true")).go(
            timeout_seconds=60, on_output=lambda _: None
        )
        kept = spare.leader
        ready = await asyncio.gather(
            *(prepared(shell, place.scene(), encode, "true") for _ in range(3))
        )
        groups = {each.process.group for each in ready}
        assert kept in groups
        for each in ready:
            await each.abandon()
        return groups

    assert len(asyncio.run(run())) == 3
    spare.make(())
    leader = spare.leader
    spare.close()
    assert gone(leader)
    spare.make(())
    assert spare._kept is None


def test_an_open_home_keeps_a_spare_from_its_first_command_on_and_ends_it_and_a_command_line_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpareLauncher, "make_soon", SpareLauncher.make)
    lines = [{"call": [{"tool": "shell", "args": {"command": "true"}}]}, {"say": "done"}]
    work = tmp_path / "work"
    work.mkdir()

    async def one_call(home: holdfast.Home) -> None:
        alice = holdfast.MessageSource.local("alice")
        turn = await home.send("ops/api", "go", source=alice, workspace=work)
        assert (await home.answer(turn.approvals[0], "approve_once", by=alice)).turn.reply == "done"

    async def library() -> int:
        agent = holdfast.Agent("ops", model=ScriptModel(lines), tools=["shell"])
        async with holdfast.open(tmp_path / "home", agents=[agent]) as home:
            box: Any = home.service.world.tools
            box.get("shell")
            assert box._spare._kept is None
            await one_call(home)
            leader: int = box._spare._kept.waiting.process.pid
            assert not gone(leader)
            return leader

    async def command_line() -> None:
        async with open_service(tmp_path / "home") as service:
            box: Any = service.world.tools
            assert box.get("shell")._spare is None

    assert gone(asyncio.run(library()))
    asyncio.run(command_line())
