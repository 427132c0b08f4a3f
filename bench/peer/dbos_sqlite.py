"""
DBOS on SQLite: a session is a workflow, a message a step of it, a turn a workflow of three steps, a
pause a wait for a message to the workflow.
"""

import asyncio
import contextlib
import json
import logging
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
    TURNS,
    imported,
    main,
    many,
    median_us,
    on_disk,
    pragmas,
    ran,
    timed,
)


def imports():
    import dbos  # noqa: F401


imported(imports)

from dbos import DBOS, SetWorkflowID  # noqa: E402

TIMES = {}  # by length of history


@DBOS.step()
def say(text: str) -> str:
    return text


@DBOS.step()
async def say_soon(text: str) -> str:
    return text


@DBOS.step()
def service_status(service: str) -> str:
    ran()
    return f"{service} is up"


@DBOS.workflow()
def steps(lengths: list[int]) -> None:
    for length in lengths:
        lay_down(length)
        TIMES[length] = [timed(lambda: say(TEXT)) for _ in range(APPENDS)]


def lay_down(length):
    """
    The running workflow has that many steps: its first by itself, the others as copies of that
    one's row, which is the same history sooner.
    """
    from dbos._context import get_local_dbos_context
    from dbos._dbos import _get_dbos_instance

    context = get_local_dbos_context()
    if context.function_id == 0:
        say(TEXT)
    with _get_dbos_instance()._sys_db.engine.begin() as db:
        columns = [row[1] for row in db.exec_driver_sql("PRAGMA table_info(operation_outputs)")]
        copied = ", ".join("?" if column == "function_id" else column for column in columns)
        copy = f"INSERT INTO operation_outputs ({', '.join(columns)}) SELECT {copied} FROM operation_outputs WHERE workflow_uuid = ? AND function_id = 1"  # noqa: S608
        more = [
            (number, context.workflow_id) for number in range(context.function_id + 1, length + 1)
        ]
        if more:
            db.exec_driver_sql(copy, more)
    context.function_id = max(context.function_id, length)


@DBOS.workflow()
def turn() -> str:
    say("call the tool")
    service_status("api")
    return say("It is up, and has been up since the night before.")


@DBOS.workflow()
async def asking() -> str:
    await say_soon("call the tool")
    if await DBOS.recv_async("answer", timeout_seconds=3600) == "yes":
        service_status("api")
    return await say_soon("done")


@DBOS.workflow()
async def session(number: int) -> None:
    """Waits in memory for what it shall keep, and keeps it as a step."""
    while (text := await INBOX[number].get()) is not None:
        await say_soon(text)
        INBOX[number].task_done()


INBOX: list[asyncio.Queue] = []


@contextlib.contextmanager
def without_syncs():
    """
    Sessions begin and end without waiting for the disk; what is measured is between, on connections
    that have not heard of it.
    """
    from dbos._dbos import _get_dbos_instance
    from sqlalchemy import event

    engine = _get_dbos_instance()._sys_db.engine

    def quick(connection):
        connection.exec_driver_sql("PRAGMA synchronous=OFF")

    event.listen(engine, "begin", quick)
    try:
        yield
    finally:
        event.remove(engine, "begin", quick)
        engine.dispose()


def launch(folder):
    url = f"sqlite:///{folder / 'dbos.sqlite'}"
    config = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "run_admin_server": False,
        "application_version": "1",
        "executor_id": "bench",
    }
    DBOS(config=config)
    DBOS.launch()


def work(folder):
    launch(folder)
    found = {}
    with SetWorkflowID("short"):
        steps([1_000])
    assert len(DBOS.list_workflow_steps("short")) == 1_000 + APPENDS
    found["load"] = median_us(
        [timed(lambda: DBOS.list_workflow_steps("short", limit=1_000)) for _ in range(LOADS)]
    )
    with SetWorkflowID("steps"):
        steps(list(LENGTHS))
    assert len(DBOS.list_workflow_steps("steps")) == LENGTHS[-1] + APPENDS
    found["append"] = {length: median_us(seconds) for length, seconds in TIMES.items()}
    found["turn"] = {10: median_us([timed(turn) for _ in range(TURNS)]), 1_000: NOT_OFFERED}
    found["durability"] = pragmas(folder / "dbos.sqlite") + "; a sync at every step"
    asyncio.run(together(folder, found))


async def together(folder, found):
    found["many"] = await crowd()
    before = on_disk(folder)
    seconds = []
    for number in range(PARKED):
        started = time.perf_counter()
        with SetWorkflowID(f"p{number}"):
            await DBOS.start_workflow_async(asking)
        while not await DBOS.list_workflow_steps_async(f"p{number}"):  # noqa: ASYNC110  nothing else tells that it got there
            await asyncio.sleep(0.0005)
        seconds.append(time.perf_counter() - started)
    found["pause"] = median_us(seconds)
    found["parked_bytes"] = (on_disk(folder) - before) / PARKED
    started = time.perf_counter()
    waiting = [
        each
        for each in await DBOS.list_workflows_async(status="PENDING")
        if each.workflow_id.startswith("p")
    ]
    assert len(waiting) == PARKED
    found["list"] = (time.perf_counter() - started) * 1e6
    # Leave without waiting for those that are parked: they are what the cold resume goes on with.
    print(json.dumps(found), flush=True)
    os._exit(0)


async def crowd():
    INBOX.extend(asyncio.Queue() for _ in range(SESSIONS))
    handles = []
    with without_syncs():
        for number in range(SESSIONS):
            with SetWorkflowID(f"s{number}"):
                handles.append(await DBOS.start_workflow_async(session, number))

    async def append(number):
        INBOX[number].put_nowait(TEXT)
        await INBOX[number].join()

    rate = await many(append)
    with without_syncs():
        for number, handle in enumerate(handles):
            INBOX[number].put_nowait(None)
            await handle.get_result()
    return rate


def resume(folder):
    launch(folder)  # recovers what was pending
    DBOS.send("p0", "yes", "answer")
    DBOS.retrieve_workflow("p0").get_result()
    os._exit(0)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main(work, resume)
