"""The tool that returns the time, which everybody may know."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from holdfast.adapters.tools.builtin.base import Builtin, definition_of
from holdfast.adapters.tools.python.arguments import ArgumentTypes
from holdfast.session.authority.plan import Binding


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def now(now_ms: Callable[[], int] = wall_ms) -> Builtin:
    types = ArgumentTypes("now", {})
    definition = definition_of(
        "now",
        "Tell the current date and time in UTC.",
        types,
        contract="pure",
        mode="auto",
        kind="plain",
        audience="public",
    )
    return Builtin(
        definition,
        types,
        check=lambda _values: None,
        bind=lambda _values, _scene: Binding(display="tell the time"),
        work=lambda _values, _binding, _scene: datetime.fromtimestamp(
            now_ms() / 1000, UTC
        ).isoformat(timespec="seconds"),
    )
