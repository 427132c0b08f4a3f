"""Where a call of a server's tool is bound: in the event loop's thread once that reads nothing."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.mcp.tool import PinnedTool
from holdfast.adapters.tools.shell.confinement.isolation import Obstacle
from holdfast.adapters.tools.shell.confinement.levels import Confinement, Level, bare_scene
from holdfast.ports.tool_servers import ToolServer
from holdfast.ports.tools import CannotBind, Scene
from holdfast.session.authority.plan import Binding
from holdfast.session.home.events import ToolPinned
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import ECHO, Rig, asked

PIN = ToolPinned(
    server="x", tool="echo", digest="d", definition=json.dumps(ECHO), instructions="",
    identity="stdio", by="alice",
)  # fmt: skip


class OneLevel:
    """A server that runs at this level. Nothing is asked or called while a prompt is made."""

    def __init__(self, level: Level | None) -> None:
        self._level = level

    def confinement(self, server: str) -> Confinement | None:
        del server
        if self._level is None:
            return None
        lacking = Obstacle(cause="a", remedy="b")
        return Confinement(
            level=self._level, obstacle=None if self._level == "isolated" else lacking
        )

    async def check(self, pin: ToolPinned) -> Any:
        raise AssertionError(pin)

    async def call(self, pin: ToolPinned, arguments: bytes, **options: Any) -> Any:
        raise AssertionError(pin, arguments, options)


@pytest.mark.parametrize(
    ("level", "quickly"),
    [("isolated", True), (None, True), ("limited", False), ("unconfined", False)],
)
def test_the_first_binding_may_have_to_try_the_confinement(
    tmp_path: Path, level: Level | None, quickly: bool
) -> None:
    tool = PinnedTool(PIN, ToolServer(command=("/bin/cat",)), OneLevel(level))
    assert not tool.binds_quickly
    for _ in range(2):
        tool.bind(b'{"text":"hi"}', bare_scene(str(tmp_path), None))
        assert tool.binds_quickly == quickly


@pytest.mark.needs_system("bwrap")
@in_loop
async def test_only_a_short_call_is_bound_in_the_loops_thread(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, bind = threading.get_ident(), PinnedTool.bind
    in_loops_thread: set[bool] = set()

    def seen(tool: PinnedTool, arguments: bytes, scene: Scene) -> Binding:
        in_loops_thread.add(threading.get_ident() == here)
        return bind(tool, arguments, scene)

    monkeypatch.setattr(PinnedTool, "bind", seen)
    async with rig.pinned() as home:
        for number, (text, expected) in enumerate(
            [("first", False), ("second", True), ("x" * 17_000, False)]
        ):
            in_loops_thread.clear()
            await asked(home, f"wire.echo text={text}", f"ops/s{number}")
            assert in_loops_thread == {expected}, text[:20]


@pytest.mark.needs_system("bwrap")
@in_loop
async def test_a_server_that_settings_no_longer_name_binds_nothing(rig: Rig) -> None:
    """Settings may change between the choice of the tool and its binding."""
    async with rig.pinned() as home:
        tool = home.service.runtime.world.tools.get("wire.echo")
        assert tool is not None
        rig.home.joinpath("holdfast.toml").write_text("[agents.ops]\ntools = []\n")
        with pytest.raises(CannotBind, match="no setting names the server wire"):
            tool.bind(b'{"text":"hi"}', bare_scene(str(rig.work), None))
