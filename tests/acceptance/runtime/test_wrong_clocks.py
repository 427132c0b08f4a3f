"""
Clocks that go back or ahead, over every store: an end that has come stays, and a clock that was
ahead for a while switches no end off.
"""

from typing import Any

import pytest

import holdfast
from holdfast.gateway.server.tokens import TokenBook
from holdfast.runtime.ledger.home_authority import accept_clock
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.session.home.events import TimeNoted
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice
from tests.acceptance.runtime.test_pause_and_answer import act

DAY = 86_400.0
BACK = [
    -2 * 3600.0,
    -5 * DAY,
    -20_000 * DAY,
]  # another time zone, another week, a board without a battery


async def token(home: holdfast.Home, name: str, *, days: float) -> str:
    now, clock = home.service.runtime.world.now_ms(), home.service.runtime.world.clock.now_ms()
    book = TokenBook(home.service.home)
    made, _ = await book.add(
        name,
        person="alice",
        scopes=["read"],
        expires_at=int(now + days * DAY * 1000),
        by="alice",
        now=clock,
    )
    return made


async def reminder_stands(home: holdfast.Home, made: str) -> bool:
    return (
        await TokenBook(home.service.home).find(made, now=home.service.runtime.world.clock.now_ms())
        is not None
    )


async def refusal(work: Any) -> str:
    with pytest.raises(holdfast.Refused) as refused:
        await work
    return refused.value.code


@pytest.mark.parametrize("seconds", BACK)
@in_loop
async def test_a_clock_that_goes_back_revives_no_token_that_was_seen_over(
    stage: Stage, seconds: float
) -> None:
    """
    Once it was refused, the home's journal knows the time: also for another process, after a
    restart.
    """
    async with stage.open() as home:
        made = await token(home, "n", days=1)
        assert await reminder_stands(home, made)
        stage.clock.advance(1.01 * DAY)
        assert not await reminder_stands(home, made)
        stage.clock.jump(seconds)
        assert not await reminder_stands(home, made)
    async with stage.open() as home:
        assert not await reminder_stands(home, made)


@pytest.mark.parametrize("seconds", BACK)
@in_loop
async def test_a_home_in_use_revives_no_token_that_nobody_used_meanwhile(
    stage: Stage, seconds: float
) -> None:
    """
    The token is over and nobody brought it; only the session was used, long after the home's last
    record. A day's use at most is not known.
    """
    async with stage.open(stage.agent([{"say": "ok"}] * 3)) as home:
        made = await token(home, "n", days=30)
        await home.send("ops/a", "hello", source=alice)
        stage.clock.advance(32 * DAY)
        await home.send("ops/a", "a month later", source=alice)
    stage.clock.jump(seconds)
    async with stage.open() as home:
        assert not await reminder_stands(home, made)


@in_loop
async def test_the_time_is_noted_once_a_day_and_not_with_every_commit(stage: Stage) -> None:
    noted = []
    async with stage.open(stage.agent([{"say": "ok"}] * 20)) as home:
        for _ in range(8):
            stage.clock.advance(0.4 * DAY)
            await home.send("ops/a", "hello", source=alice)
        journal = await home.service.runtime.world.store.home()
        await journal.load(
            lambda record: noted.append(record) if record.type == "time_noted" else None
        )
        await journal.close()
    assert 1 <= len(noted) <= 3


@pytest.mark.parametrize("seconds", BACK)
@in_loop
async def test_a_clock_that_goes_back_revives_no_prompt(stage: Stage, seconds: float) -> None:
    """
    P5: seven days are over by the home's journal, and the session's own has no record of that yet.
    """
    ops = stage.agent([*act("it"), {"say": "x"}, {"say": "y"}])
    async with stage.open(ops) as home:
        (asked,) = (await home.send("ops/a", "do it", source=alice)).approvals
        stage.clock.advance(8.5 * DAY)
        await home.send("ops/b", "elsewhere", source=alice)
    stage.clock.jump(seconds)
    async with stage.open(ops) as home:
        assert asked.id not in {each.id for each in await home.approvals()}
        assert await refusal(home.service.answer(asked.id, "approve_once", by="alice")) in {
            "expired",
            "clock_behind",
        }
    assert stage.effects.done == []


@pytest.mark.parametrize("ahead", [3 * DAY, 40 * DAY, 300 * DAY])
@in_loop
async def test_one_record_from_a_clock_that_was_ahead_switches_no_end_off(
    stage: Stage, ahead: float
) -> None:
    """
    Until a person says which one is right nothing is approved; afterwards prompts, tokens and
    grants end as they should.
    """
    ops = stage.agent([{"say": "ok"}, *act("one"), *act("two"), {"say": "z"}])
    async with stage.open(ops) as home:
        before, soon = await token(home, "before", days=1), await token(home, "endless", days=3000)
        stage.clock.jump(ahead)
        await home.send("ops/a", "from the future", source=alice)
        stage.clock.jump(-ahead)
        (asked,) = (await home.send("ops/a", "one", source=alice)).approvals
        assert (
            await refusal(home.service.answer(asked.id, "approve_once", by="alice"))
            == "clock_behind"
        )
        assert not await reminder_stands(home, before)
        assert not await reminder_stands(home, soon)
        assert await refusal(token(home, "new", days=1)) == "clock_behind"
        await home.answer(asked, "deny", by=alice)
        report = await accept_clock(home.service.home, stage.clock.now_ms(), by="alice")
        assert report is not None
        assert [each.name for each in report.dropped.tokens] == ["before", "endless"]
        assert await accept_clock(home.service.home, stage.clock.now_ms(), by="alice") is None
    async with stage.open(ops) as home:
        assert not await reminder_stands(home, before)
        made = await token(home, "new", days=1)
        assert await reminder_stands(home, made)
        (asked,) = (await home.send("ops/a", "two", source=alice)).approvals
        stage.clock.advance(6.9 * DAY)
        assert [each.id for each in await home.approvals()] == [asked.id]
        stage.clock.advance(0.2 * DAY)
        assert await home.approvals() == ()
        assert not await reminder_stands(home, made)
        assert await refusal(home.service.answer(asked.id, "approve_once", by="alice")) == "expired"
    assert stage.effects.done == []


