"""
What a command reaches at each level, tried by real processes as an ordinary user, beside another program of the same user.

Isolated, nothing that it was not given. Limited, exactly what its prompt lists: the table here is written by hand, the list
comes from the prompt. Unconfined, nearly everything: that is what the two others rest on.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.tools.test_confinement import NOBODY, needs, open_folder, system_python

__all__ = ["open_folder"]
HERE = Path(__file__).parent
SECRET = "one-time-code-417"
AS_NOBODY: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
LAYOUTS = {
    "siblings": ("home", "ws"),
    "home in workspace": ("ws/deep/er/home", "ws"),
    "workspace in home": ("home", "home/work"),
}
MECHANISM = {"isolated": "bubblewrap", "limited": "landlock", "unconfined": ""}

# Which ways are open at `limited`, and by which words of the prompt the person is told.
OPEN_IF_LIMITED = {
    "try_user_metadata": "names of files that it can guess",
    "try_process_list": "the list of processes",
    "try_socket_list": "the list of open sockets",
    "survivor": "goes on after the command has ended",
}
OPEN_WITH_NETWORK = {"try_loopback": "listens on loopback"}
# Not open to an ordinary user in any case, or not on every kernel.
SHUT_ANYWAY = {
    *("try_unmount", "try_mount", "try_new_mount", "try_change_root", "try_handle", "try_disk", "try_kernel", "try_system_write"),
    *("try_namespace_of_process", "try_terminal_of_its_own", "try_terminal_type", "try_stream_of_a_pair", "try_inherited_descriptors"),
    *("try_other_abi", "try_namespaces", "try_vsock", "try_queue", "try_keyring", "try_ring", "try_key_attribute"),
    *("try_key_chmod_by_descriptor", "try_home_rename_above", "try_trace", "try_memory", "try_memory_by_call", "try_descriptor_by_call"),
}


class Tried(NamedTuple):
    level: str
    display: str
    open: set[str]


class World:
    """A home, a workspace and a user with a log, a terminal multiplexer and another program; all of it nobody's."""

    def __init__(self, root: Path, home: str, workspace: str) -> None:
        self.root, self.home, self.workspace, self.user = root, root / home, root / workspace, root / "user"
        for folder in (self.home / "keys", self.workspace, self.user / "lib" / "site-packages"):
            folder.mkdir(parents=True, exist_ok=True)
        for name in ("1", "renamed", "written", "truncated", "removed", "opened"):
            (self.home / "keys" / f"{name}.key").write_text("key-material-5c0ffee5")
            (self.home / "keys" / f"{name}.key").chmod(0o600)
        (self.user / "log").write_text(f"code {SECRET}\n")
        (self.user / "log").chmod(0o600)
        (self.workspace / "made-before").symlink_to(self.home / "keys" / "1.key")
        (self.workspace / "to-the-log").symlink_to(self.user / "log")
        shutil.copy(HERE / "break_out.py", self.workspace / "break_out.py")
        for path in (root, *root.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        if os.getuid() == 0:  # made last: giving a file away takes this bit
            shutil.copy(shutil.which("id") or "", self.workspace / "runs-as-root")
            (self.workspace / "runs-as-root").chmod(0o4755)
        self._tmux = ["tmux", "-S", str(self.user / "tmux.sock")]
        self._bystander: subprocess.Popen[str] | None = None

    def start(self) -> None:
        subprocess.run([*self._tmux, "-f", "/dev/null", "new-session", "-d", "cat"], check=True, env={"PATH": os.environ["PATH"], "SHELL": "/bin/sh"}, **AS_NOBODY)
        self._bystander = subprocess.Popen(
            ["/usr/bin/python3", HERE / "bystander.py", self.user, self.workspace],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"BYSTANDER": "here"},
            **{**AS_NOBODY, "cwd": self.user},
        )
        assert self._bystander.stdout is not None
        disk = self.root.stat().st_dev
        facts = {
            "home": str(self.home),
            "workspace": str(self.workspace),
            "user": str(self.user),
            "tmux": str(self.user / "tmux.sock"),
            "disk": [os.major(disk), os.minor(disk)],
            "bystander": json.loads(self._bystander.stdout.readline()),
        }
        (self.workspace / "facts").write_text(json.dumps(facts))

    def stop(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True, **AS_NOBODY)
        if self._bystander is not None:
            self._bystander.communicate()

    def try_all(self, level: str, *, network: bool = False) -> Tried:
        command = "/usr/bin/python3 break_out.py facts HOLDFAST_PID"
        done = subprocess.run(
            [system_python(), HERE / "shell_process.py", "GO", self.home, self.workspace, MECHANISM[level], command, *(["network"] if network else [])],
            check=False,
            capture_output=True,
            text=True,
            env={
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path and not path.startswith(sys.base_prefix)),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            **AS_NOBODY,
        )
        assert done.stderr == ""
        ready, result = map(json.loads, done.stdout.splitlines())
        found = result["text"].split()
        assert (result["outcome"], found[-1:]) == ("ok", ["tried"]), result
        return Tried(ready["level"], ready["display"], set(found[:-1]) | ({"survivor"} if self._survivor_lives() else set()))

    def _survivor_lives(self) -> bool:
        """Ends it if so. A namespace that was just ended takes a moment to be empty."""
        program = self.workspace / "survivor"
        assert program.exists()
        for entry in Path("/proc").iterdir():
            try:
                pid = int(entry.name)
                if not os.path.samefile(entry / "exe", program):
                    continue
                watched = os.pidfd_open(pid)
            except (ValueError, OSError):
                continue
            outlived = not select.select([watched], [], [], 3)[0]
            if outlived:
                signal.pidfd_send_signal(watched, signal.SIGKILL)
            os.close(watched)
            return outlived
        return False


