"""
A year of one busy session, by dice: people write and answer late, channels fail, processes die at
any record, summaries are made again and again.

It must end with a journal that verifies, a view that the model can use, no delivery twice that was
confirmed, none forgotten, and each approved effect at most once. `HOLDFAST_YEAR_TURNS=5000
HOLDFAST_YEAR_SEED=7` makes it longer, or another one.
"""

import asyncio
import contextlib
import os
import random
from collections import Counter
from typing import Any

import pytest

import holdfast
from holdfast.adapters.inmemory import Crashed
from holdfast.errors import Busy, Fenced, InDoubt, Refused
from holdfast.home import Agent
from holdfast.ids import SessionId, TurnId
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered, Parcel
from holdfast.ports.model import ModelFailed, ModelRequest, OnText
from holdfast.session.codec import EVENT_TYPES, decode
from holdfast.session.events import (
    Compacted,
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryQueued,
    ToolStarted,
    TurnCompacted,
    TurnEnded,
)
from holdfast.session.view.compaction import CompactionRules
from holdfast.session.view.messages import (
    AssistantMessage,
    ModelAnswer,
    ProposedCall,
    ResultMessage,
    Usage,
)
from holdfast.testing import ManualClock
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_home import Disk, crash_after, open_in_memory

TURNS = int(os.environ.get("HOLDFAST_YEAR_TURNS", "150"))
SEEDS = [int(os.environ["HOLDFAST_YEAR_SEED"])] if "HOLDFAST_YEAR_SEED" in os.environ else [1, 2]
PEOPLE = [holdfast.MessageSource.local(name) for name in ("alice", "bob", "carol")]
DEADLY = [
    EVENT_TYPES[name]
    for name in sorted(EVENT_TYPES)
    if name not in ("tail_repaired", "turn_imported", "life_carried", "session_born")
]
WINDOW = 3000
S = SessionId("ops/year")


class Dice:
    """
    A model that talks at length, asks for tools now and then, overflows, fails, and counts
    honestly.
    """

    name = "dice"
    context_tokens = WINDOW

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.largest = 0

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        await asyncio.sleep(0)
        tokens = sum(len(message.text) for message in request.messages) // 4
        if not request.tools:
            if self.dice.random() < 0.1:
                raise ModelFailed("server", "no summary today", may_pass=True)
            return ModelAnswer(
                text=f"Summary {self.dice.randrange(10**6)}: " + "they talked. " * 20,
                usage=Usage(input_tokens=tokens, output_tokens=60),
            )
        _check_contiguous(request)
        self.largest = max(self.largest, tokens)
        roll = self.dice.random()
        if tokens > WINDOW:
            raise ModelFailed("overflow", "too long", may_pass=False)
        if roll < 0.03:
            raise ModelFailed("server", "hiccup", may_pass=True)
        on_text("")
        usage = Usage(input_tokens=tokens, output_tokens=40)
        if roll < 0.3:
            tool = self.dice.choice(["act", "look"])
            return ModelAnswer(
                text="",
                calls=(ProposedCall(tool, f'{{"what": "{self.dice.randrange(10**9)}"}}'),),
                usage=usage,
            )
        return ModelAnswer(text="word " * self.dice.randrange(5, 120), usage=usage)


def _check_contiguous(request: ModelRequest) -> None:
    """T5, in every request that is ever made."""
    waiting: list[str] = []
    for message in request.messages:
        if isinstance(message, ResultMessage):
            assert message.call == waiting.pop(0)
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            waiting = [call.call for call in message.calls]
    assert not waiting


class Post:
    name = "post"

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.arrived: Counter[str] = Counter()

    def takes(self, kind: str, *, of: str) -> bool:
        return of == "local" and kind in ("reply", "prompt")

    async def send(self, parcel: Parcel) -> str | None:
        await asyncio.sleep(0)
        roll = self.dice.random()
        if roll < 0.1:
            raise NotDelivered("down", may_pass=True)
        self.arrived[parcel.delivery] += 1
        if roll < 0.15:
            raise DeliveryInDoubt("no answer")
        return "ok"


