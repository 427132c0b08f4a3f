"""
Jobs over every store: tasks of the program, their one report, who may see them, and what a restart
leaves of them.
"""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.adapters.inmemory import InMemoryIndex
from holdfast.errors import Busy, Refused
from holdfast.home import Agent, Home
from holdfast.ids import JobId, SessionId
from holdfast.ports.journal_store import Journal
from holdfast.ports.model import ModelRequest, OnText
from holdfast.runtime.jobs import call as job_call
from holdfast.runtime.lifecycle.delete import delete
from holdfast.runtime.lifecycle.fork import fork
from holdfast.session.authority.context import Audience, LostContext
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.events import (
    CallFinished,
    InputAccepted,
    JobCancelled,
    JobEnded,
    JobSubmitted,
    TurnEnded,
)
from holdfast.session.view.messages import ModelAnswer
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob, seen
from tests.acceptance.runtime.test_memory import Heard

team = holdfast.MessageSource.team("alice", "ops")
AUTO = Policy(
    rules={
        audience: {tool: Rule(mode="auto") for tool in ("dig", "job_cancel")}
        for audience in Audience
    }
)


class Digs:
    """
    A tool whose calls go on in the background until they are let go; what was dug outlives every
    process.
    """

    def __init__(self) -> None:
        self.began: list[str] = []
        self.dug: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}

    def gate(self, place: str) -> asyncio.Event:
        return self._gates.setdefault(place, asyncio.Event())

    def agent(self, **how: Any) -> Agent:
        @holdfast.tool(background=True, audience="team", **how)
        async def dig(place: str) -> str:
            """Dig a hole."""
            self.began.append(place)
            await self.gate(place).wait()
            self.dug.append(place)
            return f"dug in the {place}"

        return Agent("ops", model="demo", tools=[dig, "job_status", "job_cancel"])


