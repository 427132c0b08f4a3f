"""A home with a key in it, a workspace, and ways to bind and run one call in them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.ids import CallId, InstanceId, SessionId, TurnId
from holdfast.ports.tools import Scene, Tool, ToolReturned

KEY = "key-material-5c0ffee5"


def encode(**arguments: Any) -> bytes:
    return msgspec.json.encode(arguments)


class Place:
    """One home and one workspace on disk."""

    def __init__(self, root: Path, *, home: str = "home", workspace: str = "ws") -> None:
        self.root, self.home, self.workspace = root, root / home, root / workspace
        (self.home / "keys").mkdir(parents=True)
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.key = self.home / "keys" / "1.key"
        self.key.write_text(KEY)
        self.key.chmod(0o600)

    def scene(self, **changes: Any) -> Scene:
        facts: dict[str, Any] = {
            "session": SessionId("local/test"),
            "instance": InstanceId("i-1"),
            "turn": TurnId("t1"),
            "call": CallId(f"c-{abs(hash(str(self.root))):x}"),
            "workspace": str(self.workspace),
            "requester": "alice",
            "audience": "personal",
            "boundary": "personal:alice",
            "home": str(self.home),
        }
        return Scene(**{**facts, **changes})


def run(
    tool: Tool,
    scene: Scene,
    *,
    timeout_seconds: float = 60.0,
    on_output: Callable[[bytes], None] | None = None,
    **arguments: Any,
) -> ToolReturned:
    """Validate, bind, prepare and go, as the runtime would."""

    async def whole() -> ToolReturned:
        checked = tool.validate(encode(**arguments))
        binding = tool.bind(checked, scene)
        prepared = await tool.prepare(checked, binding, scene, idempotency_key="k-1")
        return await prepared.go(
            timeout_seconds=timeout_seconds, on_output=on_output or (lambda _: None)
        )

    return asyncio.run(whole())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(name="run")
def run_fixture() -> Callable[..., ToolReturned]:
    return run


@pytest.fixture
def make_place() -> type[Place]:
    return Place


@pytest.fixture(name="encode")
def encode_fixture() -> Callable[..., bytes]:
    return encode
