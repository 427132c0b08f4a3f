"""
The world that a break-out is tried in: a home, a workspace, and a user with a log, a terminal
multiplexer and another program.

Everything belongs to one user, who is nobody unless a test says otherwise. The other program is
`bystander.py`, the attempts are `break_out.py`; both are real processes.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.adapters.tools.shell.confinement.isolation import Obstacle, find_isolation
from holdfast.adapters.tools.shell.launcher_child import landlock_abi

HERE = Path(__file__).parent
NOBODY = 65534
SECRET = "one-time-code-417"
COMMAND = "/usr/bin/python3 break_out.py facts HOLDFAST_PID"
MECHANISM = {"isolated": "bubblewrap", "limited": "landlock", "unconfined": ""}
LAYOUTS = {
    "siblings": ("home", "ws"),
    "home in workspace": ("ws/deep/er/home", "ws"),
    "workspace in home": ("home", "home/work"),
}
OPEN_IF_LIMITED = {
    "try_user_metadata": "names of files that it can guess",
    "try_process_list": "the list of processes",
    "try_socket_list": "the list of open sockets",
    "survivor": "goes on after the command has ended",
}
"""Which ways are open at `limited`, and by which words of the prompt the person is told."""
PACKAGES = {
    "PYTHONPATH": os.pathsep.join(
        path for path in sys.path if path and not path.startswith(sys.base_prefix)
    ),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def system_python() -> str:
    """One that every user may run, with the version our packages were built for."""
    version = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            subprocess.run(
                [path, "-c", version],
                check=True,
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd="/",
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return path
    pytest.skip("no Python here that another user may run")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A temporary folder that another user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def needs(mechanism: str) -> None:
    """A mechanism by its name, or several with commas."""
    if "landlock" in mechanism and landlock_abi() < 3:
        pytest.skip("this kernel has no Landlock of version 3")
    if "bubblewrap" in mechanism and isinstance(find_isolation(), Obstacle):
        pytest.skip("bubblewrap does not work here")


class Tried(NamedTuple):
    level: str
    display: str
    open: set[str]


class World:
    """On disk, and running between `start` and `stop`."""

    def __init__(
        self, root: Path, home: str = "home", workspace: str = "ws", *, owner: int = NOBODY
    ) -> None:
        self.as_owner: dict[str, Any] = {
            "user": owner,
            "group": owner,
            "extra_groups": [],
            "cwd": "/",
        }
        self.root, self.home, self.workspace, self.user = (
            root,
            root / home,
            root / workspace,
            root / "user",
        )
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
            os.chown(path, owner, owner, follow_symlinks=False)
        if os.getuid() == 0:  # made last: giving a file away takes this bit
            shutil.copy(shutil.which("id") or "", self.workspace / "runs-as-root")
            (self.workspace / "runs-as-root").chmod(0o4755)
        self._tmux = ["tmux", "-S", str(self.user / "tmux.sock")]
        self._bystander: subprocess.Popen[str] | None = None

    def start(self) -> None:
        subprocess.run(
            [*self._tmux, "-f", "/dev/null", "new-session", "-d", "cat"],
            check=True,
            env={"PATH": os.environ["PATH"], "SHELL": "/bin/sh"},
            **self.as_owner,
        )
        self._bystander = subprocess.Popen(
            ["/usr/bin/python3", HERE / "bystander.py", self.user, self.workspace],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"BYSTANDER": "here"},
            **{**self.as_owner, "cwd": self.user},
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
        subprocess.run(
            [*self._tmux, "kill-server"], check=False, capture_output=True, **self.as_owner
        )
        if self._bystander is not None:
            self._bystander.communicate()

    def try_all(self, level: str, *, network: bool = False) -> Tried:
        done = subprocess.run(
            [
                system_python() if self.as_owner["user"] else sys.executable,
                HERE / "shell_process.py",
                "GO",
                self.home,
                self.workspace,
                MECHANISM[level],
                COMMAND,
                *(["network"] if network else []),
            ],
            check=False,
            capture_output=True,
            text=True,
            env=PACKAGES,
            **self.as_owner,
        )
        assert done.stderr == ""
        ready, result = map(json.loads, done.stdout.splitlines())
        # The result also names the processes that the command left behind.
        found = [line for line in result["text"].splitlines() if not line.startswith("[")]
        assert (result["outcome"], found[-1:]) == ("ok", ["tried"]), result
        return Tried(
            ready["level"],
            ready["display"],
            set(found[:-1]) | ({"survivor"} if self.survivor_lives() else set()),
        )

    def survivor_lives(self) -> bool:
        """Ends it if so. A namespace that was just ended takes a moment to be empty."""
        program = self.workspace / "survivor"
        assert program.exists()
        for entry in Path("/proc").iterdir():
            try:
                pid = int(entry.name)
                if not program.samefile(entry / "exe"):
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


@contextmanager
def world_in(folder: Path, layout: str = "siblings", *, owner: int = NOBODY) -> Iterator[World]:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    if shutil.which("tmux") is None:
        pytest.skip("no tmux here")
    made = World(folder, *LAYOUTS[layout], owner=owner)
    try:
        made.start()
        yield made
    finally:
        made.stop()
