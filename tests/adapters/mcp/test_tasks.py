"""A server that goes on with a call as a task: the call becomes a job, which is asked for by id."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.home import Home
from holdfast.runtime.jobs.reports import JobReport
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import ECHO, Rig, alice, approved, asked, outcome

pytestmark = pytest.mark.needs_system("bwrap")

TASK = {
    "resultType": "task",
    "taskId": "task-1",
    "status": "working",
    "createdAt": "2026-11-18T00:00:00Z",
    "lastUpdatedAt": "2026-11-18T00:00:00Z",
    "ttlMs": 60_000,
    "pollIntervalMs": 200,
}
WORKING = {"taskId": "task-1", "status": "working"}
DONE = {
    "taskId": "task-1",
    "status": "completed",
    "result": {"content": [{"type": "text", "text": "all done"}]},
}
CANCELLED = {"taskId": "task-1", "status": "cancelled"}


def goes_on(rig: Rig, now: dict[str, Any], task: dict[str, Any] = TASK, **more: Any) -> None:
    answers = {"tasks/get": now, "tasks/cancel": {}, **more}
    rig.plan(tools=[ECHO], call={"do": "result", "result": task}, tasks=answers)


async def the_job(home: Home) -> JobReport:
    (job,) = await home.jobs(by=alice, everything=True)
    return job


async def ended(home: Home) -> JobReport:
    async with asyncio.timeout(60):
        while True:
            job = await the_job(home)
            if job.state == "ended":
                return job
            await asyncio.sleep(0.05)


async def submitted(home: Home) -> JobReport:
    report = await home.answer(await asked(home), "approve_once", by=alice)
    assert report.turn.outcome == "completed"
    assert "as job" in (await outcome(home))[1]
    return await the_job(home)


@in_loop
async def test_a_task_is_followed_and_its_result_is_a_jobs_result(rig: Rig) -> None:
    goes_on(rig, WORKING)
    async with rig.pinned() as home:
        job = await submitted(home)
        assert (job.state, job.host) == ("running", "server")
    goes_on(rig, DONE)
    async with rig.open() as home:  # opened anew: the task is asked for by its id
        over = await ended(home)
        assert (over.id, over.outcome) == (job.id, "ok")
        await home.resume("ops/a")
        shown = await home.job(job.id, by=alice)
        assert shown.text == "all done"
    assert len(rig.got()) == 1
    assert {each["params"]["taskId"] for each in rig.got("tasks/get")} == {"task-1"}
    meta = "io.modelcontextprotocol/clientCapabilities"
    tasks = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert all(each["params"]["_meta"][meta] == tasks for each in rig.got("tasks/get"))
    assert rig.got()[0]["params"]["_meta"][meta].items() >= tasks.items()


@in_loop
async def test_a_cancelled_job_asks_the_server_once_and_is_in_doubt(rig: Rig) -> None:
    goes_on(rig, WORKING)
    async with rig.pinned() as home:
        job = await submitted(home)
        cancelling = asyncio.create_task(home.cancel_job(job.id, by=alice))
        async with asyncio.timeout(60):
            while True:
                if rig.got("tasks/cancel"):
                    break
                await asyncio.sleep(0.05)
        assert (await the_job(home)).state == "running"  # a cancel is a request, not an outcome
        goes_on(rig, CANCELLED)
        await cancelling
        over = await ended(home)
        assert over.outcome == "in_doubt"
        assert len(rig.got("tasks/cancel")) == 1
        again = await asked(home)
        assert [each.kind for each in again.risks] == ["in_doubt_twin"]
    assert len(rig.got()) == 1


@pytest.mark.parametrize(
    ("now", "kind", "words"),
    [
        ({"status": "failed", "error": {"code": -32603, "message": "boom"}}, "error", "boom"),
        (
            {"status": "completed", "result": {"isError": True, "content": []}},
            "error",
            "reported an error",
        ),
        (CANCELLED, "in_doubt", "cancelled"),
        ({"status": "input_required", "inputRequests": {}}, "in_doubt", "asks for input"),
        ({"status": "resting"}, "in_doubt", "cannot be understood"),
        ({"status": "completed"}, "in_doubt", "cannot be understood"),
        (None, "in_doubt", "no longer knows"),
    ],
)
def test_the_ends_of_a_task(rig: Rig, now: dict[str, Any] | None, kind: str, words: str) -> None:
    @in_loop
    async def story() -> None:
        goes_on(rig, WORKING)
        async with rig.pinned() as home:
            job = await submitted(home)
            if now is None:
                rig.plan(tools=[ECHO], call={"do": "result", "result": TASK})
            else:
                goes_on(rig, now)
            over = await ended(home)
            shown = await home.job(job.id, by=alice)
            assert (over.outcome, words in (shown.text or "")) == (kind, True), shown.text
            asked_to_stop = len(rig.got("tasks/cancel"))
            assert asked_to_stop == (words == "asks for input")
            assert len(rig.got()) == 1

    story()


@in_loop
async def test_a_server_that_cannot_be_asked_proves_nothing_and_another_one_is_not_asked(
    rig: Rig,
) -> None:
    goes_on(rig, WORKING)
    async with rig.pinned() as home:
        job = await submitted(home)
    good = rig.home.joinpath("holdfast.toml").read_text()
    rig.script.rename(rig.script.with_suffix(".away"))
    async with rig.open() as home:
        assert (await the_job(home)).state == "running"
    asked_before = len(rig.got("tasks/get"))
    rig.script.write_bytes(rig.script.with_suffix(".away").read_bytes() + b"# changed\n")
    rig.home.joinpath("holdfast.toml").write_text(good)
    async with rig.open() as home:
        over = await ended(home)
        assert over.outcome == "in_doubt"
        assert "not the one that made the task" in str((await home.job(job.id, by=alice)).text)
    assert len(rig.got("tasks/get")) == asked_before


@pytest.mark.parametrize("name", ["", "x" * 300, 7])
def test_a_task_without_a_usable_id_is_in_doubt(rig: Rig, name: Any) -> None:
    @in_loop
    async def story() -> None:
        goes_on(rig, WORKING, {**TASK, "taskId": name})
        async with rig.pinned() as home:
            await approved(home)
            kind, text = await outcome(home)
            assert (kind, "not followed here" in text) == ("in_doubt", True)
            assert await home.jobs(by=alice, everything=True) == ()

    story()


@in_loop
async def test_a_task_past_its_bound_is_stopped_and_in_doubt(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.settings(policy="[limits]\njob_timeout = '1s'\n")
    goes_on(rig, WORKING)
    async with rig.pinned() as home:
        job = await submitted(home)
        over = await ended(home)
        assert over.outcome == "in_doubt"
        assert "ran out of time" in str((await home.job(job.id, by=alice)).text)
        assert len(rig.got("tasks/cancel")) == 1
