"""A person with a home, who logs in and opens the address that the login shows."""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.adapters.mcp.oauth.login import begin_login, browser_return, finish_login
from holdfast.adapters.mcp.oauth.saved_login import LoginFile, SavedLogin
from holdfast.home import Home
from holdfast.settings import SettingsSource
from tests.adapters.mcp.oauth.issuer import Issuer

ROOT = Path(__file__).parents[4]


class CommandRun(NamedTuple):
    code: int
    out: str
    said: str  # on stderr


class Person:
    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(mode=0o700)

    def settings(self, issuer: Issuer, more: str = "") -> None:
        self.home.joinpath("holdfast.toml").write_text(
            f"[mcp.web]\nurl = {json.dumps(issuer.url)}\n{more}\n"
            '[agents.ops]\ntools = ["web.*"]\n[policy.personal]\n"*" = "auto"\n',
            encoding="utf-8",
        )

    async def login(self) -> SavedLogin:
        """Log in as the command does, and open the address that it would show."""
        settings = SettingsSource(self.home).now().servers["web"]
        file = LoginFile(str(self.home), "web")
        before = file.load(settings.url or "")
        port = 0 if before is None else urlsplit(before.redirect).port or 0
        async with browser_return(port) as back:
            opened = await begin_login(settings, file, redirect=back.redirect)
            ended = await asyncio.to_thread(browse, opened.address, stops=True)
            return await finish_login(opened, ended, settings, file)

    async def run(self, *words: str, env: str = "") -> CommandRun:
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", "--home", str(self.home), "mcp", *words, cwd=ROOT,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env={**os.environ, **({env: "c-1"} if env else {})},
        )  # fmt: skip
        assert running.stderr is not None
        assert running.stdin is not None
        assert running.stdout is not None
        said = []
        async for line in running.stderr:
            said.append(line.decode().rstrip())
            if said[-1].startswith("http"):
                ended = await asyncio.to_thread(browse, said[-1], stops="--paste" in words)
                running.stdin.write(f"{ended}\n".encode())
        out = (await running.stdout.read()).decode()
        return CommandRun(await running.wait(), out, "\n".join(said))

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Home, None]:
        async with holdfast.open(self.home) as home:
            yield home

    async def pin(self, home: Home) -> None:
        shown = await home.service.servers.show(["web"])
        await home.service.servers.pin([(each.name, each.digest) for each in shown], by="alice")


class _NoReturn(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def browse(address: str, *, stops: bool) -> str:
    """Open the address as a browser does. `stops`: it can't reach the machine of the command."""
    handlers = [_NoReturn()] if stops else []
    try:
        with urllib.request.build_opener(*handlers).open(address, timeout=10) as page:
            return str(page.url)
    except urllib.error.HTTPError as exc:
        return exc.headers.get("location") or str(exc)


def everything_below(folder: Path) -> str:
    """Every byte of a home, but for the folder of logins."""
    files = [each for each in folder.rglob("*") if each.is_file() and each.parent.name != "logins"]
    return "".join(each.read_bytes().decode(errors="replace") for each in files)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path / "home")
