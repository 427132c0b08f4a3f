"""Ways to run a file: each is bound, and runs the bytes that were approved, or it is declared."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.tools.adversary import HERE, NOBODY, PACKAGES, World, open_folder, system_python

from holdfast.adapters.tools.shell import shell as shell_module
from holdfast.adapters.tools.shell.confinement.isolation import Isolation, find_isolation
from holdfast.adapters.tools.shell.launcher import Launched
from holdfast.adapters.tools.shell.scripts import copy
from holdfast.adapters.tools.shell.scripts.copy import TooMuch, copy_script
from holdfast.adapters.tools.shell.scripts.text import BOUND, DECLARED
from holdfast.adapters.tools.shell.shell import Shell
from holdfast.ports.tools import CannotBind, ToolReturned

__all__ = ["open_folder"]

LINES = Path(__file__).with_name("ways_to_run.txt").read_text().splitlines()
WAYS = {line[9:]: line[:8].strip() for line in LINES}
BOUND_WAYS = [way for way, kind in WAYS.items() if kind == "bound"]

pytestmark = pytest.mark.skipif(
    not isinstance(find_isolation(), Isolation), reason="commands can't be isolated here"
)


def scripts(root: Path, said: str) -> dict[str, str]:
    """Every script leaves a word in the same file of the workspace."""
    shell = f"echo {said} >> {root}/ran\n"
    python = f"with open('{root}/ran', 'a') as ran:\n    ran.write('{said}\\n')\n"
    return {
        "x.sh": "#!/bin/sh\n" + shell,
        "sub/x.sh": "#!/bin/sh\n" + shell,
        "env.sh": "#!/usr/bin/env bash\n" + shell,
        "odd.sh": "#!./x.sh\n" + shell,
        "sources.sh": ". ./x.sh\n",
        "starts.sh": "sub/x.sh\n",
        "sets.sh": "PATH=.\nx.sh\n",
        "beside.sh": 'sh "$(dirname "$0")/x.sh"\n',
        "where.sh": 'cd "${BASH_SOURCE[0]%/*}"; ls\n' + shell,
        "x.py": "#!/usr/bin/python3\nimport json\n" + python,
        "sub/x.py": python,
        "big/x.py": python,
        "big/all.py": "import many\n",
        "big/x.rb": "puts 1\n",
        "leads/x.py": "import out\n",
        "foreign.py": "import numpy\n",
        "imports.py": "import said\n",
        "said.py": python,
        "starts.py": "import subprocess\nsubprocess.run(['./x.sh'])\n",
        "beside.py": "print(__file__)\n",
        "x.pl": f"system('echo {said} >> {root}/ran')\n",
        "x.awk": f'BEGIN {{ system("echo {said} >> {root}/ran") }}\n',
        "x.sed": f"1e echo {said} >> {root}/ran\n",
        "Makefile": f"all:\n\t{shell}",
        "sub/Makefile": f"all:\n\t{shell}",
    }


def write_all(root: Path, said: str) -> None:
    """Each file is replaced by another one, as by a rename: a mount over it would come off."""
    for name, text in scripts(root, said).items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.rename(path)


@pytest.fixture
def root(place: Any) -> Path:
    root: Path = place.workspace
    write_all(root, "approved")
    (root / "big/many").mkdir()
    for number in range(200):
        (root / "big/many" / f"m{number}.py").write_text("")
    (root / "leads/out.py").symlink_to("/etc/hostname")
    (root / "link.sh").symlink_to("sub/x.sh")
    (root / "here").symlink_to("/etc")
    (root / "list").write_text("x.sh\n")
    for name in ("program", "sub/program"):
        shutil.copy("/bin/true", root / name)
    return root


def ran(root: Path) -> set[str]:
    path = root / "ran"
    return set(path.read_text().split()) if path.exists() else set()


def swap_files(root: Path) -> None:
    write_all(root, "swapped")


def swap_folders(root: Path) -> None:
    """The folder under another name, and a new one with other files at its place."""
    (root / "sub").rename(root / "old")
    swap_files(root)


def rewrite_in_place(root: Path) -> None:
    for name, text in scripts(root, "swapped").items():
        (root / name).write_text(text)


def go(
    shell: Shell, arguments: bytes, scene: Any, between: Callable[[str], None]
) -> ToolReturned | str:
    """Prompt, answer, preparation, run; `between` is told after each."""

    async def whole() -> ToolReturned | str:
        binding = shell.bind(arguments, scene)
        between("prompt")
        if shell.bind(arguments, scene) != binding:
            return "voided"
        between("answer")
        try:
            prepared = await shell.prepare(arguments, binding, scene, idempotency_key="k")
        except CannotBind:
            return "voided"
        between("prepared")
        return await prepared.go(timeout_seconds=60, on_output=lambda _: None)

    return asyncio.run(whole())


def test_the_table_has_at_least_sixty_ways() -> None:
    assert len(WAYS) == len(LINES) >= 60
    assert set(WAYS.values()) == {"bound", "declared"}


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_bound_or_declared_and_never_both(place: Any, encode: Any, way: str) -> None:
    """A command that runs a file which can change says so in its prompt."""
    shell = Shell()
    binding = shell.bind(shell.validate(encode(command=way)), place.scene())
    assert (DECLARED in binding.display) == (WAYS[way] == "declared"), binding.display
    if WAYS[way] == "bound":
        assert BOUND in binding.display
    assert not binding.memorable


@pytest.mark.parametrize("way", BOUND_WAYS)
def test_a_bound_way_runs_what_was_approved(root: Path, place: Any, run: Any, way: str) -> None:
    """It works at all: the script runs, with its words, in the folder of the command."""
    returned = run(Shell(), place.scene(), command=way)
    assert (returned.outcome, ran(root)) == ("ok", {"approved"}), returned.text


@pytest.mark.parametrize("swap", [swap_files, swap_folders, rewrite_in_place])
@pytest.mark.parametrize("moment", ["prompt", "answer", "prepared", "copied", "last look"])
@pytest.mark.parametrize(
    "way", ["sh x.sh", "cd sub && sh x.sh", "sh < x.sh", "cd sub && ./x.sh", "python3 imports.py"]
)
def test_a_script_that_is_swapped_at_any_moment_never_runs_in_its_new_form(
    root: Path,
    place: Any,
    encode: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    moment: str,
    swap: Callable[[Path], None],
) -> None:
    """After the last look the approved bytes run; before it, nothing does."""
    shell = Shell()
    words, run = shell_module.copy_words, Launched.run

    def copied(copies: Any) -> Any:
        between("copied")
        return words(copies)

    async def let_go(launched: Launched, **rest: Any) -> Any:
        between("last look")
        return await run(launched, **rest)

    def between(reached: str) -> None:
        if reached == moment:
            swap(root)

    monkeypatch.setattr(shell_module, "copy_words", copied)
    monkeypatch.setattr(Launched, "run", let_go)
    returned = go(shell, shell.validate(encode(command=way)), place.scene(), between)
    assert ran(root) == ({"approved"} if moment == "last look" else set()), returned


@pytest.mark.parametrize("way", BOUND_WAYS)
def test_every_bound_way_runs_the_approved_bytes_after_a_late_swap(
    root: Path, place: Any, encode: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    run = Launched.run

    async def let_go(launched: Launched, **rest: Any) -> Any:
        swap_folders(root)
        return await run(launched, **rest)

    monkeypatch.setattr(Launched, "run", let_go)
    shell = Shell()
    returned = go(shell, shell.validate(encode(command=way)), place.scene(), lambda _: None)
    assert ran(root) == {"approved"}, returned


def test_a_script_that_is_swapped_for_the_copy_and_swapped_back_is_noticed(
    root: Path, place: Any, encode: Any
) -> None:
    """The last look would find everything as it was."""
    steps = {
        "answer": lambda: write_all(root, "swapped"),
        "prepared": lambda: write_all(root, "approved"),
    }
    shell = Shell()
    arguments = shell.validate(encode(command="cd sub && sh x.sh"))
    assert (
        go(shell, arguments, place.scene(), lambda reached: steps.get(reached, lambda: None)())
        == "voided"
    )
    assert ran(root) == set()


def test_an_ordinary_users_script_runs_from_its_private_copy(open_folder: Path) -> None:
    """Nothing here needs root."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    world = World(open_folder)
    write_all(world.workspace, "approved")
    for path in world.workspace.rglob("*"):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    own = "/run/holdfast/bound/0/x.sh"
    (world.workspace / "x.sh").write_text(
        f"chmod 777 {own} || echo approved >> {world.workspace}/ran\n"
    )
    command = "cd sub && cd .. && sh x.sh"
    words = [
        system_python(),
        HERE / "shell_process.py",
        "GO",
        world.home,
        world.workspace,
        "bubblewrap",
        command,
    ]
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, env=PACKAGES, **world.as_owner
    )
    ready, returned = map(json.loads, done.stdout.splitlines())
    assert (BOUND in ready["display"], DECLARED in ready["display"]) == (True, False)
    assert (returned["outcome"], ran(world.workspace)) == ("ok", {"approved"}), returned


