"""
Servers from npm and PyPI behind Holdfast, used by the SDK's own client: over `/mcp` and through
`holdfast mcp proxy`, each in both current ways to speak.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from holdfast.testing.loop import in_loop
from tests.adapters.mcp.real import PLACE, home_with, needs_environment, npm_server
from tests.adapters.mcp.served import serving
from tests.adapters.mcp.test_real_servers import repository

pytestmark = [needs_environment, pytest.mark.needs_system("bwrap"), pytest.mark.timeout(240)]

WAYS = [(wire, way) for wire in ("legacy", "2026-07-28") for way in ("http", "stdio")]
Use = Callable[[Client, int], Awaitable[None]]


def used(home: Path, use: Use) -> None:
    """Let the SDK's client use the server in every way. `use` gets the number of the way."""
    with serving(home) as served:

        @in_loop
        async def story() -> None:
            for number, (wire, way) in enumerate(WAYS):
                async with served.client(wire, way) as client:
                    await use(client, number)

        story()


def text_of(result: Any) -> str:
    assert not result.is_error, result
    return "\n".join(part.text for part in result.content if part.type == "text")


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


def test_the_time_server(tmp_path: Path) -> None:
    command = [str(PLACE / "bin/mcp-server-time"), "--local-timezone", "UTC"]

    async def use(client: Client, number: int) -> None:
        del number
        assert await names(client) == {"convert_time", "get_current_time", "holdfast.outcome"}
        now = await client.call_tool("get_current_time", {"timezone": "UTC"})
        assert '"timezone": "UTC"' in text_of(now)
        assert (await client.call_tool("get_current_time", {"timezone": "Nowhere"})).is_error

    used(home_with(tmp_path, command, write=[]), use)


@pytest.mark.needs_system("git")
def test_the_git_server(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    command = [str(PLACE / "bin/mcp-server-git"), "--repository", str(repo)]

    async def use(client: Client, number: int) -> None:
        del number
        log = await client.call_tool("git_log", {"repo_path": str(repo)})
        assert "the first one" in text_of(log)

    used(home_with(tmp_path, command, write=[repo]), use)


def test_the_filesystem_server(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_text("hello")

    async def use(client: Client, number: int) -> None:
        read = await client.call_tool("read_text_file", {"path": str(files / "a.txt")})
        assert text_of(read) == "hello"
        new = files / f"{number}.txt"
        text_of(await client.call_tool("write_file", {"path": str(new), "content": "new"}))
        assert new.read_text() == "new"
        outside = {"path": str(tmp_path / "home" / "holdfast.toml")}
        assert (await client.call_tool("read_text_file", outside)).is_error

    used(home_with(tmp_path, npm_server("filesystem", str(files)), write=[files]), use)


def test_the_memory_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("MEMORY_FILE_PATH", str(work / "memory.json"))

    async def use(client: Client, number: int) -> None:
        entity = {"name": f"n{number}", "entityType": "thing", "observations": ["blue"]}
        text_of(await client.call_tool("create_entities", {"entities": [entity]}))
        graph = text_of(await client.call_tool("read_graph", {}))
        assert [f'"n{each}"' in graph for each in range(number + 2)] == [True] * (number + 1) + [
            False
        ]

    more = 'env = ["MEMORY_FILE_PATH"]'
    used(home_with(tmp_path, npm_server("memory"), write=[work], more=more), use)


def test_the_everything_server(tmp_path: Path) -> None:
    async def use(client: Client, number: int) -> None:
        echo = await client.call_tool("echo", {"message": f"hi {number}"})
        assert text_of(echo) == f"Echo: hi {number}"
        image = await client.call_tool("get-tiny-image", {})
        assert "image" in [part.type for part in image.content]
        assert len((await client.list_resources()).resources) > 0
        assert "simple-prompt" in [each.name for each in (await client.list_prompts()).prompts]
        assert (await client.get_prompt("simple-prompt")).messages

    more = 'relay = ["resources", "prompts"]'
    used(home_with(tmp_path, npm_server("everything"), write=[], more=more), use)
