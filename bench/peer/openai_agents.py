"""
OpenAI Agents SDK with its SQLite session; a pause is a RunState that the application keeps, here in
a file that it syncs.
"""

import asyncio
import os
import resource
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
    pragmas,
    ran,
)


def imports():
    import agents  # noqa: F401


def agent(ask):
    from agents import Agent, ModelResponse, Usage, function_tool
    from agents.models.interface import Model
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Instant(Model):
        calls = 0

        async def get_response(self, system_instructions, input, *_, **__):  # noqa: A002, ARG002
            last = input[-1] if isinstance(input, list) else {"content": input}
            if last.get("content") == "look":
                Instant.calls += 1
                call_id = f"c{os.getpid()}-{Instant.calls}"
                call = ResponseFunctionToolCall(
                    arguments='{"service":"api"}',
                    call_id=call_id,
                    name="service_status",
                    type="function_call",
                )
                return ModelResponse(output=[call], usage=Usage(), response_id=None)
            text = ResponseOutputText(
                annotations=[],
                text="It is up, and has been up since the night before.",
                type="output_text",
            )
            said = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *_, **__):
            raise NotImplementedError

    @function_tool(needs_approval=ask)
    def service_status(service: str) -> str:
        """Tell how one service is doing."""
        ran()
        return f"{service} is up"

    return Agent("ops", model=Instant(), tools=[service_status])


def item(number):
    return {"role": "user" if number % 2 == 0 else "assistant", "content": TEXT}


async def work(folder):
    from agents import Runner, SQLiteSession

    found = {"append": {}, "turn": {}, "list": NOT_OFFERED}
    path = folder / "agents.db"
    for length in LENGTHS:
        session = SQLiteSession(f"append{length}", path)
        await session.add_items([item(number) for number in range(length)])
        found["append"][length] = median_us(
            [await atimed(session.add_items([item(0)])) for _ in range(APPENDS)]
        )
    ops = agent(ask=False)
    for length in TURN_LENGTHS:
        session = SQLiteSession(f"turn{length}", path)
        await session.add_items([item(number) for number in range(length)])
        found["turn"][length] = median_us(
            [await atimed(Runner.run(ops, "look", session=session)) for _ in range(TURNS)]
        )
    session = SQLiteSession("append1000", path)
    found["load"] = median_us([await atimed(session.get_items()) for _ in range(LOADS)])
    found["durability"] = (
        pragmas(path)
        + "; a sync at every save of messages; a pause is kept by the application, here in a file with an fsync"
    )
    found["many"] = await crowd(folder / "many.db")
    parked = folder / "parked"
    parked.mkdir()
    found["pause"] = await pauses(parked)
    found["parked_bytes"] = on_disk(parked) / PARKED
    return found


async def pauses(parked):
    from agents import Runner, SQLiteSession

    asking = agent(ask=True)
    seconds = []
    for number in range(PARKED):
        started = time.perf_counter()
        result = await Runner.run(
            asking, "look", session=SQLiteSession(f"p{number}", parked / "p.db")
        )
        assert result.interruptions
        with (parked / f"p{number}.json").open("w") as file:
            file.write(result.to_state().to_string())
            file.flush()
            os.fsync(file.fileno())
        seconds.append(time.perf_counter() - started)
    return median_us(seconds)


async def crowd(path):
    from agents import SQLiteSession

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (most, most)
    )  # each session has a connection of its own for each thread that it meets
    sessions = [SQLiteSession(f"s{number}", path) for number in range(SESSIONS)]
    return await many(lambda number: sessions[number].add_items([item(0)]))


async def resume(folder):
    from agents import Runner, RunState, SQLiteSession

    ops = agent(ask=True)
    state = await RunState.from_string(ops, (folder / "parked" / "p0.json").read_text())
    for interruption in state.get_interruptions():
        state.approve(interruption)
    await Runner.run(ops, state, session=SQLiteSession("p0", folder / "parked" / "p.db"))


if __name__ == "__main__":
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    imported(imports)
    main(lambda folder: asyncio.run(work(folder)), lambda folder: asyncio.run(resume(folder)))