@pytest.fixture(params=LAYOUTS)
def world(request: pytest.FixtureRequest, open_folder: Path) -> Iterator[World]:
    yield from started(open_folder, *LAYOUTS[request.param])


@pytest.fixture
def plain_world(open_folder: Path) -> Iterator[World]:
    yield from started(open_folder, *LAYOUTS["siblings"])


def started(folder: Path, home: str, workspace: str) -> Iterator[World]:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    if shutil.which("tmux") is None:
        pytest.skip("there is no tmux here")
    made = World(folder, home, workspace)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def listed(display: str) -> list[str]:
    return [line.removeprefix("- ") for line in display.splitlines() if line.startswith("- ")]


def ways() -> set[str]:
    return {line[4:].partition("(")[0] for line in (HERE / "break_out.py").read_text().splitlines() if line.startswith("def try_")}


def test_there_are_many_ways() -> None:
    assert len(ways()) >= 70
    assert ways() >= SHUT_ANYWAY | OPEN_WITH_NETWORK.keys() | (OPEN_IF_LIMITED.keys() - {"survivor"})


def test_isolated_no_way_is_open(world: World) -> None:
    needs("bubblewrap")
    tried = world.try_all("isolated")
    assert (tried.level, tried.open) == ("isolated", set())
    assert tried.display.splitlines()[0].startswith("isolated: ")


def test_isolated_with_network_only_loopback_is_open(plain_world: World) -> None:
    needs("bubblewrap")
    tried = plain_world.try_all("isolated", network=True)
    assert (tried.level, tried.open) == ("isolated", {"try_loopback", "try_socket_list"})
    assert "reaches every service on this machine that listens there, and sees which sockets are open" in tried.display


@pytest.mark.parametrize("network", [False, True])
def test_limited_the_open_ways_are_those_that_the_prompt_lists(plain_world: World, network: bool) -> None:
    needs("landlock")
    told = OPEN_IF_LIMITED | (OPEN_WITH_NETWORK if network else {})
    tried = plain_world.try_all("limited", network=network)
    assert (tried.level, tried.open) == ("limited", set(told))
    lines = listed(tried.display)
    assert [way for way, words in told.items() if not any(words in line for line in lines)] == []
    assert [line for line in lines if not any(words in line for words in told.values())] == []


def test_unconfined_nearly_everything_is_open(plain_world: World) -> None:
    """The tests above prove something only if the same attempts get through where nothing confines them."""
    tried = plain_world.try_all("unconfined")
    assert tried.level == "unconfined"
    assert ways() - {"try_survive"} - SHUT_ANYWAY - tried.open == set()
    assert "survivor" in tried.open