@pytest.mark.parametrize("seed", SEEDS)
@in_loop
async def test_a_busy_year_ends_whole(seed: int) -> None:
    dice, disk, clock = random.Random(seed), Disk(), ManualClock()
    model, post, done = Dice(dice), Post(dice), Counter[str]()

    @holdfast.tool
    def act(what: str) -> str:
        """Can't be undone."""
        done[what] += 1
        return f"did {what} " + "detail " * 30

    @holdfast.tool(contract="pure", mode="auto")
    def look(what: str) -> str:
        """Only look."""
        return f"saw {what} " + "detail " * 60

    ops = Agent("ops", model=model, tools=[act, look])
    turns = crashes = 0
    while turns < TURNS:
        crash = (
            crash_after(dice.choice(DEADLY), times=dice.randrange(1, 4))
            if dice.random() < 0.7
            else None
        )
        with contextlib.suppress(Crashed):
            async with open_in_memory(agents=[ops], disk=disk, crash=crash, clock=clock) as home:
                home.service.runtime.world.compaction = lambda: CompactionRules(
                    at_tokens=WINDOW * 2 // 3, keep_turns=2
                )
                home.service.runtime.world.channels = lambda: {post.name: post}
                for _ in range(dice.randrange(1, 12)):
                    turns += 1
                    clock.advance(dice.randrange(1, 48) * 3600)
                    await _something(home, dice, turns)
                continue
        crashes += 1

    async with open_in_memory(agents=[ops], disk=disk, clock=clock) as home:
        home.service.runtime.world.channels = lambda: {post.name: post}
        report = await home.service.show(S)
        for _ in range(20):  # a turn that goes on after its prompt ran out may ask once more
            clock.advance(30 * 24 * 3600)
            await home.service.resume(S, by="alice")
            report = await home.service.show(S)
            if report.phase == "idle":
                break
        assert (report.phase, report.owes, report.queued, report.sealed) == ("idle", (), 0, None)
        events: list[Any] = []
        journal = await home.service.runtime.world.store.open(S)
        await journal.load(
            lambda record: events.append(decode(record.type, record.version, record.body))
        )
        await journal.close()
    _judge(events, post, done, model)
    assert crashes > 0


async def _something(home: Any, dice: random.Random, number: int) -> None:
    roll, who = dice.random(), dice.choice(PEOPLE)
    with contextlib.suppress(Refused, Busy, Fenced, InDoubt):
        if roll < 0.15 and (waiting := await home.approvals()):
            asked = dice.choice(waiting)
            by = next(each for each in PEOPLE if each.person in asked.may_answer)
            await home.answer(asked, dice.choice(["approve_once", "deny"]), by=by)
        elif roll < 0.2:
            await home.service.compact(S)
        elif roll < 0.25:
            await home.service.mirror(
                S, TurnId(f"t{max(1, number - 1)}"), channel="slack", part="1", text="shown"
            )
        elif roll < 0.28:
            await home.service.cancel(S, by=str(who.person))
        else:
            await home.send(
                S,
                f"request {number} about file{number % 40}.py " + "word " * dice.randrange(5, 120),
                source=who,
                dedup=f"k{number}",
            )


def _judge(events: list[Any], post: Post, done: Counter[str], model: Dice) -> None:
    summaries = [event for event in events if isinstance(event, Compacted | TurnCompacted)]
    assert len(summaries) >= TURNS // 20
    assert all(event.tokens_after < event.tokens_before for event in summaries)
    assert model.largest <= WINDOW * 2
    queued = [event.delivery for event in events if isinstance(event, DeliveryQueued)]
    confirmed = Counter(event.delivery for event in events if isinstance(event, DeliveryConfirmed))
    given_up = Counter(event.delivery for event in events if isinstance(event, DeliveryFailed))
    assert len(queued) == len(set(queued))
    assert set(queued) == set(confirmed) | set(given_up)
    assert not set(confirmed) & set(given_up)
    assert set(confirmed.values()) <= {1}
    ours = {
        event.delivery
        for event in events
        if isinstance(event, DeliveryQueued) and event.channel == post.name
    }
    assert all(post.arrived[each] == 1 for each in set(confirmed) & ours)
    assert all(count == 1 for count in post.arrived.values())
    started = Counter(
        event.call
        for event in events
        if isinstance(event, ToolStarted) and event.contract == "once"
    )
    assert set(started.values()) <= {1}
    assert all(count == 1 for count in done.values())
    assert sum(done.values()) <= len(started)
    assert sum(isinstance(event, TurnEnded) for event in events) > TURNS // 4
