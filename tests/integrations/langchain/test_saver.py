"""Checkpoints in the journal, beyond what LangGraph's own suite asks for."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast

pytest.importorskip("langgraph", reason="make test-integrations has it")


def checkpoint(values: dict[str, Any], version: str) -> Any:
    from langgraph.checkpoint.base import empty_checkpoint

    versions = dict.fromkeys(values, version)
    return {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}


def test_a_growing_list_is_stored_as_its_new_part_and_read_whole_by_the_next_process(
    tmp_path: Path,
) -> None:
    from langchain_core.messages import HumanMessage

    from holdfast.integrations.langchain import HoldfastSaver

    async def story() -> None:
        messages = [HumanMessage(f"message {n}", id=str(n)) for n in range(200)]
        config: Any = {"configurable": {"thread_id": "A thread, any name", "checkpoint_ns": ""}}
        async with holdfast.open(tmp_path) as home:
            saver, version = HoldfastSaver(home), None
            for n in range(70):  # more than one list may build on
                messages = [*messages, HumanMessage(f"more {n}", id=f"m{n}")]
                version = saver.get_next_version(version, None)
                put = checkpoint({"messages": messages, "n": n}, version)
                new = {"messages": version, "n": version}
                config = await saver.aput(config, put, {"source": "loop", "step": n}, new)
            (line,) = await home.sessions()
            sizes = [
                len(each.blob)
                for each in await home.items(line.session, adapter="langgraph/1").list()
                if '"messages"' in each.key
            ]
            assert sum(size > 10_000 for size in sizes) == 2
        async with holdfast.open(tmp_path) as home:
            found = await HoldfastSaver(home).aget_tuple(config)
            assert found is not None
            assert found.checkpoint["channel_values"] == {"messages": messages, "n": 69}
            changed = [messages[0], HumanMessage("other", id="x"), *messages[2:]]
            saver = HoldfastSaver(home)
            put = checkpoint({"messages": changed}, "9" * 32)
            config = await saver.aput(config, put, {}, {"messages": "9" * 32})
            again = await saver.aget_tuple(config)
            assert again is not None
            assert again.checkpoint["channel_values"]["messages"] == changed

    asyncio.run(story())


def test_a_checkpoint_that_holds_a_known_secret_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.integrations.langchain import HoldfastSaver

    monkeypatch.setenv("CRM_PASSWORD", "tzg7-kx92-plqw-0042")
    (tmp_path / "holdfast.toml").write_text('[secrets]\nenv = ["CRM_PASSWORD"]\n')

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            saver = HoldfastSaver(home)
            put = checkpoint({"note": "the password is tzg7-kx92-plqw-0042"}, "1")
            config: Any = {"configurable": {"thread_id": "t/1", "checkpoint_ns": ""}}
            with pytest.raises(holdfast.Refused, match="langgraph/1") as refused:
                await saver.aput(config, put, {}, {"note": "1"})
            assert refused.value.code == "secret"
            assert await saver.aget_tuple(config) is None

    asyncio.run(story())
