"""Where a call of a server's tool is bound: in the event loop's thread once that reads nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.mcp.tool import PinnedTool
from holdfast.adapters.tools.shell.confinement.isolation import Obstacle
from holdfast.adapters.tools.shell.confinement.levels import Confinement, Level, bare_scene
from holdfast.ports.tool_servers import ToolServer
from holdfast.session.home.events import ToolPinned
from tests.adapters.mcp.conftest import ECHO

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
