"""
A provider that is away for minutes: the turn waits for it, in this process and in the next, and a
person can stop the wait.
"""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.runtime.context import ModelTimes
from holdfast.session.authority.policy import Policy
from holdfast.session.events import ModelCallFailed, TurnResumed
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, seen

alice = holdfast.MessageSource.local("alice")
AWAY = {"fail": "server"}
S = "ops/api"


@pytest.fixture
def waiting(stage: Stage) -> Stage:
    """A home that waits between tries, by a clock that the test moves."""
    stage.model_times = ModelTimes(retry_seconds=0.5)
    return stage


def of(kind: type[Any], events: list[Any]) -> list[Any]:
    return [each for each in events if isinstance(each, kind)]


async def next_wait(stage: Stage) -> float:
    """Return how long the turn waits, as soon as it waits."""
    for _ in range(100_000):
        if (left := stage.clock.next_wake_seconds) is not None:
            return left
        await asyncio.sleep(0)
    raise AssertionError("nothing waits")


@in_loop
async def test_a_turn_outlasts_an_outage_of_minutes(waiting: Stage) -> None:
    ops = waiting.agent([*[AWAY] * 12, {"say": "at last"}])
    async with waiting.open(ops) as home:
        turn = asyncio.ensure_future(home.send(S, "hello", source=alice))
        waits = []
        for _ in range(12):
            waits.append(await next_wait(waiting))
            waiting.clock.advance(waits[-1])
        assert (await turn).reply == "at last"
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
    failed = of(ModelCallFailed, await waiting.events(S))
    assert {each.since for each in failed} == {failed[0].since}
    assert not any(each.final for each in failed)


@in_loop
async def test_the_bound_on_an_outage_ends_the_turn_with_its_name(waiting: Stage) -> None:
    waiting.policy = Policy(model_retry_for_seconds=2)
    ops = waiting.agent([AWAY] * 9)
    async with waiting.open(ops) as home:
        turn = asyncio.ensure_future(home.send(S, "hello", source=alice))
        for _ in range(2):
            waiting.clock.advance(await next_wait(waiting))
        ended = await turn
    assert (ended.outcome, ended.error and ended.error.code) == ("failed", "server")
    assert "limits.model_retry_for, 2 s" in (ended.error.hint if ended.error else "")


@in_loop
async def test_the_wait_is_shown_and_a_cancel_ends_it_at_once(waiting: Stage) -> None:
    ops = waiting.agent([AWAY, {"say": "never"}])
    async with waiting.open(ops) as home:
        turn = asyncio.ensure_future(home.send(S, "hello", source=alice))
        await next_wait(waiting)
        shown = await home.service.show(S)
        assert shown.phase == "retrying"
        assert shown.retry is not None
        assert (shown.retry.kind, shown.retry.tries) == ("server", 1)
        assert shown.retry.next_at > shown.retry.since
        await home.cancel(S, by=alice)
        assert (await turn).outcome == "cancelled"
        assert (await home.service.show(S)).retry is None


@in_loop
async def test_the_next_process_waits_for_the_rest_of_the_same_time(waiting: Stage) -> None:
    waiting.model_times = ModelTimes(retry_seconds=40.0)
    ops = waiting.agent([AWAY, {"say": "at last"}])
    async with waiting.open(ops) as home:
        turn = asyncio.ensure_future(home.send(S, "hello", source=alice))
        assert await next_wait(waiting) == 40
        turn.cancel()
        await asyncio.wait([turn])
    waiting.clock.advance(10)
    assert waiting.clock.next_wake_seconds is None
    async with waiting.open(ops) as home:
        resumed = asyncio.ensure_future(home.resume())
        assert await next_wait(waiting) == 30
        waiting.clock.advance(30)
        await resumed
        await seen(home, S, holdfast.session.events.TurnEnded, reply="at last")
    assert [each.after for each in of(TurnResumed, await waiting.events(S))] == ["wait"]


@in_loop
async def test_a_clock_that_was_set_back_makes_the_wait_of_no_process_longer(
    waiting: Stage,
) -> None:
    ops = waiting.agent([{"say": "hello"}, AWAY, AWAY, {"say": "at last"}])
    async with waiting.open(ops) as home:
        await home.send(S, "hello", source=alice)
        waiting.clock.advance(3600)  # the home's own journal noted an earlier time
        turn = asyncio.ensure_future(home.send(S, "hello", source=alice))
        assert await next_wait(waiting) == 0.5
        turn.cancel()
        await asyncio.wait([turn])
    waiting.clock.jump(-3600)
    async with waiting.open(ops) as home:
        resumed = asyncio.ensure_future(home.resume())
        for seconds in (0.5, 1):
            assert await next_wait(waiting) == seconds
            waiting.clock.advance(seconds)
        await resumed
        await seen(home, S, holdfast.session.events.TurnEnded, reply="at last")


@in_loop
async def test_a_clock_that_was_set_back_does_not_move_the_bound(waiting: Stage) -> None:
    waiting.policy = Policy(model_retry_for_seconds=8)
    ops = waiting.agent([AWAY] * 9)
    async with waiting.open(ops) as home:
        turn = asyncio.ensure_future(home.send(S, "hello", source=alice))
        waits = [await next_wait(waiting)]
        waiting.clock.jump(-3600)
        for seconds in (1, 2, 4):
            waiting.clock.advance(waits[-1])
            waits.append(await next_wait(waiting))
            assert waits[-1] == seconds
        waiting.clock.advance(waits[-1])
        assert (await asyncio.wait_for(turn, 20)).outcome == "failed"
    assert sum(waits) == 7.5
