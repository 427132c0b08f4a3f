"""
A PostgreSQL of the bench's own: a fresh one in a temporary folder, on a Unix socket only, durable
as it is by default, and ended with the run.

PostgreSQL refuses to run as root, so for root it runs as a user who owns nothing but that folder.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Where distributions put what they leave out of PATH.
PLACES = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/lib/postgresql*/bin")
UNPRIVILEGED = ("postgres", "nobody")
PATIENCE_SECONDS = 60
DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")


class NoPostgres(Exception):
    """There is none to measure here; the message is the reason."""


@contextlib.contextmanager
def server(beside: Path) -> Iterator[str]:
    """
    Start one on the disk of `beside`; yields what psycopg needs to connect, but for the database's
    name.
    """
    programs = _programs()
    who = _who()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=beside.parent))
    sockets = Path(
        tempfile.mkdtemp(prefix="hf-")
    )  # short: a socket's path has about a hundred characters
    try:
        for each in (folder, sockets):
            os.chown(each, who.get("user", -1), who.get("group", -1))
        _made(programs["initdb"], folder / "data", who)
        with _running(programs["postgres"], folder, sockets, who):
            yield f"host={sockets} user=bench"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(sockets, ignore_errors=True)


def _programs() -> dict[str, Path]:
    """The newest folder that has both programs, those of PATH first."""
    on_path = [Path(found).parent for found in [shutil.which("initdb")] if found]
    elsewhere = sorted((each for place in PLACES for each in Path("/").glob(place)), reverse=True)
    for folder in [*on_path, *elsewhere]:
        programs = {name: folder / name for name in ("initdb", "postgres")}
        if all(os.access(path, os.X_OK) for path in programs.values()):
            return programs
    raise NoPostgres("no PostgreSQL server is installed here (initdb and postgres were not found)")


def _who() -> dict[str, Any]:
    """Whom a child process runs as: ourselves, unless we are root."""
    if os.geteuid() != 0:
        return {}
    for name in UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise NoPostgres(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(UNPRIVILEGED)}"
    )


def _made(initdb: Path, data: Path, who: dict[str, Any]) -> None:
    command = [
        initdb,
        "--pgdata",
        data,
        "--username",
        "bench",
        "--auth",
        "trust",
        "--encoding",
        "UTF8",
        "--no-locale",
    ]
    try:
        asked = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
            cwd=data.parent,
            **who,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise NoPostgres(f"initdb could not run: {type(exc).__name__}") from exc
    if asked.returncode != 0:
        raise NoPostgres(f"initdb failed: {_last_line(asked.stderr)}")


@contextlib.contextmanager
def _running(postgres: Path, folder: Path, sockets: Path, who: dict[str, Any]) -> Iterator[None]:
    log = folder / "log"
    settings = [
        part
        for setting in ("listen_addresses=", f"unix_socket_directories={sockets}", *DURABLE)
        for part in ("-c", setting)
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [postgres, "-D", folder / "data", *settings],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            **who,
        )
    try:
        _wait_until_ready(process, sockets / ".s.PGSQL.5432", log)
        yield
    finally:
        process.send_signal(signal.SIGINT)  # its fast stop
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], place: Path, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NoPostgres(
                f"PostgreSQL did not start: {_last_line(log.read_text(errors='replace'))}"
            )
        if b"ready to accept connections" in log.read_bytes() and _answers(place):
            return
        time.sleep(0.05)
    raise NoPostgres(f"PostgreSQL was not ready within {PATIENCE_SECONDS} s")


def _answers(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(place)) == 0


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:160] if lines else "it said nothing"
