"""A home with one server that does what a plan says, as a real and confined process."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.home import Home
from holdfast.runtime.reports.types import ApprovalReport, TurnReport

SERVER = Path(__file__).with_name("wire_server.py")
PYTHON = os.path.realpath(sys.executable)
alice = holdfast.MessageSource.local("alice")

ECHO = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}


class Rig:
    """`plan` says what the server does; it is read for every message."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir(exist_ok=True)
        self.work.mkdir(exist_ok=True)
        # A copy: a change of the script changes the server's identity, and no other test's.
        self.script = folder / "server.py"
        self.script.write_bytes(SERVER.read_bytes())
        self.plan(tools=[ECHO])
        self.settings()

    def settings(self, more: str = "", policy: str = "") -> None:
        command = json.dumps([PYTHON, "-I", str(self.script), str(self.work)])
        self.home.joinpath("holdfast.toml").write_text(
            f"[mcp.wire]\ncommand = {command}\nread = [{json.dumps(str(self.script))}]\n"
            f"write = [{json.dumps(str(self.work))}]\n{more}\n"
            f'[agents.ops]\ntools = ["wire.*"]\n{policy}\n',
            encoding="utf-8",
        )

    def plan(self, **plan: Any) -> None:
        new = self.work / "plan.new"
        new.write_text(json.dumps(plan), encoding="utf-8")
        new.replace(self.work / "plan.json")

    def got(self, method: str = "tools/call") -> list[dict[str, Any]]:
        """Every message of that method that any server of this rig received."""
        got = self.work / "got.jsonl"
        lines = got.read_text(encoding="utf-8").splitlines() if got.exists() else []
        messages = [json.loads(line) for line in lines]
        return [each for each in messages if each.get("method") == method]

    async def heard(self, method: str) -> dict[str, Any]:
        """Wait until a server has received a message of that method, and return the last one."""
        async with asyncio.timeout(30):
            while not (got := self.got(method)):  # noqa: ASYNC110  of another process
                await asyncio.sleep(0.01)
        return got[-1]

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Home, None]:
        async with holdfast.open(self.home) as home:
            yield home

    @asynccontextmanager
    async def pinned(self) -> AsyncGenerator[Home, None]:
        """Open the home with every tool of the plan pinned."""
        async with self.open() as home:
            await self.pin(home)
            yield home

    async def pin(self, home: Home) -> None:
        shown = await home.service.servers.show(["wire"])
        await home.service.servers.pin([(each.name, each.digest) for each in shown], by="alice")


async def asked(
    home: Home, text: str = "wire.echo text=hi", session: str = "ops/a"
) -> ApprovalReport:
    """Send a message whose call must ask, and return its prompt."""
    turn = await home.send(session, text, source=alice)
    (approval,) = [each for each in turn.approvals if each.state == "requested"]
    return approval


async def approved(
    home: Home, text: str = "wire.echo text=hi", session: str = "ops/a"
) -> TurnReport:
    return await home.answer(await asked(home, text, session), "approve_once", by=alice)


async def outcome(home: Home, session: str = "ops/a") -> tuple[str, str]:
    """The outcome and the text of the session's last call."""
    last = (await home.calls(session))[-1]
    return str(last.outcome), str(last.text)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
