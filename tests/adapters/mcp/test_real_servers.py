"""Servers from npm and PyPI, confined, pinned and called through a turn."""

import subprocess
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.real import (
    PLACE,
    called,
    home_with,
    needs_environment,
    npm_server,
    pin_all,
)

pytestmark = [needs_environment, pytest.mark.needs_system("bwrap"), pytest.mark.timeout(120)]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@in_loop
async def test_the_time_server(tmp_path: Path, work: Path) -> None:
    command = [str(PLACE / "bin/mcp-server-time"), "--local-timezone", "UTC"]
    async with holdfast.open(home_with(tmp_path, command, write=[])) as home:
        assert set(await pin_all(home)) == {"peer.convert_time", "peer.get_current_time"}
        kind, text = await called(home, work, "get_current_time", timezone="UTC")
        assert (kind, '"timezone": "UTC"' in text) == ("ok", True)
        kind, text = await called(home, work, "get_current_time", timezone="Nowhere/Nothing")
        assert kind == "error"


def repository(folder: Path) -> Path:
    repo = folder / "repo"
    git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "the first one"], check=True)
    return repo


@pytest.mark.needs_system("git")
def test_the_git_server(tmp_path: Path, work: Path) -> None:
    repo = repository(tmp_path)

    @in_loop
    async def story() -> None:
        command = [str(PLACE / "bin/mcp-server-git"), "--repository", str(repo)]
        async with holdfast.open(home_with(tmp_path, command, write=[repo])) as home:
            await pin_all(home)
            kind, text = await called(home, work, "git_log", repo_path=str(repo))
            assert (kind, "the first one" in text) == ("ok", True)
            kind, _ = await called(home, work, "git_status", repo_path=str(tmp_path / "home"))
            assert kind == "error"  # the home does not exist in the server's view

    story()


@in_loop
async def test_the_filesystem_server_sees_its_folder_and_no_other(
    tmp_path: Path, work: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_text("hello")
    (files / "out").symlink_to(tmp_path / "home" / "holdfast.toml")
    command = npm_server("filesystem", str(files))
    async with holdfast.open(home_with(tmp_path, command, write=[files])) as home:
        await pin_all(home)
        assert await called(home, work, "read_text_file", path=str(files / "a.txt")) == (
            "ok",
            "hello",
        )
        wrote = await called(home, work, "write_file", path=str(files / "b.txt"), content="b")
        assert (wrote[0], (files / "b.txt").read_text()) == ("ok", "b")
        for path in (files / "out", tmp_path / "home" / "holdfast.toml", Path("/etc/passwd")):
            assert (await called(home, work, "read_text_file", path=str(path)))[0] == "error"


@in_loop
async def test_the_memory_server(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_FILE_PATH", str(work / "memory.json"))
    command = npm_server("memory")
    more = 'env = ["MEMORY_FILE_PATH"]'
    async with holdfast.open(home_with(tmp_path, command, write=[work], more=more)) as home:
        await pin_all(home)
        entity = {"name": "a", "entityType": "thing", "observations": ["blue"]}
        assert (await called(home, work, "create_entities", entities=[entity]))[0] == "ok"
        kind, text = await called(home, work, "read_graph")
        assert (kind, "blue" in text) == ("ok", True)


@in_loop
async def test_the_everything_server(tmp_path: Path, work: Path) -> None:
    command = npm_server("everything")
    async with holdfast.open(home_with(tmp_path, command, write=[])) as home:
        await pin_all(home)
        assert await called(home, work, "echo", message="hi") == ("ok", "Echo: hi")
        kind, text = await called(home, work, "get-tiny-image")
        assert (kind, "[image image/png, 4035 bytes" in text) == ("ok", True)
        kind, text = await called(home, work, "get-resource-links", count=2)
        assert (kind, text.count("; not fetched]")) == ("ok", 2)
        kind, text = await called(home, work, "get-env")
        assert (kind, "HOLDFAST_HOME" in text, "HOLDFAST_TOOL" in text) == ("ok", False, True)
        kind, text = await called(home, work, "get-structured-content", location="New York")
        assert kind == "ok"
