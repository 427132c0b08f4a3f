"""The table of leaf programs: a remembered command runs nothing but itself and writes nothing."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.adapters.tools.shell.parse import read_command
from holdfast.adapters.tools.shell.programs import Program
from holdfast.adapters.tools.shell.remembered import system_paths
from holdfast.adapters.tools.shell.remembered.commands import why_not_remembered, why_not_text
from holdfast.adapters.tools.shell.remembered.system_paths import (
    why_not_system,
    why_not_system_folder,
)
from holdfast.adapters.tools.shell.remembered.table import BUILTINS, LEAVES
from holdfast.adapters.tools.shell.shell import Shell

HERE = Path(__file__).parent
# 200 commands that people run every day: `+` can be remembered, `-` is asked each time.
LINES = (HERE / "everyday_commands.txt").read_text().splitlines()
EVERYDAY = {line[2:]: line[0] == "+" for line in LINES}
REMEMBERED = [command for command, can in EVERYDAY.items() if can]
DOCS = HERE.parents[2] / "docs" / "guides" / "remembered-commands.md"
TRACED = ("strace", "-A", "-f", "-qq", "-e", "trace=execve,openat,open,creat,connect", "-o")
# Read by some program or other from the user's folder or from the current one.
DOTFILES = (
    *(".bashrc", ".profile", ".bash_profile", ".inputrc", ".magic", ".jq", ".procps", ".toprc"),
    *(".gitconfig", ".config/git/config", ".grep", ".dircolors", ".terminfo/d/dumb", ".editrc"),
    *(".treerc", ".info", ".ignore", ".lesskey", ".colordiffrc", ".netrc", ".curlrc"),
)


def test_how_many_of_200_everyday_commands_can_be_remembered() -> None:
    """The docs print the figure that this table gives."""
    found = {command: why_not_text(read_command(command)) is None for command in EVERYDAY}
    assert found == EVERYDAY
    assert len(EVERYDAY) == 200
    figure = f"{len(REMEMBERED)} of {len(EVERYDAY)} everyday commands"
    sys.stdout.write(figure)
    assert figure in DOCS.read_text()


@pytest.mark.parametrize("command", REMEMBERED)
def test_each_can_be_remembered_where_its_program_is_installed(
    place: Any, encode: Any, command: str
) -> None:
    shell = Shell()
    words = [each.words[0].text or "" for each in read_command(command).subcommands]
    installed = all(word in BUILTINS or shutil.which(word, path="/usr/bin:/bin") for word in words)
    binding = shell.bind(shell.validate(encode(command=command)), place.scene())
    assert binding.memorable == installed


LS = Program(
    path="/usr/bin/ls", found="/usr/bin/ls", device=1, inode=1, digest="d", is_script=False
)


@pytest.mark.parametrize(
    ("program", "places", "why"),
    [
        ({}, {}, None),
        ({"path": "/usr/bin/coreutils"}, {}, None),
        ({"path": "/usr/bin/busybox"}, {}, "ls is /usr/bin/busybox by another name"),
        ({"is_script": True}, {}, "ls is a script"),
        ({"found": "/opt/bin/ls"}, {}, "/opt"),
        (None, {}, "ls is not a program here"),
        ({}, {"interpreter": "bin/sh"}, "'bin/sh' is not an absolute path"),
        ({}, {"search_path": "/usr/bin:/tmp"}, "/tmp may be written by its group or by everybody"),
    ],
    ids=str,
)
def test_a_leaf_is_judged_by_its_file_the_shell_and_the_search_path_too(
    program: dict[str, Any] | None, places: dict[str, str], why: str | None
) -> None:
    """P9: the text is that of a leaf each time."""
    here = None if program is None else msgspec.structs.replace(LS, **program)
    at = {"interpreter": "/bin/sh", "search_path": "/usr/bin:/bin"} | places
    found = why_not_remembered(read_command("ls -l"), {"ls": here}, **at)
    assert found == why if why is None else why in (found or "")


@pytest.mark.parametrize("command", ["ls | cat", "cat f | ls"])
def test_each_program_of_a_command_is_judged(command: str) -> None:
    """P9: a script first or last in a pipe is not a leaf."""
    cat = msgspec.structs.replace(LS, path="/usr/bin/cat", found="/usr/bin/cat")
    at = {"interpreter": "/bin/sh", "search_path": "/usr/bin:/bin"}
    assert why_not_remembered(read_command(command), {"ls": LS, "cat": cat}, **at) is None
    script = msgspec.structs.replace(LS, is_script=True)
    assert why_not_remembered(read_command(command), {"ls": script, "cat": cat}, **at) is not None


def test_a_file_that_can_not_be_executed_is_not_a_program() -> None:
    assert "is not a program" in (why_not_system("/usr/lib/os-release") or "")


@pytest.mark.parametrize("bit", [stat.S_ISUID, stat.S_ISGID])
def test_a_program_with_the_rights_of_its_owner_is_not_a_leaf(
    monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    look = os.lstat

    def lstat(path: str) -> os.stat_result:
        facts = look(path)
        changed = stat.S_ISREG(facts.st_mode)
        return os.stat_result((facts.st_mode | bit, *facts[1:])) if changed else facts

    assert why_not_system("/bin/sh") is None
    monkeypatch.setattr(os, "lstat", lstat)
    assert "runs with the rights of its owner" in (why_not_system("/bin/sh") or "")


@pytest.mark.parametrize(
    ("can", "cannot"),
    [
        ("sort -k 2 f", "sort -k -o f"),  # the value of an option is an option again
        ("sort -t, f", "sort -tofile f"),  # letters behind a letter with a value
        ("sleep 5", "sleep 5x"),
        ("date +%H", "date 12312359"),  # sets the clock
        ("sed -n 5,10p f", "sed -n 'w out' f"),
        ("sed -n 5p f", "sed -n 5p f -i"),
        ("test -e f", "test -v f"),
        ("test a = b", "test a -x b"),
        ("printf %s x", "printf -v x y"),
        ("ls -l", "LD_PRELOAD=./x.so ls -l"),
        ("cat < f", "cat < f g"),  # the grammar takes g for a target
        ("/usr/bin/ls", "sub/ls"),
        ("cat < f", "cat < /dev/tcp/127.0.0.1/80"),
        ("find . -name x", "find . -delete"),
        ("ls > /dev/null", "ls > /dev/shm/x"),  # a folder where everybody may make files
    ],
)
def test_every_rule_about_the_text_is_needed(can: str, cannot: str) -> None:
    """P9: each pair differs in one rule alone."""
    assert why_not_text(read_command(can)) is None
    assert why_not_text(read_command(cannot)) is not None


def test_a_program_elsewhere_is_not_a_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not_system("/bin/sh") is None
    monkeypatch.setattr(system_paths, "_ROOTS", ("/usr/lib/",))
    assert "does not lie in" in (why_not_system("/bin/sh") or "")


def test_a_link_of_somebody_else_on_the_way_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = os.lstat

    def lstat(path: str) -> os.stat_result:
        facts = look(path)
        theirs = (*facts[:4], 1000, *facts[5:])  # the owner
        return os.stat_result(theirs) if stat.S_ISLNK(facts.st_mode) else facts

    monkeypatch.setattr(os, "lstat", lstat)
    assert "does not belong to root" in (why_not_system("/bin/sh") or "")  # a link to dash


def test_a_path_that_an_access_list_opens_to_the_user_is_not_the_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The modes say nothing of it; the kernel does."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert why_not_system("/bin/sh") is None
    monkeypatch.setattr(os, "access", lambda *_, **__: True)
    assert "may be written by you" in (why_not_system("/bin/sh") or "")


def test_a_folder_of_the_search_path_that_anybody_could_make_is_not_the_systems() -> None:
    assert why_not_system_folder("/usr/missing/folder") is None
    assert why_not_system_folder("/tmp/missing/folder") is not None


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_remembered_command_starts_another_program_or_writes_a_file(tmp_path: Path) -> None:
    """Every one is run for real among files that would steer a program which reads them."""
    home, workspace = tmp_path / "home", tmp_path / "ws"
    _plant(home, workspace)
    skipped = ("tail -f", "sleep", "exit")
    commands = [each for each in REMEMBERED if not each.startswith(skipped)]
    trace = tmp_path / "trace"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}
    for command in commands:
        subprocess.run(
            [*TRACED, str(trace), "/bin/bash", "--noprofile", "--norc", "-c", "--", command],
            cwd=workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    lines = trace.read_text(errors="replace").splitlines()
    started = {found[1] for line in lines if (found := re.search(r'execve\("([^"]+)".*= 0$', line))}
    names = {path.rpartition("/")[2] for path in started}
    assert names <= set(LEAVES) | {"find", "sed", "test", "bash"}
    assert {"ls", "grep", "find", "sort"} <= names
    assert {path.rpartition("/")[0] for path in started} <= {"/bin", "/usr/bin"}
    written = [line for line in lines if re.search(r"O_WRONLY|O_RDWR|O_CREAT|creat\(", line)]
    assert [line for line in written if not re.search(r'"/dev/(null|tty)"', line)] == []
    assert [line for line in lines if str(home) in line and " = -1 " not in line] == []
    assert not (tmp_path / "ran").exists()


def _plant(home: Path, workspace: Path) -> None:
    """Files that a program might read unasked, each with an effect if it is run."""
    evil = f"#!/bin/sh\ntouch {home.parent}/ran\n"
    names = ("ls", "grep", "sort", "cat", "a.txt", "run.sh")
    for folder in (home, workspace, workspace / "src", workspace / "sub"):
        folder.mkdir(exist_ok=True)
        for name in (*DOTFILES, *names):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(evil)
            path.chmod(0o755)
    for name in (
        "README.md",
        "names.txt",
        "data.csv",
        "log.txt",
        "b.txt",
        "data.bin",
        "counts.txt",
    ):
        (workspace / name).write_text("b,2\na,1\n")
    (workspace / "src" / "app.py").write_text("def main(): ...\n")


def test_every_leaf_refuses_an_option_that_is_not_listed() -> None:
    """Abbreviations of listed long options are options of their own."""
    for name, leaf in LEAVES.items():
        for option in leaf.longs | leaf.settings:
            short = option[:-1]
            if short and short not in leaf.longs | leaf.settings:
                assert why_not_text(read_command(f"{name} --{short}")), (name, short)
                assert why_not_text(read_command(f"{name} --{short}=x")), (name, short)
        assert why_not_text(read_command(f"{name} --no-such-option")), name
        assert why_not_text(read_command(f"{name} -@")), name


@pytest.mark.skipif(os.geteuid() != 0, reason="makes programs of other users below /usr")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap for a /usr of its own")
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_a_program_that_somebody_can_write_is_not_a_leaf(user: str) -> None:
    """Judged in a process of that user: the file, its folder, a folder above, a link on the way."""
    judge = "setpriv --reuid=65534 --regid=65534 --clear-groups" if user == "nobody" else ""
    text = f"/usr/bin/python3 {HERE}/system_path_cases.py make && cd / && "
    # The case is read from standard input: the other user may not reach the checkout.
    text += f"{judge} /usr/bin/python3 - judge < /usr/src/cases.py"
    view = ["--bind", "/", "/", "--tmpfs", "/usr/src"]
    done = subprocess.run(
        ["bwrap", *view, "--", "/bin/sh", "-c", text], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("judged 12\n", 0), done.stderr
