"""A server of the older wire asks a person inside of an open call, and waits for the answer."""

import asyncio
import json
import os
import signal
import sys
from typing import Any

import pytest

import holdfast
from holdfast.adapters.mcp.messages import FromServer
from holdfast.adapters.mcp.replies.questions import AskableCalls, OpenQuestions
from holdfast.home import Home
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Record
from holdfast.runtime.reports.types import ApprovalReport, TurnReport
from holdfast.testing.loop import in_loop
from tests.adapters.mcp.conftest import ECHO, Rig, alice, outcome

pytestmark = pytest.mark.needs_system("bwrap")

AUTO = '[policy.personal]\n"wire.*" = "auto"\n'
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FILLED = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "Ada"},
        "age": {"type": "integer", "default": 36},
        "odd": {"type": "integer", "default": "many"},
    },
}
LINK = {
    "mode": "url",
    "message": "Sign in",
    "url": "https://login.example.com/a",
    "elicitationId": "1",
}


def form(schema: dict[str, Any] = NAME, message: str = "Tell me") -> dict[str, Any]:
    return {"message": message, "requestedSchema": schema}


def asks(rig: Rig, *questions: dict[str, Any], tool: dict[str, Any] = ECHO) -> None:
    rig.settings(policy=AUTO)
    call = {"do": "elicit", "questions": list(questions)}
    rig.plan(tools=[tool], wire="2025-11-25", call=call)


def sending(home: Home, session: str = "ops/a") -> asyncio.Task[TurnReport]:
    return asyncio.ensure_future(home.send(session, "wire.echo text=hi", source=alice))


async def question(home: Home, count: int = 1) -> ApprovalReport:
    """Wait for the question; it is the only one."""
    async with asyncio.timeout(20):
        while len(found := await home.approvals()) != count:  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.01)
    return found[0]


async def came(home: Home, turn: asyncio.Task[TurnReport]) -> list[Any]:
    """The answers that the server got, once the turn has ended."""
    report = await turn
    assert report.outcome == "completed", report
    kind, text = await outcome(home)
    assert kind == "ok", text
    answers: list[Any] = json.loads(text.partition("\n")[0])
    return answers


async def records(home: Home) -> list[Record]:
    found: list[Record] = []
    journal = await home.service.runtime.world.store.open(SessionId("ops/a"))
    await journal.load(found.append)
    await journal.close()
    return found


async def count(home: Home, kind: str) -> int:
    return sum(each.type == kind for each in await records(home))


@in_loop
async def test_the_answer_reaches_the_server_inside_of_the_one_call(rig: Rig) -> None:
    asks(rig, form())
    async with rig.pinned() as home:
        turn = sending(home)
        prompt = await question(home)
        assert (prompt.kind, prompt.options) == ("question", ("answer", "deny"))
        assert "wire.echo" in prompt.display
        assert "Tell me" in prompt.display
        assert not turn.done()  # its server waits
        report = await home.answer(prompt, "answer", by=alice, reason="Ada")
        assert report.result == "started"
        assert await came(home, turn) == [{"action": "accept", "content": {"name": "Ada"}}]
        assert len(rig.got()) == await count(home, "tool_started") == 1
        assert await home.approvals() == ()


@in_loop
async def test_the_capability_is_declared_to_a_server_of_the_older_wire(rig: Rig) -> None:
    asks(rig, form())
    async with rig.pinned():
        (begun,) = rig.got("initialize")
        assert begun["params"]["capabilities"] == {"elicitation": {"form": {}, "url": {}}}


@in_loop
async def test_another_process_shows_and_answers_it(rig: Rig) -> None:
    asks(rig, form())
    async with rig.pinned() as home, rig.open() as other:
        turn = sending(home)
        prompt = await question(other)
        await other.answer(prompt, "answer", by=alice, reason="Eve", wait=False)
        assert await came(home, turn) == [{"action": "accept", "content": {"name": "Eve"}}]


@in_loop
async def test_a_denial_is_a_decline_and_the_server_ends_the_call(rig: Rig) -> None:
    asks(rig, form())
    async with rig.pinned() as home:
        turn = sending(home)
        await home.answer(await question(home), "deny", by=alice)
        assert await came(home, turn) == [{"action": "decline"}]


