"""
Pydantic AI with its message history as JSON, in a file for each session that the application
replaces: written whole, synced and renamed at every save. A pause is a deferred tool call in it.
"""

import asyncio
import os
import time

from work import (
    APPENDS,
    LENGTHS,
    LOADS,
    NOT_OFFERED,
    PARKED,
    SESSIONS,
    TEXT,
    TURN_LENGTHS,
    TURNS,
    atimed,
    imported,
    main,
    many,
    median_us,
    on_disk,
    ran,
)


def imports():
    import pydantic_ai  # noqa: F401


def agent(ask):
    from pydantic_ai import Agent, DeferredToolRequests
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    async def instant(messages, _info):
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(
                parts=[TextPart("It is up, and has been up since the night before.")]
            )
        return ModelResponse(parts=[ToolCallPart("service_status", {"service": "api"})])

    made = Agent(FunctionModel(instant), output_type=[str, DeferredToolRequests])

    @made.tool_plain(requires_approval=ask)
    def service_status(service: str) -> str:
        """Tell how one service is doing."""
        ran()
        return f"{service} is up"

    return made


def message(number):
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

    if number % 2 == 0:
        return ModelRequest(parts=[UserPromptPart(TEXT)])
    return ModelResponse(parts=[TextPart(TEXT)])


def load(path):
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return ModelMessagesTypeAdapter.validate_json(path.read_bytes()) if path.exists() else []


def save(path, messages):
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    temporary = path.with_suffix(".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, ModelMessagesTypeAdapter.dump_json(messages))
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.rename(path)


async def append(path, number):
    save(path, [*load(path), message(number)])


async def turn(ops, path):
    result = await ops.run("look", message_history=load(path))
    save(path, result.all_messages())
    return result


async def work(folder):
    found = {"append": {}, "turn": {}, "list": NOT_OFFERED}
    for length in LENGTHS:
        path = folder / f"append{length}.json"
        save(path, [message(number) for number in range(length)])
        found["append"][length] = median_us(
            [await atimed(append(path, length)) for _ in range(APPENDS)]
        )
    ops = agent(ask=False)
    for length in TURN_LENGTHS:
        path = folder / f"turn{length}.json"
        save(path, [message(number) for number in range(length)])
        found["turn"][length] = median_us([await atimed(turn(ops, path)) for _ in range(TURNS)])
    found["load"] = median_us([await loaded(folder / "append1000.json") for _ in range(LOADS)])
    found["durability"] = (
        "one JSON file for each session, written whole by the application, with an fsync and a "
        "rename at every save"
    )
    crowd = folder / "many"
    crowd.mkdir()
    paths = [crowd / f"{number}.json" for number in range(SESSIONS)]
    found["many"] = await many(lambda number: append(paths[number], 0))
    parked = folder / "parked"
    parked.mkdir()
    found["pause"] = await pauses(parked)
    found["parked_bytes"] = on_disk(parked) / PARKED
    return found


async def loaded(path):
    started = time.perf_counter()
    load(path)
    return time.perf_counter() - started


async def pauses(parked):
    from pydantic_ai import DeferredToolRequests

    asking = agent(ask=True)
    seconds = []
    for number in range(PARKED):
        started = time.perf_counter()
        result = await turn(asking, parked / f"p{number}.json")
        seconds.append(time.perf_counter() - started)
        assert isinstance(result.output, DeferredToolRequests)
    return median_us(seconds)


async def resume(folder):
    from pydantic_ai import DeferredToolResults

    messages = load(folder / "parked" / "p0.json")
    calls = [part.tool_call_id for part in messages[-1].parts if part.part_kind == "tool-call"]
    answers = DeferredToolResults(approvals=dict.fromkeys(calls, True))
    await agent(ask=True).run(message_history=messages, deferred_tool_results=answers)


if __name__ == "__main__":
    imported(imports)
    main(lambda folder: asyncio.run(work(folder)), lambda folder: asyncio.run(resume(folder)))
