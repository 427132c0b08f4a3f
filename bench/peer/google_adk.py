"""Google ADK with its SQLite session service. Its confirmations need a client that answers in the stream, so no cold resume is measured."""

import asyncio
import logging
import time

from work import APPENDS, EACH, LENGTHS, SESSIONS, TASKS, TEXT, TURN_LENGTHS, TURNS, imported, main, median_us, pragmas


def imports():
    import google.adk.agents
    import google.adk.runners
    import google.adk.sessions.sqlite_session_service  # noqa: F401


def event(number, text=TEXT):
    from google.adk.events import Event
    from google.genai import types

    role = "user" if number % 2 == 0 else "model"
    return Event(author="user" if role == "user" else "ops", content=types.Content(role=role, parts=[types.Part(text=text)]))


async def atimed(work):
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def filled(service, name, length):
    session = await service.create_session(app_name="bench", user_id="alice", session_id=name)
    for number in range(length):
        await service.append_event(session, event(number))
    return session


async def work(folder):
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    path = str(folder / "adk.db")
    service = SqliteSessionService(path)
    found = {"append": {}, "turn": {}}
    session = await service.create_session(app_name="bench", user_id="alice", session_id="append")
    length = 0
    for wanted in LENGTHS:
        if wanted > 1_000:
            break  # filled one append at a time, which would take minutes
        while length < wanted:
            await service.append_event(session, event(length))
            length += 1
        seconds = [await atimed(service.append_event(session, event(0))) for _ in range(APPENDS)]
        length += APPENDS
        found["append"][wanted] = median_us(seconds)
    found["load"] = median_us([await atimed(service.get_session(app_name="bench", user_id="alice", session_id="append")) for _ in range(10)])
    for wanted in TURN_LENGTHS:
        found["turn"][wanted] = await turns(service, wanted)
    found["durability"] = pragmas(path)
    found["many"] = await many(str(folder / "many.db"))
    return found


async def turns(service, length):
    from google.adk.agents import Agent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import Runner
    from google.genai import types

    class Instant(BaseLlm):
        async def generate_content_async(self, llm_request, **_):
            last = llm_request.contents[-1].parts[-1]
            if last.text == "look":
                part = types.Part(function_call=types.FunctionCall(name="service_status", args={"service": "api"}))
            else:
                part = types.Part(text="It is up, and has been up since the night before.")
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    def service_status(service: str) -> str:
        """Tell how one service is doing."""
        return f"{service} is up"

    ops = Agent(name="ops", model=Instant(model="instant"), tools=[service_status])
    runner = Runner(app_name="bench", agent=ops, session_service=service)
    await filled(service, f"turn{length}", length)
    seconds = []
    for _ in range(TURNS // 2):
        started = time.perf_counter()
        message = types.Content(role="user", parts=[types.Part(text="look")])
        said = [each async for each in runner.run_async(user_id="alice", session_id=f"turn{length}", new_message=message)]
        assert len(said) == 3, said
        seconds.append(time.perf_counter() - started)
    return median_us(seconds)


async def many(path):
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    service = SqliteSessionService(path)
    sessions = [await service.create_session(app_name="bench", user_id="alice", session_id=f"s{number}") for number in range(SESSIONS)]

    async def task(mine):
        for _ in range(EACH):
            for session in mine:
                await service.append_event(session, event(0))

    started = time.perf_counter()
    try:
        await asyncio.gather(*(task(sessions[start::TASKS]) for start in range(TASKS)))
    except Exception as exc:  # noqa: BLE001  told in the table as it is
        return f"failed: {type(exc).__name__}"
    return SESSIONS * EACH / (time.perf_counter() - started)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    import_seconds = imported(imports)
    main(lambda folder: {"import": import_seconds, **asyncio.run(work(folder))}, None)