@in_loop
async def test_a_wrong_answer_leaves_the_question_and_another_person_may_not_answer(
    rig: Rig,
) -> None:
    asks(rig, form({**NAME, "properties": {"name": {"type": "integer"}}}))
    async with rig.pinned() as home:
        turn = sending(home)
        prompt = await question(home)
        wrong = await home.answer(prompt, "answer", by=alice, reason="Ada")
        bob = holdfast.MessageSource.local("bob")
        other = await home.answer(prompt, "answer", by=bob, reason="3")
        assert [wrong.reason, other.reason] == ["malformed", "wrong_approver"]
        await home.answer(prompt, "answer", by=alice, reason="3")
        assert await came(home, turn) == [{"action": "accept", "content": {"name": 3}}]


@in_loop
async def test_a_field_that_is_left_out_has_the_default_that_was_shown(rig: Rig) -> None:
    asks(rig, form(FILLED))
    async with rig.pinned() as home:
        turn = sending(home)
        prompt = await question(home)
        assert 'default "Ada"' in prompt.display
        assert "many" not in prompt.display  # it does not fit its own field
        await home.answer(prompt, "answer", by=alice, reason='{"age": 37}')
        assert await came(home, turn) == [
            {"action": "accept", "content": {"name": "Ada", "age": 37}}
        ]


@in_loop
async def test_an_address_is_shown_and_opened_by_nobody(rig: Rig) -> None:
    asks(rig, LINK)
    async with rig.pinned() as home:
        turn = sending(home)
        prompt = await question(home)
        assert "address: https://login.example.com/a" in prompt.display
        assert prompt.options == ("continue", "deny")
        await home.answer(prompt, "continue", by=alice)
        assert await came(home, turn) == [{"action": "accept"}]


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (form({"type": "object", "properties": {"password": {"type": "string"}}}), "a secret"),
        ({**LINK, "url": "http://login.example.com/"}, "not https"),
        (form(NAME, "x" * 30_000), "too many to show"),
        ({"mode": "form"}, "malformed"),
    ],
)
def test_a_question_that_nobody_should_be_asked_is_cancelled_at_once(
    rig: Rig, what: dict[str, Any], why: str
) -> None:
    @in_loop
    async def story() -> None:
        asks(rig, what)
        async with rig.pinned() as home:
            turn = sending(home)
            assert await came(home, turn) == [{"action": "cancel"}]
            assert why in (await outcome(home))[1]
            assert await count(home, "approval_requested") == 0

    story()


@in_loop
async def test_where_nobody_may_answer_it_is_cancelled_at_once(rig: Rig) -> None:
    asks(rig, form())
    nobody = holdfast.MessageSource.automation("alice", channel="timer")
    async with rig.pinned() as home:
        turn = asyncio.ensure_future(home.send("ops/a", "wire.echo text=hi", source=nobody))
        assert await came(home, turn) == [{"action": "cancel"}]
        assert await count(home, "approval_requested") == 0


@in_loop
async def test_a_server_that_asks_on_and_on_is_answered_three_times(rig: Rig) -> None:
    asks(rig, *[form()] * 5)
    async with rig.pinned() as home:
        turn = sending(home)
        last = None
        for _ in range(3):
            prompt = await question(home)
            assert prompt.id != last
            await _answered(home, prompt)
            last = prompt.id
        answers = await came(home, turn)
        assert [each["action"] for each in answers] == ["accept"] * 3 + ["cancel"] * 2


async def _answered(home: Home, prompt: ApprovalReport) -> None:
    """Answer without waiting for the turn, and until the prompt is gone."""
    await home.answer(prompt, "answer", by=alice, reason="Ada", wait=False)
    async with asyncio.timeout(20):
        while any(e.id == prompt.id for e in await home.approvals()):  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.01)


@in_loop
async def test_a_cancel_closes_the_question_and_leaves_the_call_in_doubt(rig: Rig) -> None:
    asks(rig, form())
    async with rig.pinned() as home:
        turn = sending(home)
        prompt = await question(home)
        await home.cancel("ops/a", by=alice)
        assert (await turn).outcome == "cancelled"
        assert await home.approvals() == ()
        late = await home.answer(prompt, "answer", by=alice, reason="Ada")
        assert late.reason == "cancelled"
        assert (await outcome(home))[0] == "in_doubt"
        assert len(rig.got()) == 1


@in_loop
async def test_a_tool_that_changes_meanwhile_cancels_the_question(rig: Rig) -> None:
    asks(rig, form())
    async with rig.pinned() as home:
        turn = sending(home)
        await question(home)
        await home.service.servers.unpin(["wire.echo"], by="alice")
        assert await came(home, turn) == [{"action": "cancel"}]


