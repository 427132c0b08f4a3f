"""
Google ADK with its SQLite session service; a tool that asks first is one that needs its
confirmation.
"""

import asyncio
import logging
import sqlite3
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

WHO = {"app_name": "bench", "user_id": "alice"}


def imports():
    import google.adk.agents
    import google.adk.runners
    import google.adk.sessions.sqlite_session_service  # noqa: F401


def event(number):
    from google.adk.events import Event
    from google.genai import types

    role = "user" if number % 2 == 0 else "model"
    return Event(
        author="user" if role == "user" else "ops",
        content=types.Content(role=role, parts=[types.Part(text=TEXT)]),
    )


def sessions_at(path):
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    return SqliteSessionService(str(path))


async def filled(service, path, name, length):
    """
    A session of that many events: two by the service, the others as copies of their rows, which is
    the same history sooner.
    """
    session = await service.create_session(**WHO, session_id=name)
    for number in range(2):
        await service.append_event(session, event(number))
    with sqlite3.connect(path) as db:
        rows = db.execute(
            "SELECT app_name, user_id, session_id, invocation_id, timestamp, event_data FROM events WHERE session_id = ?",
            (name,),
        )
        pair = rows.fetchall()
        more = [(f"copy-{number}", *pair[number % 2]) for number in range(length - 2)]
        db.executemany(
            "INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data) VALUES (?,?,?,?,?,?,?)",
            more,
        )
    db.close()
    found = await service.get_session(**WHO, session_id=name)
    assert len(found.events) == length
    return found


async def work(folder):
    path = folder / "adk.db"
    service = sessions_at(path)
    found = {"append": {}, "turn": {}, "list": NOT_OFFERED}
    for length in LENGTHS:
        session = await filled(service, path, f"append{length}", length)
        found["append"][length] = median_us(
            [await atimed(service.append_event(session, event(0))) for _ in range(APPENDS)]
        )
    found["load"] = median_us(
        [await atimed(service.get_session(**WHO, session_id="append1000")) for _ in range(LOADS)]
    )
    for length in TURN_LENGTHS:
        await filled(service, path, f"turn{length}", length)
        found["turn"][length] = await turns(
            service, f"turn{length}", TURNS if length < 1_000 else TURNS // 2
        )
    found["durability"] = pragmas(path) + "; a sync at every event"
    found["many"] = await crowd(folder / "many.db")
    parked = folder / "parked"
    parked.mkdir()
    found["pause"] = await pauses(sessions_at(parked / "p.db"))
    found["parked_bytes"] = on_disk(parked) / PARKED
    return found


def runner(service, ask):
    from google.adk.agents import Agent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import Runner
    from google.adk.tools import FunctionTool
    from google.genai import types

    class Instant(BaseLlm):
        async def generate_content_async(self, llm_request, **_):
            last = llm_request.contents[-1].parts[-1]
            if last.text == "look":
                part = types.Part(
                    function_call=types.FunctionCall(name="service_status", args={"service": "api"})
                )
            else:
                part = types.Part(text="It is up, and has been up since the night before.")
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    def service_status(service: str) -> str:
        """Tell how one service is doing."""
        ran()
        return f"{service} is up"

    ops = Agent(
        name="ops",
        model=Instant(model="instant"),
        tools=[FunctionTool(service_status, require_confirmation=ask)],
    )
    return Runner(app_name="bench", agent=ops, session_service=service)


async def said(runner, name, part):
    from google.genai import types

    message = types.Content(role="user", parts=[part])
    return [
        each
        async for each in runner.run_async(user_id="alice", session_id=name, new_message=message)
    ]


async def turns(service, name, times):
    from google.genai import types

    running = runner(service, ask=False)
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        events = await said(running, name, types.Part(text="look"))
        seconds.append(time.perf_counter() - started)
        assert len(events) == 3, events
    return median_us(seconds)


async def pauses(service):
    from google.genai import types

    running = runner(service, ask=True)
    seconds = []
    for number in range(PARKED):
        started = time.perf_counter()
        await service.create_session(**WHO, session_id=f"p{number}")
        events = await said(running, f"p{number}", types.Part(text="look"))
        seconds.append(time.perf_counter() - started)
        assert any(each.long_running_tool_ids for each in events), events
    return median_us(seconds)


async def crowd(path):
    service = sessions_at(path)
    sessions = [
        await service.create_session(**WHO, session_id=f"s{number}") for number in range(SESSIONS)
    ]
    return await many(lambda number: service.append_event(sessions[number], event(0)))


async def resume(folder):
    from google.genai import types

    service = sessions_at(folder / "parked" / "p.db")
    session = await service.get_session(**WHO, session_id="p0")
    asked = next(
        call
        for each in session.events
        for call in each.get_function_calls()
        if call.name == "adk_request_confirmation"
    )
    answer = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": True})
    await said(runner(service, ask=True), "p0", types.Part(function_response=answer))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    imported(imports)
    main(lambda folder: asyncio.run(work(folder)), lambda folder: asyncio.run(resume(folder)))
