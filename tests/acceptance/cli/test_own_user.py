"""
`serve` under a user of its own: `--as-user`, the systemd unit, and what other users are told.

Needs root, and makes no user: a mount namespace of the test's own has an /etc/passwd with one more.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

UID = 47_110
COMMAND = [sys.executable, "-P", "-m", "holdfast"]
# A Python below /root is readable in this view: everything else there is not in it.
VIEW = """
set -e
mount --bind "$PLACE/passwd" /etc/passwd
mount --bind "$PLACE/group" /etc/group
case "$PYTHON" in /root/*)
    top=$(printf %s "$PYTHON" | cut -d/ -f3)
    mkdir -p "$PLACE/root/$top"
    mount --bind "/root/$top" "$PLACE/root/$top"
    mount --rbind "$PLACE/root" /root
esac
cd /
exec "$@"
"""

pytestmark = [
    pytest.mark.needs_system("unshare", "setpriv"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user"),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter; the user's own is in it."""
    made = Path(tempfile.mkdtemp(prefix="holdfast-own-user-"))
    made.chmod(0o755)
    (made / "passwd").write_text(
        Path("/etc/passwd").read_text()
        + f"hfserve:x:{UID}:{UID}::{made / 'own'}:/usr/sbin/nologin\n"
    )
    (made / "group").write_text(Path("/etc/group").read_text() + f"hfserve:x:{UID}:\n")
    (made / "own").mkdir(mode=0o755)
    os.chown(made / "own", UID, UID)
    yield made
    shutil.rmtree(made)


def words(*command: str, uid: int = 0) -> list[str]:
    as_user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
    return ["unshare", "--mount", "/bin/sh", "-c", VIEW, "sh", *as_user, *COMMAND, *command]


def environment(place: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "PYTEST"))
    }
    return {
        **kept,
        "PLACE": str(place),
        "PYTHON": sys.base_prefix,
        "SUDO_USER": "alice",
        "PYTHONDONTWRITEBYTECODE": "1",
        **(more or {}),
    }


def run(
    place: Path, *command: str, uid: int = 0, home: str = "/nowhere"
) -> "subprocess.CompletedProcess[str]":
    env = environment(place, {"HOME": home})
    return subprocess.run(
        words("--json", *command, uid=uid),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=env,
    )


def test_root_is_given_up_before_the_home_is_opened(place: Path) -> None:
    """
    15: one command; the home, its keys and what tools do belong to a user that people's programs
    are not.
    """
    server = subprocess.Popen(
        words("--json", "serve", "--as-user", "hfserve", "--port", "0"),
        stdout=subprocess.PIPE,
        text=True,
        env=environment(place),
    )
    try:
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())
        assert (said["person"], "#code=" in said["page"]) == ("hfserve", False)
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{server.pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert status["Uid"].split() == status["Gid"].split() == [str(UID)] * 4
        assert (status["Groups"].split(), int(status["CapEff"], 16)) == ([str(UID)], 0)
        assert Path(f"/proc/{server.pid}/cwd").readlink() == place / "own" / "workspace"
        home = place / "own" / ".holdfast"
        assert (home.stat().st_uid, home.stat().st_mode & 0o777) == (UID, 0o700)
        _others_are_told_the_way(place, home)
        _a_code_opens_the_page_for_a_person(place)
    finally:
        server.terminate()
        server.communicate(timeout=60)


def _others_are_told_the_way(place: Path, home: Path) -> None:
    for command in (
        ("approvals", "list"),
        ("approvals", "answer", "a-x", "approve_once"),
        ("send", "a/b", "hi"),
        ("serve", "code"),
    ):
        told = run(place, "--home", str(home), *command, uid=65_534)
        assert told.returncode != 0
        text = json.dumps(json.loads(told.stdout))
        assert "hfserve" in text
        assert "serve code" in text


def _a_code_opens_the_page_for_a_person(place: Path) -> None:
    path = place / "own" / "code"
    path.touch(mode=0o600)
    os.chown(path, UID, UID)
    with path.open("w") as out:
        env = environment(place, {"HOME": str(place / "own")})
        done = subprocess.run(
            words("--json", "serve", "code", "--as", "alice", uid=UID),
            stdout=out,
            env=env,
            timeout=100,
            check=False,
        )
    assert done.returncode == 0
    said = json.loads(path.read_text())
    given = httpx.post(
        f"{said['url']}/v1/codes", json={"code": said["page"].partition("#code=")[2]}
    ).json()
    assert (given["person"], "admin" in given["scopes"], "approve" in given["scopes"]) == (
        "alice",
        False,
        True,
    )


@pytest.mark.parametrize(
    ("command", "uid", "code"),
    [
        (("serve", "--as-user", "nobody-of-that-name"), 0, "unknown_user"),
        (("serve", "--as-user", "root"), 0, "malformed"),
        (("serve", "--as-user", "hfserve"), 65_534, "no_authority"),
    ],
)
def test_serve_as_user_reports_the_refusal_code_and_writes_nothing(
    place: Path, command: tuple[str, ...], uid: int, code: str
) -> None:
    refused = run(place, *command, uid=uid)
    assert json.loads(refused.stdout)["error"]["code"] == code
    assert list((place / "own").iterdir()) == []


def test_the_unit_is_one_that_systemd_takes(place: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "--print-unit", "--as-user", "daemon"],
        capture_output=True,
        text=True,
        check=True,
    )
    path = place / "holdfast.service"
    path.write_text(done.stdout)
    as_json = subprocess.run([*done.args, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(as_json.stdout)["unit"].strip() == done.stdout.strip()
    assert "User=daemon" in done.stdout
    assert "RestrictNamespaces" not in done.stdout  # bubblewrap makes one for each command
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("needs systemd-analyze")
    checked = subprocess.run(
        [analyze, "verify", str(path)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("name", ["a\nExecStartPre=/bin/x", "a b", "%h", "", "Daemon", "../x"])
def test_a_unit_holds_no_line_that_a_name_brought_along(name: str) -> None:
    done = subprocess.run(
        [*COMMAND, "--json", "serve", "--print-unit", "--as-user", name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "[Service]" in done.stdout) == (2, False)
