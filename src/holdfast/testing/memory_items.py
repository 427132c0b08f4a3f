"""Memory items for tests."""

from typing import Any

import msgspec

from holdfast.ids import CallId, InstanceId, MemoryId, SessionId, TurnId
from holdfast.session.features.memory.items import MemoryItem


def item(name: str, text: str = "the door code is 4711", **changed: Any) -> MemoryItem:
    """Return a clean item of Alice's, with the given fields changed."""
    whole = MemoryItem(
        id=MemoryId(f"m-{name}"),
        text=text,
        audience="personal",
        boundary="personal:alice",
        person="alice",
        authenticity="verified",
        tainted=False,
        kind="message",
        session=SessionId("local/notes"),
        instance=InstanceId("i-first"),
        turn=TurnId("t1"),
        call=CallId(f"c-{name}"),
        created_at=1_800_000_000_000,
    )
    return msgspec.structs.replace(whole, **changed)
