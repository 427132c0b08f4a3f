"""Claude's own contract of session stores, over `HoldfastStore`; `make test-peers` runs it."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import holdfast

pytest.importorskip("claude_agent_sdk", reason="make test-integrations has it")


def test_the_store_keeps_claudes_own_contract(tmp_path: Path) -> None:
    from claude_agent_sdk.testing import run_session_store_conformance

    from holdfast.integrations.claude import HoldfastStore

    homes = iter(range(1000))

    async def story() -> None:
        async with AsyncExitStack() as stack:

            async def store() -> Any:
                folder = tmp_path / str(next(homes))
                return HoldfastStore(await stack.enter_async_context(holdfast.open(folder)))

            await run_session_store_conformance(store, skip_optional=frozenset())

    asyncio.run(story())
    # The suite makes one store to look at, and one per contract that it holds the store to.
    kept = next(homes) - 1
    print(f"contracts kept: {kept} of 14")  # noqa: T201  # the number is the point
    assert kept == 14


def test_an_entry_that_comes_again_is_kept_once_also_by_the_next_process(tmp_path: Path) -> None:
    from holdfast.integrations.claude import HoldfastStore

    key = {"project_key": "p", "session_id": "s"}

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            await HoldfastStore(home).append(key, [{"type": "x", "uuid": "1"}, {"type": "title"}])
        async with holdfast.open(tmp_path) as home:
            store = HoldfastStore(home)
            await store.append(key, [{"type": "x", "uuid": "1"}, {"type": "title"}])
            assert await store.load(key) == [{"type": "x", "uuid": "1"}, *[{"type": "title"}] * 2]

    asyncio.run(story())
