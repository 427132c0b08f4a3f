"""
A private PostgreSQL cluster in a temporary folder, run by an unprivileged user.

The server refuses to run as root, so a test that runs as root starts it as `nobody`. It listens on
a socket in its own folder and on loopback, and keeps `fsync` on: a test kills it.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

BIN_FOLDERS = tuple(Path(f"/usr/lib/postgresql/{version}/bin") for version in (18, 17, 16, 15, 14))
_UNPRIVILEGED = "nobody"


def find_server() -> Path | None:
    """
    Return the folder of the newest installed server's programs, or None. `TEST_POSTGRES_BIN` names
    another one, of another version.
    """
    if named := os.environ.get("TEST_POSTGRES_BIN"):
        return Path(named)
    found = next((each for each in BIN_FOLDERS if (each / "initdb").exists()), None)
    if found is None and (name := shutil.which("initdb")):
        found = Path(name).resolve().parent
    return found


class Cluster:
    """One server. `stop` ends it; `kill` ends it as a power cut would, for its processes."""

    def __init__(self, bin_folder: Path, folder: Path | None = None) -> None:
        self.bin = bin_folder
        self.folder = folder or Path(tempfile.mkdtemp(prefix="hf-pg-"))
        self.data = self.folder / "data"
        self.port = _free_port()
        self._user = pwd.getpwnam(_UNPRIVILEGED) if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            check=check,
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=120,
            **self._as_user(),
        )

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {
            "user": self._user.pw_uid,
            "group": self._user.pw_gid,
            "extra_groups": [],
            "env": {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(self.folder)},
        }

    def create(self) -> "Cluster":
        self.run(
            "initdb",
            "-D",
            str(self.data),
            "-U",
            "owner",
            "--auth=trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        )
        self.configure(
            listen_addresses="127.0.0.1",
            port=str(self.port),
            max_connections="200",
            unix_socket_directories=str(self.folder),
            shared_buffers="32MB",
            logging_collector="off",
            max_wal_senders="4",
            wal_level="replica",
        )
        return self

    def configure(self, **settings: str) -> None:
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> "Cluster":
        log = str(self.folder / "log")
        self.run("pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", "60", "start")
        return self

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop", check=False)

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def kill(self) -> None:
        """
        Kill the server and wait until it is gone, with its children. They end by themselves soon
        after it, and no server starts on this folder while one of them is left.
        """
        pid = self.pid
        left = [pid, *_children(pid)]
        os.kill(pid, signal.SIGKILL)
        while any(Path(f"/proc/{each}").exists() for each in left):
            time.sleep(0.01)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://owner@127.0.0.1:{port or self.port}/{database}"

    def standby(self) -> "Cluster":
        """Return a standby of this server that is not started yet."""
        made = Cluster(self.bin)
        self.copy_to(made)
        return made

    def copy_to(self, made: "Cluster") -> None:
        """Fill an empty folder with a base backup of this server, as its standby."""
        target = ("-D", str(made.data), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync")
        made.run("pg_basebackup", "-d", self.url(), *target)
        made.configure(port=str(made.port), unix_socket_directories=str(made.folder))

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


def _children(pid: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(place.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(place.parent.name))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
