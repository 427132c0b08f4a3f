"""
A caller of a verb may be cancelled at any await: what is durable stands, is told as it is,
and is found by whoever comes next.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import open_in_memory

ALICE = holdfast.MessageSource.local("alice")
AWAITS_MAX = 60  # far more than any verb here has: the sweep ends where a verb ends uncancelled


class CancelledAt:
    """Awaits a coroutine, and cancels the task that does when it waits for the nth time."""

    def __init__(self, verb: Coroutine[Any, Any, Any], at: int) -> None:
        self._verb = verb
        self._left = at

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._verb.__await__()
        send: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731  # replaced by a throw below
        while True:
            try:
                waits_for = send()
            except StopIteration as end:
                return end.value
            self._left -= 1
            if self._left == 0 and (task := asyncio.current_task()) is not None:
                task.cancel()
            try:
                yield waits_for
            except BaseException as exc:  # noqa: BLE001  # handed on to whom it is meant for
                thrown = exc
                send = lambda: steps.throw(thrown)  # noqa: B023, E731  # used before it changes
            else:
                send = lambda: steps.send(None)  # noqa: E731


async def _is_cancelled(verb: Coroutine[Any, Any, Any], at: int) -> bool:
    async def awaited() -> Any:
        return await CancelledAt(verb, at)

    task = asyncio.ensure_future(awaited())
    await asyncio.wait([task])
    return task.cancelled()


async def _story(home: holdfast.Home, verb: str, at: int, ran: list[int]) -> bool:
    """
    One verb cancelled at its nth await, then whatever is left seen through on the same home.
    Returns whether it was cancelled at all.
    """
    if verb == "send":
        cancelled = await _is_cancelled(home.send("bank/may", f"pay amount={at}", source=ALICE), at)
    else:
        waiting = await home.send("bank/may", f"pay amount={at}", source=ALICE)
        cancelled = await _is_cancelled(
            home.answer(waiting.approvals[0], "approve_once", by=ALICE), at
        )
    await home.resume()
    for prompt in await home.approvals():
        answer = await home.answer(prompt, "approve_once", by=ALICE)
        assert (answer.result, answer.turn.outcome) == ("started", "completed"), (
            f"{verb} cancelled at {at}"
        )
    try:
        session = await home.session("bank/may")
    except holdfast.Refused:
        assert verb == "send"
        return cancelled
    assert (session.phase, session.owes, session.sealed) == ("idle", (), None), (
        f"{verb} cancelled at {at}"
    )
    assert len(ran) <= 1, f"{verb} cancelled at {at}"
    return cancelled


@pytest.mark.parametrize("kept", ["in files", "in memory"])
@pytest.mark.parametrize("verb", ["send", "answer"])
def test_a_verb_cancelled_at_any_await_leaves_nothing_owed_that_nobody_finds(
    tmp_path: Path, verb: str, kept: str
) -> None:
    """
    T2, T7: an answer that was durable when its caller was cancelled was listed as waiting ever
    after, and nobody drove it on.
    """
    ran: list[int] = []

    @holdfast.tool
    async def pay(amount: int) -> str:
        """Pay somebody."""
        ran.append(amount)
        await asyncio.sleep(0)
        return f"{amount} paid"

    bank = holdfast.Agent("bank", model="demo", tools=[pay])

    async def once(at: int) -> bool:
        ran.clear()
        async with (
            holdfast.open(tmp_path / f"{at}", agents=[bank])
            if kept == "in files"
            else open_in_memory(agents=[bank]) as home
        ):
            return await _story(home, verb, at, ran)

    cancelled = [asyncio.run(once(at)) for at in range(1, 4)]
    while cancelled[-1]:
        assert len(cancelled) < AWAITS_MAX
        cancelled.append(asyncio.run(once(len(cancelled) + 1)))
    assert cancelled[:3] == [True, True, True]


async def _own_loop(home: holdfast.Home, session: str, ran: list[int]) -> None:
    async with home.turn(session, "pay", source=ALICE) as turn:
        gate = await turn.gate("pay", {"amount": 1})
        if gate.approval is not None:
            await home.answer(gate.approval, "approve_once", by=ALICE, wait=False)
        gate = await turn.start(await turn.wait(gate))
        if gate.may_run:
            ran.append(1)
            await turn.record(gate, "ok", "paid")
        await turn.finish("done")


async def _ended_or_taken_up(home: holdfast.Home, session: str) -> None:
    """The next driver settles the rest of a turn."""
    try:
        phase = (await home.session(session)).phase
    except holdfast.Refused:
        return  # it was not even created
    for prompt in await home.approvals():
        await home.answer(prompt, "approve_once", by=ALICE)
    if phase == "parked":
        async with home.take_up(session, "t1") as turn:
            for gate in await turn.gates():
                started = await turn.start(await turn.wait(gate))
                assert started.may_run
                await turn.record(started, "ok", "paid")
            await turn.finish("done")
    found = await home.session(session)
    assert (found.phase, found.owes) == ("idle", ()), session


@pytest.mark.parametrize("kept", ["in files", "in memory"])
def test_a_loop_of_ones_own_cancelled_at_any_await_leaves_its_turn_ended_or_parked(
    tmp_path: Path, kept: str
) -> None:
    """T7: in between nobody could go on with it, and no list said so."""
    ran: list[int] = []

    @holdfast.tool
    def pay(amount: int) -> str:
        """Pay somebody."""
        return f"{amount} paid"

    bank = holdfast.Agent("bank", model="demo", tools=[pay])

    async def story() -> int:
        async with (
            holdfast.open(tmp_path / "home", agents=[bank])
            if kept == "in files"
            else open_in_memory(agents=[bank]) as home
        ):
            for at in range(1, AWAITS_MAX):
                cancelled = await _is_cancelled(_own_loop(home, f"bank/m{at}", ran), at)
                await _ended_or_taken_up(home, f"bank/m{at}")
                if not cancelled:
                    return at
        raise AssertionError("it never came to its end")

    assert asyncio.run(story()) > 10
    assert ran


@pytest.mark.parametrize("overtaken_by", ["a cancel", "a later message"])
def test_an_answer_whose_call_was_overtaken_is_not_reported_as_started(overtaken_by: str) -> None:
    """
    The call never began, in no process: `started` would send somebody looking for what it did.
    """
    ran: list[int] = []

    @holdfast.tool
    def pay(amount: int) -> str:
        """Pay somebody."""
        ran.append(amount)
        return "paid"

    bank = holdfast.Agent("bank", model="demo", tools=[pay])

    async def story() -> None:
        async with open_in_memory(agents=[bank]) as home:
            (prompt, sibling) = (
                await home.send("bank/may", "pay amount=1\npay amount=2", source=ALICE)
            ).approvals
            deferred = await home.answer(prompt, "approve_once", by=ALICE, answer_id="mine")
            assert deferred.result == "deferred"  # its sibling waits still
            if overtaken_by == "a cancel":
                await home.cancel("bank/may", by=ALICE)
            else:
                await home.send("bank/may", "help", source=ALICE)
            again = await home.answer(prompt, "approve_once", by=ALICE, answer_id="mine")
            reason = "cancelled" if overtaken_by == "a cancel" else "superseded"
            assert (again.result, again.reason, again.turn.outcome) == ("failed", reason, reason)
            late = await home.answer(sibling, "approve_once", by=ALICE)
            assert (late.result, late.reason) == ("failed", reason)

    asyncio.run(story())
    assert ran == []
