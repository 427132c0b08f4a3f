"""A served home with one pinned server: `wire.echo` asks, `wire.quick` runs at once."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation, TextContent

from holdfast.gateway.mcp.clients import new_session_header
from holdfast.runtime.service import Service
from holdfast.session.authority.context import MessageSource
from tests.acceptance.gateway.conftest import WAIT_SECONDS, Gateway, until
from tests.adapters.mcp.conftest import ECHO, Rig
from tests.warm import WarmStart

QUICK = {**ECHO, "name": "quick"}
POLICY = '[policy.personal]\n"wire.quick" = "auto"\n'
alice = MessageSource.local("alice")


class Proxied:
    """A gateway, the rig of its server, and the tokens of two people's clients."""

    def __init__(self, gateway: Gateway, rig: Rig) -> None:
        self.gateway, self.rig = gateway, rig
        gateway.home.chmod(0o700)
        self.go = rig.work / "go"
        self.tools(ECHO, QUICK)
        self.wait("1s")
        gateway.elsewhere(self.pin)
        self.tokens = {name: gateway.token(name, "send") for name in ("alice", "bob")}
        gateway.start()

    def wait(self, wait: str) -> None:
        """How long a client waits for a person, from the next start of the server."""
        self.rig.settings(policy=f'{POLICY}[mcp]\nwait = "{wait}"\n')

    async def pin(self, service: Service) -> None:
        shown = await service.servers.show(["wire"])
        await service.servers.pin([(each.name, each.digest) for each in shown], by="alice")

    def tools(self, *tools: dict[str, Any], **more: Any) -> None:
        self.rig.plan(tools=list(tools) or [ECHO, QUICK], **more)

    def hold(self) -> None:
        """Let the server keep the next calls until `go` exists."""
        self.tools(call={"do": "hold", "until": str(self.go)})

    def waiting(self) -> dict[str, Any]:
        return self.gateway.waiting(self.gateway.client(self.approver("alice")))

    def approver(self, person: str) -> str:
        return self.gateway.token(person, "read,send,approve")

    def answer(self, prompt: dict[str, Any], option: str = "approve_once") -> None:
        client = self.gateway.client(self.approver("alice"))
        assert self.gateway.answer(client, prompt, option).status_code == 200

    def sent(self, count: int) -> list[dict[str, Any]]:
        """Wait until the server got so many calls; return them."""
        until(lambda: len(self.rig.got()) >= count, f"{count} calls at the server")
        return self.rig.got()

    def post(
        self, body: bytes, person: str = "alice", client: str = "claude-code", path: str = "/mcp"
    ) -> httpx2.Response:
        """One message of an older client, over HTTP."""
        given = {
            "authorization": f"Bearer {self.tokens[person]}",
            "content-type": "application/json",
            "mcp-session-id": new_session_header(client),
        }
        return httpx2.post(
            f"{self.gateway.url}{path}", content=body, headers=given, timeout=WAIT_SECONDS
        )

    def called(self, tool: str, text: str, **more: str) -> dict[str, Any]:
        """Call a tool over HTTP; return the result."""
        answer = self.post(call_line(1, tool, text=text), **more).json()
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def outcome(self, name: str, **more: str) -> dict[str, Any]:
        answer = self.post(call_line(2, "holdfast.outcome", id=name), **more).json()
        found: dict[str, Any] = answer["result"]
        return found

    def relay(self, person: str = "alice") -> "subprocess.Popen[bytes]":
        """`holdfast mcp proxy`, as a client starts it."""
        return subprocess.Popen(
            self.command(person),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment(person),
        )

    def command(self, person: str, *more: str) -> list[str]:
        del person
        home = ["--home", str(self.gateway.home)]
        return [sys.executable, "-m", "holdfast", *home, "mcp", "proxy", *more]

    def environment(self, person: str) -> dict[str, str]:
        return {"HOLDFAST_TOKEN": self.tokens[person], "HOLDFAST_URL": self.gateway.url}

    @asynccontextmanager
    async def client(
        self,
        wire: str,
        transport: str,
        person: str = "alice",
        name: str = "claude-code",
        more: tuple[str, ...] = (),
        **offers: Any,
    ) -> AsyncGenerator[Client, None]:
        """The SDK's own client. `wire` is legacy, or a version without a handshake."""
        info = Implementation(name=name, version="1")
        if transport == "stdio":
            command, *words = self.command(person, *more)
            server = StdioServerParameters(
                command=command, args=words, env=self.environment(person)
            )
            async with Client(server, mode=wire, client_info=info, **offers) as client:
                yield client
            return
        headers = {"authorization": f"Bearer {self.tokens[person]}"}
        async with httpx2.AsyncClient(headers=headers, timeout=WAIT_SECONDS) as http:
            stream = streamable_http_client(f"{self.gateway.url}/mcp", http_client=http)
            async with Client(stream, mode=wire, client_info=info, **offers) as client:
                yield client


def text_of(result: Any) -> str:
    (part,) = cast("list[TextContent]", result.content)
    return part.text


def said(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def call_line(number: int, tool: str, **arguments: Any) -> bytes:
    """A call on the older wire, as one line."""
    params = {"name": tool, "arguments": arguments}
    return json.dumps(
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    ).encode()


@pytest.fixture
def proxied(tmp_path: Path, warm: WarmStart | None) -> Generator[Proxied, None, None]:
    gateway = Gateway(tmp_path, warm)
    try:
        yield Proxied(gateway, Rig(tmp_path))
    finally:
        gateway.close()