@pytest.mark.parametrize("days", [367, 30_000])
@in_loop
async def test_a_clock_far_ahead_of_the_journal_writes_nothing_until_a_person_says_that_it_is_right(
    stage: Stage, days: int
) -> None:
    """
    No way in makes a record of it: a message to an old session, a new session, a token, an answer.
    """
    ops = stage.agent([*act("it"), {"say": "ok"}])
    async with stage.open(ops) as home:
        (asked,) = (await home.send("ops/a", "do it", source=alice)).approvals
        made = await token(home, "n", days=400)
    stage.clock.jump(days * DAY)
    async with stage.open(ops) as home:
        assert await refusal(home.send("ops/a", "hello", source=alice)) == "clock_ahead"
        assert await refusal(home.send("ops/new", "hello", source=alice)) == "clock_ahead"
        assert await refusal(token(home, "m", days=1)) == "clock_ahead"
        assert (
            await refusal(home.service.answer(asked.id, "approve_once", by="alice"))
            == "clock_ahead"
        )
        assert await reminder_stands(home, made) is (days < 400)
    stage.clock.jump(-days * DAY)
    async with stage.open(ops) as home:
        assert await reminder_stands(home, made), "nothing of it was written down"
        assert [each.id for each in await home.approvals()] == [asked.id]
    stage.clock.jump(days * DAY)
    async with stage.open(ops) as home:
        report = await accept_clock(home.service.home, stage.clock.now_ms(), by="alice")
        assert report is not None
        assert report.dropped.tokens == ()
        assert await refusal(home.service.answer(asked.id, "approve_once", by="alice")) == "expired"
        assert (await home.send("ops/new", "hello", source=alice)).outcome == "waiting"


@in_loop
async def test_a_home_that_was_not_used_for_months_is_used_as_before(stage: Stage) -> None:
    async with stage.open(stage.agent([{"say": "ok"}] * 2)) as home:
        await home.send("ops/a", "hello", source=alice)
    stage.clock.jump(360 * DAY)
    async with stage.open(stage.agent([{"say": "ok"}] * 2)) as home:
        assert (await home.send("ops/a", "hello", source=alice)).reply == "ok"


@in_loop
async def test_a_result_that_came_back_under_a_clock_far_ahead_is_kept_and_its_time_is_not_believed(
    stage: Stage,
) -> None:
    """
    T1: the clock was set while a tool ran. The outcome is journalled, and later prompts of that
    session end as they should.
    """

    @holdfast.tool(mode="auto")
    def jump() -> str:
        """Set the clock."""
        stage.clock.jump(4000 * DAY)
        return "set"

    script = stage.agent([{"call": [{"tool": "jump", "args": {}}]}, {"say": "ok"}, *act("it")])
    ops = holdfast.Agent("ops", model=script.model, tools=[jump, *stage.effects.tools()])
    async with stage.open(ops) as home:
        assert (await home.send("ops/a", "go", source=alice)).reply == "ok"
        assert await refusal(home.send("ops/a", "more", source=alice)) == "clock_ahead"
    stage.clock.jump(-4000 * DAY)
    async with stage.open(ops) as home:
        (asked,) = (await home.send("ops/a", "do it", source=alice)).approvals
        stage.clock.advance(6.9 * DAY)
        assert [each.id for each in await home.approvals()] == [asked.id]
        stage.clock.advance(0.2 * DAY)
        assert await refusal(home.service.answer(asked.id, "approve_once", by="alice")) == "expired"


@in_loop
async def test_times_never_fall_along_a_journal_whatever_a_person_said_of_the_clock(
    stage: Stage,
) -> None:
    async with stage.open(stage.agent([{"say": "ok"}] * 3)) as home:
        stage.clock.jump(40 * DAY)
        await home.send("ops/a", "hello", source=alice)
        stage.clock.jump(-40 * DAY)
        await accept_clock(home.service.home, stage.clock.now_ms(), by="alice")
        await home.send("ops/a", "again", source=alice)
        for journal in (
            await home.service.runtime.world.store.open("ops/a"),
            await home.service.runtime.world.store.home(),
        ):
            times: list[int] = []
            await journal.load(lambda record, times=times: times.append(record.at))
            await journal.close()
            assert times == sorted(times)


@in_loop
async def test_the_homes_time_is_the_same_however_it_was_folded(stage: Stage) -> None:
    async with stage.open(stage.agent([{"say": "ok"}])) as home:
        stage.clock.jump(3 * DAY)
        await home.send("ops/a", "hello", source=alice)
        await home.service.home.append(TimeNoted(clock=stage.clock.now_ms()))
        stage.clock.jump(-3 * DAY)
        await accept_clock(home.service.home, stage.clock.now_ms(), by="alice")
        folded = HomeLedger(home.service.runtime.world.store)
        state = await folded.refresh()
        assert (state.time, state.disbelieved_until) == (
            home.service.home.state.time,
            home.service.home.state.disbelieved_until,
        )
        assert state.time == stage.clock.now_ms() < state.disbelieved_until
        await folded.close()
