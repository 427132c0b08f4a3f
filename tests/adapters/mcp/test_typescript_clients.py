"""
The TypeScript clients of MCP, old and new, through the proxy and at `holdfast mcp serve`: an
allowed call, a call that waits and is approved, and one that is denied.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway.conftest import Gateway
from tests.adapters.mcp.gated import GatedHome
from tests.adapters.mcp.real import NODE, PLACE, needs_environment, npm_server

pytestmark = [needs_environment, pytest.mark.needs_system("bwrap"), pytest.mark.timeout(240)]

SCRIPT = Path(__file__).with_name("ts_client.mjs")
CLIENTS = [("sdk", "2025-11-25"), ("client", "2025-11-25"), ("client", "2026-07-28")]


@contextmanager
def client(
    words: list[str], env: dict[str, str], command: list[str]
) -> Generator["Events", None, None]:
    with subprocess.Popen(
        [str(NODE), str(SCRIPT), str(PLACE), *words, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
    ) as process:
        try:
            yield Events(process)
        finally:
            process.kill()


class Events:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def next(self, name: str) -> Any:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read().decode()
        event = json.loads(line)
        assert list(event) == [name], event
        return event[name]


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize(("library", "version"), CLIENTS)
def test_a_client_is_served_asked_for_and_denied(
    tmp_path: Path, library: str, version: str, transport: str
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_text("hello")
    policy = '"peer.read_text_file" = "auto"'
    command = npm_server("filesystem", str(files))
    writes = [{"path": str(files / name), "content": name} for name in ("yes", "no")]
    story = {
        "allowed": {"name": "read_text_file", "arguments": {"path": str(files / "a.txt")}},
        "gated": [{"name": "write_file", "arguments": each} for each in writes],
    }
    with GatedHome(tmp_path, command, write=[files], policy=policy) as home:
        words = [library, version, transport, "proxy"]
        env = {**home.environment, "STORY": json.dumps(story)}
        with client(words, env, home.relay) as events:
            assert {"write_file", "holdfast.outcome"} <= set(events.next("tools"))
            assert events.next("allowed") == {"isError": False, "text": "hello"}
            assert home.prompt()["id"] in events.next("progress")
            assert list(files.iterdir()) == [files / "a.txt"]
            home.answer("approve_once")
            assert not events.next("gated")["isError"]
            assert (files / "yes").read_text() == "yes"
            assert home.prompt()["id"] in events.next("progress")
            home.answer("deny")
            assert events.next("gated")["isError"]
    assert not (files / "no").exists()


@pytest.mark.parametrize(("library", "version"), CLIENTS)
def test_a_client_looks_at_a_home_and_answers_nothing(
    tmp_path: Path, library: str, version: str
) -> None:
    gateway = Gateway(tmp_path, None)
    gateway.settings('[agents.assistant]\ntools = ["shell"]\n')
    gateway.start()
    try:
        alice = gateway.client(gateway.token("alice"))
        assert gateway.send(alice, "a/one", "run: echo hi").status_code == 202
        prompt = gateway.waiting(alice)
        env = {"HOLDFAST_TOKEN": gateway.token("alice", "read"), "HOLDFAST_URL": gateway.url}
        serve = [sys.executable, "-m", "holdfast", "--home", str(gateway.home), "mcp", "serve"]
        with client([library, version, "stdio", "serve"], env, serve) as events:
            tools = events.next("tools")
            assert tools == ["sessions", "session", "approvals", "approval", "outcome"]
            (shown,) = events.next("approvals")["approvals"]
            assert shown["id"] == prompt["id"]
            assert events.next("resources") == ["holdfast://sessions", "holdfast://approvals"]
            assert prompt["id"] in events.next("read")
        assert gateway.waiting(alice) == prompt
    finally:
        gateway.close()
