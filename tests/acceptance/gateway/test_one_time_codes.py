"""
Where a one-time code is printed, and where an answer over HTTP counts. Real servers, real files and
pipes.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.cli.commands.demo.pseudo_terminal import PseudoTerminal
from tests.acceptance.gateway.conftest import Gateway, until

COMMAND = [sys.executable, "-P", "-m", "holdfast"]


class Served:
    """A server whose output goes where the test says."""

    def __init__(self, gateway: Gateway, out: Any) -> None:
        words = [*COMMAND, "--home", str(gateway.home), "serve", "--port", "0"]
        self.log = gateway.work / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                words,
                stdout=out,
                stderr=log,
                text=True,
                cwd=gateway.work,
                env=gateway._environment(),
            )

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def printed(path: Path) -> str:
    """The server's line about its page, once it is printed: it says it when it listens."""
    until(lambda: "Holdfast for" in path.read_text(), "the server to say where its page is")
    return path.read_text()


@pytest.mark.parametrize(
    ("mode", "is_printed"),
    [(0o600, True), (0o644, False), (0o640, False), (0o604, False), (0o620, False)],
)
def test_a_code_is_printed_to_a_file_of_mode_0600_alone(
    gateway: Gateway, mode: int, is_printed: bool
) -> None:
    path = gateway.work / "out.txt"
    path.touch(mode=0o600)
    path.chmod(mode)
    with path.open("w") as out:
        served = Served(gateway, out)
    try:
        assert ("#code=" in printed(path)) == is_printed
        if not is_printed:
            until(lambda: "serve code" in served.log.read_text(), "the way to get a code")
        assert "#code=" not in served.log.read_text()
    finally:
        served.stop()


def test_a_script_that_starts_a_server_gets_no_code_where_scripts_do_not_count(
    gateway: Gateway,
) -> None:
    gateway.settings('[approvals]\nconsent = ["terminal", "page"]\n')
    path = gateway.work / "out.txt"
    path.touch(mode=0o600)
    with path.open("w") as out:
        served = Served(gateway, out)
    try:
        assert "#code=" not in printed(path)
    finally:
        served.stop()


def test_a_code_is_printed_to_no_pipe(gateway: Gateway) -> None:
    gateway.start()
    assert "#code=" not in json.dumps(gateway.said)
    assert "serve code" in gateway.said["hint"]
    assert "#code=" not in gateway.log.read_text()


def test_a_file_of_another_user_gets_no_code(gateway: Gateway) -> None:
    """Mode 0600 does not protect a file that somebody else owns."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    path = gateway.work / "out.txt"
    path.touch(mode=0o600)
    with path.open("w") as out:
        os.chown(path, 65534, 65534)
        served = Served(gateway, out)
    try:
        assert "#code=" not in printed(path)
    finally:
        served.stop()


def test_a_terminal_gets_the_code_from_serve_and_from_serve_code(gateway: Gateway) -> None:
    words = [*COMMAND, "--home", str(gateway.home), "serve", "--port", "0"]
    with PseudoTerminal(words, env=gateway._environment(), cwd=str(gateway.work)) as server:
        first = server.wait_until_seen("Ctrl-C stops").partition("#code=")[2].split()[0]
        with PseudoTerminal(
            [*words[:-2], "code", "--as", "alice"],
            env=gateway._environment(),
            cwd=str(gateway.work),
        ) as other:
            assert other.wait_until_over() == 0, other.seen
            address, _, second = other.seen.split()[-1].partition("/#code=")
        assert first != second
        given = [
            httpx.post(f"{address}/v1/codes", json={"code": code}).json()
            for code in (first, second)
        ]
        assert [("admin" in each["scopes"], each["person"] == "alice") for each in given] == [
            (True, False),
            (False, True),
        ]
        assert httpx.post(f"{address}/v1/codes", json={"code": second}).status_code == 401


@pytest.mark.parametrize("served", [True, False])
def test_serve_code_says_why_it_gives_none(gateway: Gateway, served: bool) -> None:
    if served:
        gateway.start()
        assert gateway.run("serve", "code", check=False)["error"]["code"] == "not_private"
    else:
        gateway.run("send", "a/b", "hi")
        path = gateway.work / "out.txt"
        path.touch(mode=0o600)
        with path.open("w") as out:
            words = [*COMMAND, "--home", str(gateway.home), "--json", "serve", "code"]
            done = subprocess.run(
                words, stdout=out, cwd=gateway.work, env=gateway._environment(), check=False
            )
        assert (done.returncode, json.loads(path.read_text())["error"]["code"]) == (2, "not_served")


@pytest.mark.parametrize(
    ("ways", "page", "token"),
    [
        (("script", "terminal", "page", "channels"), True, True),
        (("page", "channels"), True, False),
        (("terminal", "page"), True, False),
        (("script", "terminal"), False, True),
        (("channels",), False, False),
    ],
)
def test_answers_over_http_count_by_where_their_token_came_from(
    gateway: Gateway, ways: tuple[str, ...], page: bool, token: bool
) -> None:
    """
    15: a token that was given for a one-time code is the page; one of `tokens add` is a script's.
    """
    gateway.settings(f"[approvals]\nconsent = {json.dumps(ways)}\n")
    gateway.start()
    given = gateway.client().post("/v1/codes", json={"code": gateway.code}).json()
    clients = {
        "page": gateway.client(given["token"]),
        "token": gateway.client(gateway.token(given["person"])),
    }
    for name, counts in (("page", page), ("token", token)):
        asked = gateway.ask("ops/api", f"run: echo {name}", given["person"])
        body = {"option": "approve_once", "answer_id": f"r-{name}", "digest": asked.digest}
        answer = clients[name].post(f"/v1/approvals/{asked.id}/answer", json=body)
        assert (answer.status_code, answer.json().get("code")) == (
            (200, None) if counts else (403, "no_authority")
        )