def test_a_private_copy_cannot_be_changed_by_the_command_itself(
    root: Path, place: Any, run: Any
) -> None:
    """Not by the script that runs from it either, which knows its place from its shell."""
    own = "/run/holdfast/bound/0/x.sh"
    text = f"chmod u+w {own}; echo 'echo swapped >> {root}/ran' > {own}; mv {own} {own}.old; rm -f {own}\n"
    (root / "x.sh").write_text(text + f"sh {own}.old; cat {own} | grep -c chmod\n")
    returned = run(Shell(), place.scene(), command="sh x.sh")
    assert ran(root) == set(), returned.text
    assert returned.text.count("Read-only file system") == 4
    assert returned.text.endswith("2\n")


def test_a_script_that_the_command_writes_runs_as_written(root: Path, place: Any, run: Any) -> None:
    """Binding the bytes of before would run something that nobody asked for."""
    run(Shell(), place.scene(), command=f"echo 'echo fresh >> {root}/ran' > x.sh; sh x.sh")
    assert ran(root) == {"fresh"}


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("mechanisms", [("landlock",), ()])
def test_without_isolation_every_script_is_declared(
    place: Any, encode: Any, mechanisms: Any
) -> None:
    shell = Shell(mechanisms=mechanisms)
    for way in BOUND_WAYS:
        binding = shell.bind(shell.validate(encode(command=way)), place.scene())
        assert binding.level != "isolated"
        assert BOUND not in binding.display
        assert DECLARED in binding.display, way


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", ["builtin", "command", "eval", "exec", "trap"])
def test_a_builtin_that_runs_its_words_is_called_that(place: Any, encode: Any, name: str) -> None:
    """A reader would look in vain for such a program."""
    shell = Shell()
    display = shell.bind(shell.validate(encode(command=f"{name} 'ls -l'")), place.scene()).display
    assert f"| {name}, which runs its words as a command" in display


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "command",
    [
        "ls -la",
        "cat x.sh | wc -l",
        "cp x.sh y.sh",
        "rm -rf new",
        "sed -i s/a/b/ x.sh",
        "echo hi > out.txt",
    ],
)
def test_a_command_that_runs_no_file_says_nothing(place: Any, encode: Any, command: str) -> None:
    """A warning at every command would not be read at any."""
    shell = Shell()
    display = shell.bind(shell.validate(encode(command=command)), place.scene()).display
    assert BOUND not in display
    assert DECLARED not in display


