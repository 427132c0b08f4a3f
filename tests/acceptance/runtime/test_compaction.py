"""Making room in the view, over every store: cases 34 to 40 of the fence, and 42 of turns."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.adapters.inmemory import Crashed
from holdfast.home import Agent
from holdfast.ports.model import ModelFailed, ModelRequest, OnText
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.events import Compacted, TurnCompacted
from holdfast.session.view.compaction import CompactionRules
from holdfast.session.view.messages import (
    AssistantMessage,
    ModelAnswer,
    ProposedCall,
    ResultMessage,
    Usage,
)
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_home import Disk, crash_after, open_in_memory
from tests.acceptance.runtime.conftest import Stage, alice, bob

WORDS = "word " * 400  # 2,000 characters, about 500 tokens


class Thinker:
    """A model that summarises, counts what it is given, and says what it is told to."""

    def __init__(
        self, *, window: int | None = None, summary: str = "They talked.", name: str = "thinker"
    ) -> None:
        self.name = name
        self.context_tokens = window
        self.summary: Any = summary
        self.requests: list[ModelRequest] = []
        self.summaries: list[ModelRequest] = []
        self.calls: list[tuple[str, str]] = []
        self.overflow_above: int | None = None
        self.before_summary: Any = None

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        tokens = sum(len(message.text) for message in request.messages) // 4
        if not request.tools:
            self.summaries.append(request)
            if self.before_summary is not None:
                await self.before_summary()
            if isinstance(self.summary, BaseException):
                raise self.summary
            return ModelAnswer(text=self.summary, usage=Usage(input_tokens=tokens, output_tokens=3))
        self.requests.append(request)
        if self.overflow_above is not None and tokens > self.overflow_above:
            raise ModelFailed("overflow", "too long", may_pass=False)
        on_text("")
        if self.calls:
            tool, arguments = self.calls.pop(0)
            return ModelAnswer(
                text="",
                calls=(ProposedCall(tool, arguments),),
                usage=Usage(input_tokens=tokens, output_tokens=1),
            )
        return ModelAnswer(text="Done.", usage=Usage(input_tokens=tokens, output_tokens=1))


def small(home: Any, *, at_tokens: int = 2500, keep_turns: int = 2) -> None:
    home.service.runtime.world.compaction = lambda: CompactionRules(
        at_tokens=at_tokens, keep_turns=keep_turns
    )


def thinking(stage: Stage, model: Thinker) -> Agent:
    return Agent("ops", model=model, tools=stage.effects.tools())


def texts(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages)


@in_loop
async def test_past_the_threshold_older_turns_become_a_summary_and_the_journal_keeps_them(
    stage: Stage,
) -> None:
    model = Thinker()
    async with stage.open(thinking(stage, model)) as home:
        small(home)
        for number in range(8):
            turn = await home.send("ops/a", f"request {number} {WORDS}", source=alice)
            assert turn.outcome == "completed"
    events = await stage.events("ops/a")
    compacted = [event for event in events if isinstance(event, Compacted)]
    assert compacted
    assert all(
        event.trigger == "threshold" and event.tokens_after < event.tokens_before
        for event in compacted
    )
    assert all(
        sum(len(message.text) for message in request.messages) // 4 < 3200
        for request in model.requests
    )
    assert "They talked." in texts(model.requests[-1])
    assert f"request 7 {WORDS}" in texts(model.requests[-1])
    assert (
        sum(
            1 for event in events if type(event).__name__ == "InputAccepted" and WORDS in event.text
        )
        == 8
    )


@in_loop
async def test_compacting_twice_starts_from_the_last_summary(stage: Stage) -> None:
    """Case 38."""
    model = Thinker(summary="First summary.")
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=100_000)
        for number in range(5):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
        report = await home.service.compact("ops/a")
        assert (report.result, report.turns) == ("compacted", 3)
        for number in range(5, 8):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
        model.summary = "Second summary."
        assert (await home.service.compact("ops/a")).turns == 3
        assert "First summary." in texts(model.summaries[-1])
        assert "request 0" not in texts(model.summaries[-1])
        await home.send("ops/a", "and now?", source=alice)
    assert "Second summary." in texts(model.requests[-1])
    assert "First summary." not in texts(model.requests[-1])


@in_loop
async def test_a_compaction_without_gain_succeeds_and_writes_nothing(
    stage: Stage,
) -> None:
    """Case 36."""
    model = Thinker(summary="x" * 50_000)
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=100_000)
        await home.send("ops/a", "hello", source=alice)
        assert (await home.service.compact("ops/a")).result == "nothing to do"
        for number in range(4):
            await home.send("ops/a", f"request {number}", source=alice)
        seq = (await home.service.show("ops/a")).seq
        report = await home.service.compact("ops/a")
        assert (report.result, report.turns) == ("nothing gained", 0)
        assert (await home.service.show("ops/a")).seq == seq


@pytest.mark.parametrize(
    "failure",
    [
        ModelFailed("server", "down", may_pass=True),
        ModelFailed("timeout", "silence", may_pass=True),
    ],
)
@in_loop
async def test_a_summary_that_fails_leaves_history_untouched_and_the_turn_goes_on(
    stage: Stage, failure: Exception
) -> None:
    """Case 37."""
    model = Thinker()
    model.summary = failure
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=1000)
        for number in range(5):
            turn = await home.send("ops/a", f"request {number} {WORDS}", source=alice)
            assert turn.outcome == "completed"
        report = await home.service.compact("ops/a")
        assert report.result == "failed"
        assert report.reason is not None
        assert failure.kind in report.reason  # type: ignore[attr-defined]
    assert model.summaries
    assert not [event for event in await stage.events("ops/a") if isinstance(event, Compacted)]
    assert "request 0" in texts(model.requests[-1])


@in_loop
async def test_records_that_come_while_it_is_summarised_do_no_harm(stage: Stage) -> None:
    """
    Cases 26 and 35: a message and an answer come in meanwhile; both are kept, and so is the
    summary.
    """
    model = Thinker()
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=100_000)
        for number in range(5):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
        model.calls = [("act", '{"what": "it"}')]
        parked = await home.send("ops/a", "do it", source=bob)

        async def meanwhile() -> None:
            await home.service.send("ops/a", Incoming(text="another", source=alice), wait=False)
            model.before_summary = None
            await home.service.answer(parked.approvals[0].id, "deny", by="bob", wait=False)

        model.before_summary = meanwhile
        report = await home.service.compact("ops/a")
        assert report.result == "compacted"
        await home.service.resume("ops/a", by="alice")
        assert "They talked." in texts(model.requests[-1])
        assert "another" in texts(model.requests[-1])
    names = [type(event).__name__ for event in await stage.events("ops/a")]
    assert names.index("ApprovalAnswered") < names.index("Compacted") < len(names)
    assert names.count("TurnEnded") == 7


@in_loop
async def test_two_summaries_at_once_are_one(stage: Stage) -> None:
    """Case 35: what was summarised by somebody else meanwhile is not summarised again."""
    model = Thinker()
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=100_000)
        for number in range(6):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
        reports = await asyncio.gather(home.service.compact("ops/a"), home.service.compact("ops/a"))
        assert sorted(report.result for report in reports) == ["compacted", "nothing to do"]
    assert sum(isinstance(event, Compacted) for event in await stage.events("ops/a")) == 1


@in_loop
async def test_an_overflow_is_mended_once_and_a_second_fails_the_turn(stage: Stage) -> None:
    """Case 42 of turns."""
    model = Thinker()
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=100_000)
        for number in range(6):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
        model.overflow_above = 2500
        turn = await home.send("ops/a", "once more", source=alice)
        assert turn.outcome == "completed"
        assert [event.trigger for event in await compactions(home)] == ["overflow"]
        model.overflow_above = 0
        failed = await home.send("ops/a", "and again", source=alice)
        assert failed.outcome == "failed"
        assert failed.error is not None
        assert failed.error.code == "overflow"
    assert len(model.requests) == 6 + 2 + 2


async def compactions(home: Any) -> list[Any]:
    found: list[Any] = []
    journal = await home.service.runtime.world.store.open("ops/a")
    from holdfast.session.codec import decode

    await journal.load(
        lambda record: found.append(decode(record.type, record.version, record.body))
    )
    await journal.close()
    return [event for event in found if isinstance(event, Compacted | TurnCompacted)]


@in_loop
async def test_a_turn_that_outgrows_the_window_by_itself_is_split_between_its_steps(
    stage: Stage,
) -> None:
    """Case 34, and split turns: each call in what the model sees has its result right after it."""
    model = Thinker()
    model.calls = [("look", f'{{"at": "{number} {WORDS}"}}') for number in range(8)]
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=2500)
        turn = await home.send("ops/a", "look around", source=alice)
        assert turn.outcome == "completed"
        found = await compactions(home)
    assert found
    assert all(isinstance(event, TurnCompacted) and event.part == "own" for event in found)
    assert "look around" in texts(model.requests[-1])
    for request in model.requests:
        waiting: list[str] = []
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                assert not waiting
                waiting = [call.call for call in message.calls]
            elif isinstance(message, ResultMessage):
                assert message.call == waiting.pop(0)
        assert not waiting


@in_loop
async def test_a_parked_approval_survives_compaction_with_its_authority(stage: Stage) -> None:
    """Case 40."""
    model = Thinker()
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=100_000)
        for number in range(4):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
        model.calls = [("act", '{"what": "it"}')]
        parked = await home.send("ops/a", "do it", source=alice)
        before = parked.approvals[0]
        for number in range(4, 8):
            await home.send("ops/a", f"request {number} {WORDS}", source=bob)
        assert (await home.service.compact("ops/a")).result == "compacted"
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=100_000)
        again = await home.approval(before.id)
        assert (again.digest, again.requester, again.boundary, again.state) == (
            before.digest,
            before.requester,
            before.boundary,
            "requested",
        )
        answer = await home.answer(again, "approve_once", by=alice)
        assert answer.turn.outcome == "completed"
    assert stage.effects.done == ["it"]


@in_loop
async def test_required_facts_are_in_the_summary_whatever_the_model_wrote(stage: Stage) -> None:
    model = Thinker(summary="They talked of nothing.")
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=100_000)
        await home.send("ops/a", f"look at src/deploy/run.sh for OPS-771 {WORDS}", source=alice)
        for number in range(4):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
        await home.service.compact("ops/a")
        [event] = await compactions(home)
    assert "src/deploy/run.sh" in event.summary
    assert "OPS-771" in event.summary


@in_loop
async def test_script_models_summarise_without_a_line(stage: Stage) -> None:
    lines = [{"say": f"answer {number} {WORDS}"} for number in range(6)]
    async with stage.open(stage.agent(lines)) as home:
        small(home, at_tokens=1200)
        for number in range(6):
            turn = await home.send("ops/a", f"request {number}", source=alice)
            assert turn.reply == f"answer {number} {WORDS}"
        found = await compactions(home)
    assert found
    assert all(event.trigger == "size" for event in found)
    assert "alice asked: request 0" in found[0].summary


@in_loop
async def test_a_crash_leaves_the_old_view_or_the_new_one() -> None:
    """Case 39: killed while it is summarised, and right after it is recorded."""
    disk, model = Disk(), Thinker()
    ops = Agent("ops", model=model, tools=[holdfast.tool(contract="pure", mode="auto")(look)])
    async with open_in_memory(agents=[ops], disk=disk) as home:
        small(home, at_tokens=100_000)
        for number in range(6):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
    model.summary = Crashed("in the summary")
    with pytest.raises(Crashed):
        async with open_in_memory(agents=[ops], disk=disk) as home:
            await home.service.compact("ops/a")
    async with open_in_memory(agents=[ops], disk=disk) as home:
        await home.send("ops/a", "still there?", source=alice)
        assert "request 0" in texts(model.requests[-1])
    model.summary = "They talked."
    with pytest.raises(Crashed):  # noqa: PT012
        async with open_in_memory(agents=[ops], disk=disk, crash=crash_after(Compacted)) as home:
            small(home, at_tokens=2500)
            await home.send("ops/a", "go on", source=alice)
    async with open_in_memory(agents=[ops], disk=disk) as home:
        small(home, at_tokens=2500)
        turn = await home.service.resume("ops/a", by="alice")
        assert turn.outcome == "completed"
        assert "request 0" not in texts(model.requests[-1])
        assert "They talked." in texts(model.requests[-1])
        assert [event.trigger for event in await compactions(home)] == ["threshold"]


def look(at: str = "") -> str:
    """Only look."""
    return f"saw {at}"


@in_loop
async def test_progress_is_sent_to_followers(stage: Stage) -> None:
    model = Thinker()
    heard: list[str] = []
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=100_000)
        for number in range(5):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
        with home.service.runtime.feed.listen("ops/a", asyncio.Event()) as subscription:
            await home.service.compact("ops/a")
            heard = [piece.text for piece in subscription.take()]
    assert heard[0] == "summarising 3 turns to make room"
    assert heard[-1].startswith("compacted: ")


@in_loop
async def test_real_usage_decides_not_the_number_of_characters(stage: Stage) -> None:
    """A model that counts more tokens than we would guess is believed."""

    class Dense(Thinker):
        async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
            answer = await super().call(request, on_text=on_text)
            return ModelAnswer(
                text=answer.text,
                usage=Usage(input_tokens=answer.usage.input_tokens * 10, output_tokens=1),
            )

    model = Dense()
    async with stage.open(thinking(stage, model)) as home:
        small(home, at_tokens=12_000)
        for number in range(5):
            await home.send("ops/a", f"request {number} {WORDS}", source=alice)
        found = await compactions(home)
    assert found
