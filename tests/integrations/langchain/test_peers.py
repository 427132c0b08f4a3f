"""LangGraph's own conformance suite, over `HoldfastSaver`; `make test-peers` prints its numbers."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import holdfast

pytest.importorskip("langgraph.checkpoint.conformance", reason="make test-integrations has it")


def test_the_checkpointer_keeps_langgraphs_own_contract(tmp_path: Path) -> None:
    from langgraph.checkpoint.conformance import checkpointer_test, validate

    from holdfast.integrations.langchain import HoldfastSaver

    homes = iter(range(1000))

    @checkpointer_test(name="HoldfastSaver")
    async def saver() -> AsyncGenerator[HoldfastSaver, None]:
        async with holdfast.open(tmp_path / str(next(homes))) as home:
            yield HoldfastSaver(home)

    report = asyncio.run(validate(saver))
    counts = {name: (each.tests_passed, each.tests_failed) for name, each in report.results.items()}
    print("passed and failed:", counts)  # noqa: T201  # the numbers are the point
    assert all(failed == 0 for _, failed in counts.values())
    assert sum(passed for passed, _ in counts.values()) == 81
