"""
Servers from npm and PyPI whose calls ask, through `holdfast mcp proxy` and the SDK's own client:
nothing happens before a person's answer, a denied call never runs, and a kill -9 repeats nothing.
"""

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.loop import in_loop
from tests.adapters.mcp.gated import GatedHome
from tests.adapters.mcp.real import PLACE, needs_environment, npm_server
from tests.adapters.mcp.test_real_servers import repository

pytestmark = [needs_environment, pytest.mark.needs_system("bwrap"), pytest.mark.timeout(240)]

Calls = tuple[dict[str, Any], dict[str, Any]]
"""The arguments of the call that is approved, and of the one that is denied."""
LONG = "trigger-long-running-operation"


def answered(home: GatedHome, tool: str, calls: Calls, effects: Callable[[], int]) -> None:
    """Approve the first call and deny the second. `effects` counts what the server has done."""

    @in_loop
    async def story() -> None:
        async with home.served.client("2026-07-28", "stdio") as client:
            noted: asyncio.Queue[str] = asyncio.Queue()

            async def on_progress(_: float, __: float | None, message: str | None) -> None:
                await noted.put(message or "")

            for arguments, option in zip(calls, ("approve_once", "deny"), strict=True):
                before = effects()
                call = asyncio.ensure_future(
                    client.call_tool(tool, arguments, progress_callback=on_progress)
                )
                waits = await noted.get()
                prompt = await asyncio.to_thread(home.prompt)
                assert prompt["id"] in waits
                assert effects() == before
                await asyncio.to_thread(home.answer, option)
                result = await call
                is_denied = option == "deny"
                assert bool(result.is_error) == is_denied, result
                assert (effects() == before) == is_denied

    story()


def test_the_filesystem_server(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    calls = ({"path": str(files / "a"), "content": "a"}, {"path": str(files / "b"), "content": "b"})
    with GatedHome(tmp_path, npm_server("filesystem", str(files)), write=[files]) as home:
        answered(home, "write_file", calls, lambda: len(list(files.iterdir())))


def test_the_memory_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    file = kept / "memory.json"
    monkeypatch.setenv("MEMORY_FILE_PATH", str(file))
    one, two = ({"name": each, "entityType": "thing", "observations": []} for each in ("a", "b"))
    more = 'env = ["MEMORY_FILE_PATH"]'
    with GatedHome(tmp_path, npm_server("memory"), write=[kept], more=more) as home:
        answered(
            home,
            "create_entities",
            ({"entities": [one]}, {"entities": [two]}),
            lambda: len(file.read_text().splitlines()) if file.exists() else 0,
        )


@pytest.mark.needs_system("git")
def test_the_git_server(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    command = [str(PLACE / "bin/mcp-server-git"), "--repository", str(repo)]
    one, two = ({"repo_path": str(repo), "branch_name": each} for each in ("one", "two"))
    heads = repo / ".git" / "refs" / "heads"
    with GatedHome(tmp_path, command, write=[repo]) as home:
        answered(home, "git_create_branch", (one, two), lambda: len(list(heads.iterdir())))


def test_the_fetch_server(tmp_path: Path) -> None:
    command = [str(PLACE / "bin/mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"]
    with web_page() as (url, asked):
        one, two = ({"url": f"{url}/{each}"} for each in ("one", "two"))
        with GatedHome(tmp_path, command, more="network = true") as home:
            answered(home, "fetch", (one, two), lambda: len(asked))
        assert set(asked) == {"/one"}


@contextmanager
def web_page() -> Generator[tuple[str, list[str]], None, None]:
    """A page on loopback, and the paths that it was asked for."""
    asked: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = b"a page"
            self.send_response(200)
            self.send_header("content-type", "text/plain")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


# --- kill -9 in the middle of a call


def called(relay: "subprocess.Popen[bytes]", **arguments: Any) -> None:
    assert relay.stdin is not None
    params = {"name": LONG, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    relay.stdin.write(json.dumps(message).encode() + b"\n")
    relay.stdin.flush()


def reply(relay: "subprocess.Popen[bytes]") -> tuple[bool, str]:
    assert relay.stdout is not None
    result = json.loads(relay.stdout.readline())["result"]
    return bool(result.get("isError")), result["content"][0]["text"]


@contextmanager
def relaying(home: GatedHome) -> Generator["subprocess.Popen[bytes]", None, None]:
    with subprocess.Popen(
        home.relay, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=home.environment
    ) as relay:
        try:
            yield relay
        finally:
            relay.kill()


def test_a_killed_relay_costs_no_second_run(tmp_path: Path) -> None:
    policy = f'"peer.{LONG}" = "auto"'
    with GatedHome(tmp_path, npm_server("everything"), policy=policy) as home:
        with relaying(home) as relay:
            called(relay, duration=2, steps=1)
            home.starts(1)
            relay.kill()
        with relaying(home) as relay:
            called(relay, duration=2, steps=1)
            is_error, text = reply(relay)
        assert (is_error, "completed" in text) == (False, True)
        assert home.starts(1) == 1


def test_a_killed_gateway_leaves_the_call_in_doubt_and_asks_before_another(tmp_path: Path) -> None:
    policy = f'"peer.{LONG}" = "auto"'
    with GatedHome(tmp_path, npm_server("everything"), policy=policy) as home:
        with relaying(home) as relay:
            called(relay, duration=600, steps=1)
            home.starts(1)
            home.gateway.kill()
            home.gateway.start()
            is_error, text = reply(relay)  # the relay has sent the same request again
            assert (is_error, "doubt" in text.lower()) == (True, True)
            called(relay, duration=600, steps=1)
            assert home.prompt()["tool"] == f"peer.{LONG}"
            home.answer("deny")
            assert reply(relay)[0]
        assert home.starts(1) == 1