@in_loop
async def test_a_server_that_dies_meanwhile_leaves_the_call_in_doubt(rig: Rig) -> None:
    asks(rig, form())
    async with rig.pinned() as home:
        turn = sending(home)
        prompt = await question(home)
        (note,) = (rig.home / "run" / "mcp").glob("mcp-*.json")
        os.killpg(json.loads(note.read_text())["server"]["group"], signal.SIGKILL)
        assert (await turn).outcome == "completed"
        assert (await outcome(home))[0] == "in_doubt"
        late = await home.answer(prompt, "answer", by=alice, reason="Ada")
        assert (late.result, len(rig.got())) == ("failed", 1)


@in_loop
async def test_a_process_that_is_killed_meanwhile_leaves_the_call_in_doubt(rig: Rig) -> None:
    """The question is closed with it, and nothing is sent again."""
    asks(rig, form())
    async with rig.pinned() as home:
        words = ["--home", str(rig.home), "send", "ops/a", "wire.echo text=hi", "--as", "alice"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", *words, stderr=asyncio.subprocess.PIPE
        )
        prompt = await question(home)
        assert process.stderr is not None
        said = (await process.stderr.readline()).decode()
        assert (
            f"in the middle of its call, and waits for alice: `holdfast approvals show {prompt.id}"
            in said
        )
        process.kill()
        await process.wait()
        (standing,) = await home.approvals()  # nobody has found it dead yet
        report = await home.answer(standing, "answer", by=alice, reason="Ada")
        assert report.turn.outcome == "completed"
        assert (await outcome(home))[0] == "in_doubt"
        assert (await home.approvals(), standing.id, len(rig.got())) == ((), prompt.id, 1)
        assert await count(home, "tool_started") == 1


@in_loop
async def test_a_session_that_is_taken_up_after_a_kill_asks_nobody_any_more(rig: Rig) -> None:
    asks(rig, form())
    async with rig.pinned() as home:
        words = ["--home", str(rig.home), "send", "ops/a", "wire.echo text=hi", "--as", "alice"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", *words, stderr=asyncio.subprocess.DEVNULL
        )
        prompt = await question(home)
        process.kill()
        await process.wait()
        await home.resume("ops/a")
        assert await home.approvals() == ()
        assert (await outcome(home))[0] == "in_doubt"
        late = await home.answer(prompt, "answer", by=alice, reason="Ada")
        assert (late.result, late.reason, len(rig.got())) == ("failed", "cancelled", 1)


@in_loop
async def test_the_time_of_the_call_stands_still_while_a_person_thinks() -> None:
    said, taken = asyncio.Event(), asyncio.Event()
    sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def person(_: dict[str, Any]) -> dict[str, Any]:
        taken.set()
        await said.wait()
        return {"action": "decline"}

    async def send(message: bytes) -> None:
        sent.put_nowait(message)

    async with asyncio.timeout(60) as limit:
        before = limit.when()
        questions = OpenQuestions(person, send, limit)
        questions.take(FromServer("elicitation/create", 1, {}))
        questions.take(FromServer("elicitation/create", 1, {}))  # of a stream that was resumed
        await taken.wait()
        assert limit.when() is None
        said.set()
        message = json.loads(await sent.get())
        await questions.close()
        assert before is not None
        assert (limit.when() or 0) >= before
    assert message == {"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}}
    assert sent.empty()


@in_loop
async def test_a_question_that_names_no_call_is_asked_only_if_one_call_is_open() -> None:
    """Several calls on one pipe may be for different people."""
    asked: list[dict[str, Any]] = []
    sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def person(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return {"action": "decline"}

    async def send(message: bytes) -> None:
        sent.put_nowait(message)

    calls, request = AskableCalls(), FromServer("elicitation/create", 1, {"message": "x"})
    cancelled = {"jsonrpc": "2.0", "id": 1, "result": {"action": "cancel"}}
    async with asyncio.timeout(60) as limit:
        assert b"Method not found" in (calls.take(request) or b"")  # outside of any call
        async with calls.during(OpenQuestions(person, send, limit)):
            async with calls.during(OpenQuestions(person, send, limit)):
                assert json.loads(calls.take(request) or b"") == cancelled
            assert (asked, sent.empty()) == ([], True)
            assert calls.take(request) is None
            assert json.loads(await sent.get())["result"] == {"action": "decline"}
    assert asked == [{"message": "x"}]
