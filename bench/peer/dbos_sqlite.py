"""DBOS on SQLite: a turn is a workflow of steps, a pause waits for a message to the workflow."""

import logging
import sys
import time

from work import APPENDS, PARKED, TEXT, TURNS, imported, main, median_us, on_disk, pragmas, ran


def imports():
    import dbos  # noqa: F401


import_seconds = imported(imports)

from dbos import DBOS, SetWorkflowID  # noqa: E402

TIMES: dict[int, list[float]] = {10: [], 100: [], 1000: []}


@DBOS.step()
def say(text: str) -> str:
    return text


@DBOS.step()
def service_status(service: str) -> str:
    ran()
    return f"{service} is up"


@DBOS.workflow()
def steps() -> None:
    done = 0
    for length, seconds in TIMES.items():
        while done < length:
            say(TEXT)
            done += 1
        for _ in range(APPENDS):
            started = time.perf_counter()
            say(TEXT)
            seconds.append(time.perf_counter() - started)
            done += 1


@DBOS.workflow()
def turn() -> str:
    say("call the tool")
    service_status("api")
    return say("It is up, and has been up since the night before.")


@DBOS.workflow()
def asking() -> str:
    say("call the tool")
    if DBOS.recv("answer", timeout_seconds=3600) == "yes":
        service_status("api")
    return say("done")


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
    with SetWorkflowID("steps"):
        steps()
    found = {"import": import_seconds, "append": {length: median_us(seconds) for length, seconds in TIMES.items()}, "turn": {}}
    seconds = []
    for _ in range(TURNS):
        started = time.perf_counter()
        turn()
        seconds.append(time.perf_counter() - started)
    found["turn"][10] = median_us(seconds)
    before = on_disk(folder)
    seconds = []
    parked = PARKED // 10  # each waits in a thread of its own
    for number in range(parked):
        started = time.perf_counter()
        with SetWorkflowID(f"p{number}"):
            DBOS.start_workflow(asking)
        while not DBOS.list_workflow_steps(f"p{number}"):
            time.sleep(0.001)
        seconds.append(time.perf_counter() - started)
    found["pause"] = median_us(seconds)
    found["parked_bytes"] = (on_disk(folder) - before) / parked
    found["durability"] = pragmas(folder / "dbos.sqlite")
    print_now(found)


def print_now(found):
    """And leave without waiting for those that are parked: they are what the cold resume goes on with."""
    import json
    import os

    print(json.dumps(found), flush=True)
    os._exit(0)


def resume(folder):
    launch(folder)  # recovers what was pending
    DBOS.send("p0", "yes", "answer")
    DBOS.retrieve_workflow("p0").get_result()
    sys.stdout.flush()
    import os

    os._exit(0)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main(work, resume)