def of(events: list[Any], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def reports(events: list[Any]) -> list[Any]:
    return [each for each in of(events, InputAccepted) if each.kind == "job"]


async def job_begun(
    home: Home, session: str = "ops/a", source: holdfast.MessageSource = alice, place: str = "yard"
) -> JobId:
    turn = await home.send(session, f"dig place={place}", source=source)
    assert turn.outcome == "completed", turn
    submitted = await seen(home, session, JobSubmitted)
    return JobId(submitted.job)


async def begun_and_cut_off(stage: Stage, agent: Agent) -> None:
    """The program goes while its job runs, and says nothing of it."""
    async with stage.open(agent) as home:
        await job_begun(home)
        raise RuntimeError("power cut")


@in_loop
async def test_the_turn_goes_on_and_the_result_comes_back_as_a_turn_of_its_own(
    stage: Stage,
) -> None:
    """After normal consent; under the stored context; driven by the program that stays."""
    digs = Digs()
    async with stage.open(digs.agent()) as home:
        turn = await home.send("ops/a", "dig place=yard", source=alice)
        assert "in the background, as a job that outlives this turn" in turn.approvals[0].display
        done = (await home.answer(turn.approvals[0], "approve_once", by=alice)).turn
        assert (done.outcome, digs.dug) == ("completed", [])
        (running,) = await home.jobs(by=alice)
        assert (running.state, running.tool, running.requester) == ("running", "dig", "alice")
        shown = await home.session("ops/a")
        assert ([each.id for each in shown.jobs], shown.owes) == ([running.id], ())
        digs.gate("yard").set()
        ended = await seen(home, "ops/a", TurnEnded, turn="t2")
        assert "dug in the yard" in ended.reply
        assert await home.jobs(by=alice) == ()
        over = await home.job(running.id, by=alice)
        assert (over.state, over.outcome, over.text, over.arguments) == (
            "ended",
            "ok",
            "dug in the yard",
            {"place": "yard"},
        )
    events = await stage.events("ops/a")
    (report,) = reports(events)
    assert (report.dedup, len(of(events, JobEnded)), digs.dug) == (running.id, 1, ["yard"])


@in_loop
async def test_a_task_that_is_gone_with_its_program_is_in_doubt_once_and_an_equal_call_asks(
    stage: Stage,
) -> None:
    """T2: never started again, whatever the next process could do, and whatever policy allows."""
    digs = Digs()
    stage.policy = AUTO
    with pytest.raises(RuntimeError, match="power cut"):
        await begun_and_cut_off(stage, digs.agent())
    assert (digs.began, digs.dug) == (["yard"], [])
    for _ in range(2):
        async with stage.open(digs.agent()) as home:
            await home.resume("ops/a")
    async with stage.open(digs.agent()) as home:
        turn = await home.send("ops/a", "dig place=yard", source=alice)
        assert turn.approvals[0].reason == "An earlier, equal call may have run already."
    events = await stage.events("ops/a")
    (ended,) = of(events, JobEnded)
    assert (ended.outcome, ended.code) == ("in_doubt", "in_doubt")
    assert "the program that ran it is gone" in ended.text
    assert (len(reports(events)), digs.began) == (1, ["yard"])


@in_loop
async def test_leaving_a_home_waits_for_its_tasks_and_records_them(stage: Stage) -> None:
    digs = Digs()
    stage.policy = AUTO
    async with stage.open(digs.agent()) as home:
        await job_begun(home)
        asyncio.get_running_loop().call_soon(digs.gate("yard").set)
    assert digs.dug == ["yard"]
    assert [each.outcome for each in of(await stage.events("ops/a"), JobEnded)] == ["ok"]


@in_loop
async def test_a_job_of_another_reader_set_or_session_is_not_there_for_a_model(
    stage: Stage,
) -> None:
    """
    The same words as for one that never was: for another person, another audience, another session;
    and nothing is stopped.
    """
    digs = Digs()
    stage.policy = AUTO
    async with stage.open(digs.agent()) as home:
        job = await job_begun(home)
        told: set[str] = set()
        for tool in ("job_status", "job_cancel"):
            for session, source in (("ops/a", bob), ("ops/a", team), ("ops/b", alice)):
                for name in (job, "j-" + "a" * 26):
                    turn = await home.send(session, f"{tool} job={name}", source=source)
                    told.add((turn.reply or "").replace(tool, "T").replace(name, "X"))
        assert told == {"T failed: Not run: no job 'X' here"}
        own = await home.send("ops/a", f"job_status job={job}", source=alice)
        assert own.reply == f"job_status: {job} (dig) runs."
        digs.gate("yard").set()
        await seen(home, "ops/a", JobEnded)
    assert of(await stage.events("ops/a"), JobCancelled) == []


@in_loop
async def test_a_job_of_another_reader_set_is_not_there_for_a_person(stage: Stage) -> None:
    digs = Digs()
    stage.policy = AUTO
    async with stage.open(digs.agent()) as home:
        job = await job_begun(home)
        for ask in (home.job, home.cancel_job):
            for source in (bob, team, holdfast.MessageSource.none()):
                with pytest.raises(Refused) as refused:
                    await ask(job, by=source)
                assert (refused.value.code, refused.value.message) == (
                    "unknown",
                    f"no job {job}",
                )
                assert await home.jobs(by=source) == ()
        digs.gate("yard").set()
    assert of(await stage.events("ops/a"), JobCancelled) == []


@in_loop
async def test_a_cancel_is_durable_before_the_task_is_stopped_and_it_ends_in_doubt(
    stage: Stage,
) -> None:
    """T6: never as cancelled; what it had done by then nobody knows."""
    digs = Digs()
    stage.policy = AUTO
    async with stage.open(digs.agent()) as home:
        job = await job_begun(home)
        turn = await home.send("ops/a", f"job_cancel job={job}", source=alice)
        assert (
            turn.reply
            == f"job_cancel: Job {job} is asked to end. How it ended comes as a message of its own."
        )
        await seen(home, "ops/a", JobEnded)
    events = await stage.events("ops/a")
    kinds = [type(event) for event in events if isinstance(event, JobCancelled | JobEnded)]
    (ended,) = of(events, JobEnded)
    assert (kinds, ended.outcome, ended.code, digs.dug) == (
        [JobCancelled, JobEnded],
        "in_doubt",
        "stopped",
        [],
    )
    assert len(reports(events)) == 1


@in_loop
async def test_stopping_a_job_asks_a_person_unless_settings_say_otherwise(stage: Stage) -> None:
    digs = Digs()
    stage.policy = Policy(rules={Audience.PERSONAL: {"dig": Rule(mode="auto")}})
    async with stage.open(digs.agent()) as home:
        job = await job_begun(home)
        turn = await home.send("ops/a", f"job_cancel job={job}", source=alice)
        assert turn.outcome == "waiting"
        assert job in turn.approvals[0].display
        digs.gate("yard").set()


@in_loop
async def test_a_job_more_than_the_bound_is_refused_in_words(stage: Stage) -> None:
    """The session's bound is checked before anybody is asked, the home's before the job starts."""
    digs = Digs()
    for bound, words in (
        ("session_jobs_max", "of this session"),
        ("home_jobs_max", "of this home"),
    ):
        stage.policy = Policy(rules=AUTO.rules, **{bound: 1})
        async with stage.open(digs.agent()) as home:
            await job_begun(home, session=f"ops/{bound[:4]}", place=bound)
            turn = await home.send(f"ops/{bound[:4]}", "dig place=attic", source=alice)
            assert f"1 of at most 1 background jobs {words} run already" in (turn.reply or "")
            digs.gate(bound).set()
    assert "attic" not in digs.began


@in_loop
async def test_a_job_whose_record_comes_back_without_authority_never_starts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The released jobs are those in the journal after the commit, read back: lost authority runs
    nothing.
    """
    digs = Digs()
    stage.policy = AUTO
    monkeypatch.setattr(
        "holdfast.session.features.jobs.evolve._context_of",
        lambda state, event: LostContext(f"{state.session} lost {event.job}"),
    )
    async with stage.open(digs.agent()) as home:
        await home.send("ops/a", "dig place=yard", source=alice)
        assert (await home.session("ops/a")).jobs[0].boundary is None
    assert digs.began == []


@in_loop
async def test_a_fork_carries_no_job_over(stage: Stage) -> None:
    """There its outcome is in doubt, nothing is owed and an equal call asks; here it goes on."""
    digs = Digs()
    stage.policy = AUTO
    async with stage.open(digs.agent()) as home:
        job = await job_begun(home)
        seq = (await home.session("ops/a")).seq
        report = await fork(home.service.runtime, "ops/a", "ops/copy", at_seq=seq, by="alice")
        assert (report.owes, report.jobs, report.phase) == ((), (), "idle")
        again = await home.send("ops/copy", "dig place=yard", source=alice)
        assert again.approvals[0].reason == "An earlier, equal call may have run already."
        digs.gate("yard").set()
        await seen(home, "ops/a", JobEnded)
    (ended,) = of(await stage.events("ops/copy"), JobEnded)
    assert (ended.job, ended.outcome, ended.code) == (job, "in_doubt", "carried_over")
    assert reports(await stage.events("ops/copy")) == []
    assert [each.outcome for each in of(await stage.events("ops/a"), JobEnded)] == ["ok"]


@in_loop
async def test_watching_takes_one_task_however_many_sessions_have_jobs(stage: Stage) -> None:
    """A session whose job runs costs no driver: it is at rest, and nothing is owed."""
    digs = Digs()
    stage.policy = AUTO
    async with stage.open(digs.agent()) as home:
        before = len(asyncio.all_tasks())
        for number in range(3):
            await job_begun(home, session=f"ops/s{number}", place=f"place{number}")
        assert len(asyncio.all_tasks()) == before + 3  # the jobs themselves, which are tasks here
        assert [(await home.session(f"ops/s{number}")).phase for number in range(3)] == ["idle"] * 3
        assert await home.service.owing() == []
        for number in range(3):
            digs.gate(f"place{number}").set()


@in_loop
async def test_a_job_is_found_although_another_session_can_not_be_looked_at(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Without an index all sessions are asked, and what hinders one of them is nothing that whoever
    asks for a job should hear.
    """
    digs = Digs()
    async with stage.open(digs.agent(mode="auto")) as home:
        job = await job_begun(home, "ops/z")
        await home.service.create("ops/a", by="bob")
        world = home.service.runtime.world
        monkeypatch.setattr(world, "index", InMemoryIndex())
        opened = world.store.open

        async def busy(session: SessionId) -> Journal:
            if session == "ops/a":
                raise Busy("ops/a is being written")
            return await opened(session)

        monkeypatch.setattr(world.store, "open", busy)
        assert (await home.job(job, by=alice)).session == "ops/z"
        digs.gate("yard").set()


@in_loop
async def test_a_session_that_was_deleted_is_watched_no_longer(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Else a process that stays would look for it, and say that it is not there, every few seconds for
    as long as it lives.
    """
    session = SessionId("ops/a")
    async with stage.open(Digs().agent()) as home:
        await home.service.create(session, by="alice")
        await delete(home.service.runtime, session, by="alice")
        home.service.runtime.job_keeper.watch(session)
        await home.service.runtime.job_keeper._look_at(session)
        assert (home.service.runtime.job_keeper.watched, caplog.messages) == (set(), [])


@in_loop
async def test_a_tool_that_may_be_repeated_is_not_started_again_either_but_may_be_called(
    stage: Stage,
) -> None:
    """A job is never started twice; whether calling again is safe is for the model to know."""
    digs = Digs()
    stage.policy = AUTO
    with pytest.raises(RuntimeError, match="power cut"):
        await begun_and_cut_off(stage, digs.agent(contract="idempotent"))
    async with stage.open(digs.agent(contract="idempotent")) as home:
        await home.resume("ops/a")
        assert digs.began == ["yard"]
        turn = await home.send("ops/a", "dig place=yard", source=alice)
        assert turn.outcome == "completed"
        digs.gate("yard").set()
    first, second = of(await stage.events("ops/a"), JobEnded)
    assert "calling it again is safe" in first.text
    assert (second.outcome, digs.began) == ("ok", ["yard", "yard"])


@in_loop
async def test_an_edited_call_tells_the_model_what_was_changed(stage: Stage) -> None:
    digs = Digs()
    async with stage.open(digs.agent()) as home:
        turn = await home.send("ops/a", "dig place=yard", source=alice)
        turn = (
            await home.answer(turn.approvals[0], "edit", by=alice, arguments={"place": "field"})
        ).turn
        await home.answer(turn.approvals[0], "approve_once", by=alice)
        digs.gate("field").set()
        await seen(home, "ops/a", JobEnded)
    (finished,) = of(await stage.events("ops/a"), CallFinished)
    assert finished.text.startswith(
        '(alice changed the arguments to {"place":"field"} before approving.)\nStarted in the background'
    )
    assert digs.dug == ["field"]


def test_the_kind_that_only_the_runtime_runs_is_the_tools_kind() -> None:
    from holdfast.adapters.tools.jobs.tools import job_cancel

    assert job_cancel().definition.kind == job_call.CANCELS_JOBS


class Overtaken(Heard):
    """A model whose second answer comes only after the job has ended, and its report is in."""

    home: Home
    let_go: asyncio.Event

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        if len(self.requests) == 1:
            self.let_go.set()
            await seen(self.home, "ops/a", InputAccepted, turn="t2")
        return await super().call(request, on_text=on_text)


@in_loop
async def test_a_job_that_ends_before_its_own_turn_does_is_reported_without_another_word(
    stage: Stage,
) -> None:
    """
    T7: whoever drives the first turn stops at its end; the report behind it is driven all the same,
    by the program that stays.
    """
    digs = Digs()
    stage.policy = AUTO
    model = Overtaken({"call": [{"tool": "dig", "args": {"place": "yard"}}]}, "begun", "heard")
    model.let_go = digs.gate("yard")
    async with stage.open(Agent("ops", model=model, tools=digs.agent().tools)) as home:
        model.home = home
        assert (await home.send("ops/a", "dig", source=alice)).reply == "begun"
        assert (await seen(home, "ops/a", TurnEnded, turn="t2")).reply == "heard"