def test_a_job_runs_what_was_approved(root: Path, place: Any, encode: Any) -> None:
    """In the background too, the script comes from its private copy."""
    shell = Shell()
    arguments = shell.validate(encode(command="cd sub && sh x.sh", background=True))
    scene = place.scene()

    async def whole() -> None:
        from holdfast.ids import JobId
        from holdfast.ports.jobs import JobKey

        binding = shell.bind(arguments, scene)
        job = await shell.prepare_job(
            arguments, binding, scene, job=JobId("j-1"), key=JobKey(1, b"k" * 32), seconds=60
        )
        fd = os.pidfd_open(job._process.pid)  # type: ignore[attr-defined]
        os.set_blocking(fd, False)
        await job.let_go()
        swap_folders(root)
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(fd, lambda: done.done() or done.set_result(None))
        await asyncio.wait_for(done, 60)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)

    asyncio.run(whole())
    assert ran(root) == {"approved"}


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\nasyncio.run(asyncio.create_subprocess_exec('./x.sh'))\n",
        "import asyncio\nasyncio.new_event_loop().subprocess_shell(None, './x.sh')\n",
        "import unittest\nunittest.main(module=None)\n",
        "import doctest\ndoctest.testfile('notes')\n",
        "import timeit\ntimeit.timeit(open('notes').read())\n",
        "import cProfile\ncProfile.run(open('notes').read())\n",
        "import webbrowser\nwebbrowser.get('./x.sh %s').open('x')\n",
        "import logging.config\nlogging.config.fileConfig('notes')\n",
        "import sqlite3\nsqlite3.connect('x').load_extension('./x')\n",
        "breakpoint()\n",
        "# coding: utf-7\nimport os; os.s+AHk-stem('./x.sh')\n",
    ],
)
def test_a_python_script_that_starts_files_by_itself_is_declared(
    place: Any, encode: Any, text: str
) -> None:
    (place.workspace / "y.py").write_text(text)
    shell = Shell()
    binding = shell.bind(shell.validate(encode(command="python3 y.py")), place.scene())
    assert DECLARED in binding.display


def test_a_small_file_that_is_piped_into_a_shell_is_compared(place: Any, encode: Any) -> None:
    notes, shell = place.workspace / "notes", Shell()
    notes.write_text("echo one\n")
    asked = shell.validate(encode(command="cat notes | sh"))
    before = shell.bind(asked, place.scene())
    notes.write_text("echo two\n")
    assert shell.bind(asked, place.scene()) != before


def test_a_copy_holds_regular_files_of_the_folder_alone_and_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: neither a pipe, nor more than the bound, nor a file that a link was put over."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    script = folder / "x.sh"
    script.write_text("echo one\n")
    assert copy_script(str(script), None).data_of("x.sh") == b"echo one\n"
    os.mkfifo(folder / "pipe")
    with pytest.raises(TooMuch, match="not a regular file"):
        copy_script(str(script), None)
    (folder / "pipe").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(copy, "BYTES_MAX", 8)
        with pytest.raises(TooMuch, match="more than 8 bytes"):
            copy_script(str(script), None)
    (tmp_path / "secret").write_text("of somebody\n")
    look = os.stat

    def swapped(name: Any, **more: Any) -> os.stat_result:
        facts = look(name, **more)
        if name == "x.sh":
            script.unlink()
            script.symlink_to(tmp_path / "secret")
        return facts

    monkeypatch.setattr(os, "stat", swapped)
    with pytest.raises(TooMuch, match="can't be read"):
        copy_script(str(script), None)
