"""
`python -m bench.framework.saver`: a checkpoint of a conversation of 1,000 messages that grew by
one, by `HoldfastSaver` and by LangGraph's SQLite saver in the same run.
"""

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

import holdfast
from holdfast.integrations.langchain import HoldfastSaver

MESSAGES = 1_000
BLOCKS = 6  # of puts by one saver, one after another: a disk's cache is shared
BLOCK = 12
GOAL = 5.0


class Conversation:
    """A thread whose messages grow by one with each checkpoint."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver
        self._messages: list[BaseMessage] = [_message(number) for number in range(MESSAGES)]
        self._config: Any = {"configurable": {"thread_id": "bench/long", "checkpoint_ns": ""}}
        self._version: Any = None
        self._step = 0

    async def put(self) -> float:
        """Return the seconds that one checkpoint took."""
        self._step += 1
        self._messages = [*self._messages, HumanMessage("one more", id=f"m{self._step}")]
        self._version = self._saver.get_next_version(self._version, None)
        versions = {"messages": self._version}
        checkpoint: Any = {
            **empty_checkpoint(),
            "channel_values": {"messages": self._messages},
            "channel_versions": versions,
        }
        metadata: Any = {"source": "loop", "step": self._step}
        begun = time.perf_counter()
        self._config = await self._saver.aput(self._config, checkpoint, metadata, versions)
        return time.perf_counter() - begun


def _message(number: int) -> BaseMessage:
    """A person asks, the model calls a tool, the tool answers with 2 KB, the model says 700 bytes."""
    words = f"{number} as people write them, and as tools answer, in some lines of text "
    call = {"name": "look", "args": {"service": f"api-{number}"}, "id": f"c{number}"}
    match number % 4:
        case 0:
            return HumanMessage(words * 2, id=str(number))
        case 1:
            return AIMessage("", tool_calls=[call], id=str(number))
        case 2:
            return ToolMessage(words * 30, tool_call_id=f"c{number - 1}", id=str(number))
        case _:
            return AIMessage(words * 10, id=str(number))


async def measure(folder: Path) -> dict[str, Any]:
    async with (
        holdfast.open(folder / "home") as home,
        AsyncSqliteSaver.from_conn_string(str(folder / "sqlite.db")) as sqlite,
    ):
        threads = {"ours": Conversation(HoldfastSaver(home)), "sqlite": Conversation(sqlite)}
        found: dict[str, list[float]] = {each: [] for each in threads}
        for block in range(BLOCKS):
            for name, thread in threads.items():
                costs = [await thread.put() * 1e3 for _ in range(BLOCK)]
                # The first ones of a block wait for the other's writes, or write everything.
                found[name] += costs[2:] if block else []
    p50 = {name: statistics.median(costs) for name, costs in found.items()}
    return {
        "checkpoint": f"at {MESSAGES} messages",
        "ours_ms": round(p50["ours"], 2),
        "sqlite_ms": round(p50["sqlite"], 2),
        "cheaper": round(p50["sqlite"] / p50["ours"], 1),
        "reached": p50["sqlite"] / p50["ours"] >= GOAL,
    }


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        print(json.dumps(asyncio.run(measure(Path(folder)))), flush=True)


if __name__ == "__main__":
    main()
