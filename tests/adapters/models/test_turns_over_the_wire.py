"""
Whole turns against a provider on the loopback: a slow first token, an outage that the turn waits
out, and a reply that a person stops in the middle.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
from tests.adapters.models.conftest import Line
from tests.adapters.models.test_providers import Dialect, every_dialect, refusal, stream

import holdfast
from holdfast.adapters.models.pydantic_ai.model import PydanticAIModel
from holdfast.home import Home
from holdfast.ports.journal_store import Record
from holdfast.runtime.context import ModelTimes
from holdfast.runtime.streams.feed import Delta
from holdfast.session.codec import decode
from holdfast.session.events import (
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallStarted,
    SessionEvent,
    ToolStarted,
    TurnEnded,
)
from holdfast.testing.loop import in_loop

alice = holdfast.MessageSource.local("alice")
S = "ops/api"


class Stage:
    """A real home in a folder, whose one agent asks the provider."""

    def __init__(self, folder: Path, dialect: Dialect) -> None:
        self.restarted: list[str] = []

        @holdfast.tool(mode="auto")
        def restart_service(service: str) -> str:
            """Restart one service."""
            self.restarted.append(service)
            return f"{service} restarted"

        self.agent = holdfast.Agent("ops", model=dialect.model, tools=[restart_service])
        self.folder = folder

    def open(self) -> Home:
        return holdfast.open(self.folder / "home", agents=[self.agent])


def hurry(home: Home, **times: float) -> None:
    """Shorter times than people need: the rules stay the same."""
    runtime = home.service.runtime
    runtime.world.model_times = msgspec.structs.replace(ModelTimes(retry_seconds=0.01), **times)


async def events(home: Home) -> list[SessionEvent]:
    seq = (await home.service.show(S)).seq
    found: list[SessionEvent] = []
    async for each in home.follow(S, after=0):
        if isinstance(each, Record):
            found.append(decode(each.type, each.version, each.body, seq=each.seq))
            if each.seq >= seq:
                break
    return found


def of(kind: type[Any], found: list[SessionEvent]) -> list[Any]:
    return [each for each in found if isinstance(each, kind)]


def saying(dialect: Dialect, text: str) -> Callable[[Line], Any]:
    return stream(dialect.opening(), dialect.text(text), dialect.ending("stop"))


@every_dialect
@in_loop
async def test_a_slow_first_token_is_waited_for(
    dialect: Dialect, provider: Any, tmp_path: Path
) -> None:
    """The request is out and nothing came back. The turn runs, and ends when the token comes."""
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(line: Line) -> None:
        await line.open_stream()
        asked.set()
        await go.wait()
        await line.send(*dialect.opening(), *dialect.text("at last"), *dialect.ending("stop"))
        await line.end_stream()

    async with provider() as it, Stage(tmp_path, dialect).open() as home:
        hurry(home)
        it.replies.append(slow)
        turn = asyncio.ensure_future(home.send(S, "hello", source=alice))
        await asked.wait()
        assert (await home.service.show(S)).phase == "calling_model"
        go.set()
        assert (await turn).reply == "at last"
        assert len(it.seen) == 1
        assert len(of(ModelCallStarted, await events(home))) == 1


@every_dialect
@in_loop
async def test_a_provider_is_loaded_beside_the_event_loop(
    dialect: Dialect, provider: Any, tmp_path: Path
) -> None:
    """Loading takes a second. Meanwhile others are served, and a person can stop the turn."""
    loop_thread, loaded_in = threading.current_thread(), []
    async with provider() as it, Stage(tmp_path, dialect).open() as home:
        it.replies.append(saying(dialect, "done"))
        model = cast(PydanticAIModel, home.service.runtime.world.models.resolve(dialect.model))
        make = model._make

        def noted() -> Any:
            loaded_in.append(threading.current_thread())
            return make()

        model._make = noted
        assert (await home.send(S, "hello", source=alice)).reply == "done"
    assert len(loaded_in) == 1
    assert loop_thread not in loaded_in


@every_dialect
@in_loop
async def test_a_first_token_that_never_comes_is_hung_up_on_and_asked_again(
    dialect: Dialect, provider: Any, tmp_path: Path
) -> None:
    hung_up = asyncio.Event()

    async def silence(line: Line) -> None:
        await line.open_stream()
        await line.wait_until_hung_up()
        hung_up.set()

    async with provider() as it, Stage(tmp_path, dialect).open() as home:
        hurry(home, first_token_seconds=0.3)
        it.replies.extend([silence, saying(dialect, "at last")])
        turn = await home.send(S, "hello", source=alice)
        await hung_up.wait()
        assert (turn.outcome, turn.reply) == ("completed", "at last")
        (failed,) = of(ModelCallFailed, await events(home))
        assert (failed.kind, failed.final) == ("timeout", False)


@every_dialect
@in_loop
async def test_an_outage_through_a_whole_turn_costs_waits_and_nothing_else(
    dialect: Dialect, provider: Any, tmp_path: Path
) -> None:
    """
    The provider refuses, drops the connection and cuts a stream, before and after the tool ran.
    The turn completes, the tool runs once, and every attempt is in the journal with its next try.
    """

    async def cut(line: Line) -> None:
        await line.open_stream()
        await line.send(*dialect.opening())
        line.die()

    async def gone(line: Line) -> None:
        line.die()

    world = Stage(tmp_path, dialect)
    away = refusal(503, dialect.error("server_error", "away"))
    call = stream(
        dialect.opening(),
        dialect.call(0, "call_1", "restart_service", json.dumps({"service": "api"})),
        dialect.ending("call"),
    )
    async with provider() as it, world.open() as home:
        hurry(home)
        it.replies.extend([away, gone, cut, call, cut, away, saying(dialect, "api is back")])
        turn = await home.send(S, "restart the api", source=alice)
        assert (turn.outcome, turn.reply) == ("completed", "api is back")
        assert world.restarted == ["api"]
        assert (len(it.seen), it.replies) == (7, [])
        found = await events(home)
    failed = of(ModelCallFailed, found)
    assert len(failed) == 5
    assert not any(each.final for each in failed)
    assert all(each.retry_at is not None for each in failed)
    waits = [each.wait_ms for each in failed]
    assert waits[:3] == [10, 20, 40]
    assert waits[3:] == [10, 20], "an answer ends the row"
    assert len(of(ToolStarted, found)) == 1
    assert [each.text for each in of(ModelAnswered, found)][-1] == "api is back"


@every_dialect
@in_loop
async def test_a_provider_that_asks_to_wait_is_asked_again_then(
    dialect: Dialect, provider: Any, tmp_path: Path
) -> None:
    limited = refusal(429, dialect.error("rate_limit_exceeded", "slow down"), retry_after="1")
    async with provider() as it, Stage(tmp_path, dialect).open() as home:
        hurry(home)
        it.replies.extend([limited, saying(dialect, "now")])
        turn = await home.send(S, "hello", source=alice)
        assert turn.reply == "now"
        (failed,) = of(ModelCallFailed, await events(home))
        assert (failed.kind, failed.wait_ms) == ("rate_limit", 1000)


@every_dialect
@in_loop
async def test_the_text_before_a_stop_is_kept_in_the_journal(
    dialect: Dialect, provider: Any, tmp_path: Path
) -> None:
    """Stop hangs up on the provider. The pieces that people saw are one record, after the end."""

    sent = asyncio.Event()

    async def stall(line: Line) -> None:
        await line.open_stream()
        sent.set()
        await line.send(*dialect.opening(), *dialect.text("First I look. ", "Then")[:-1])
        await line.wait_until_hung_up()

    async with provider() as it, Stage(tmp_path, dialect).open() as home:
        hurry(home)
        it.replies.append(stall)
        turn = asyncio.ensure_future(home.send(S, "hello", source=alice))
        await sent.wait()
        shown = ""
        async for each in home.follow(S, after=0):
            if isinstance(each, Delta):
                shown += each.text
            if "First I" in shown:
                break
        await home.cancel(S, by=alice)
        assert (await turn).outcome == "cancelled"
        await it.done.wait()
        found = await events(home)
    (kept,) = of(ModelAnswerDropped, found)
    assert kept.text.startswith("First I")
    ended = next(place for place, each in enumerate(found) if isinstance(each, TurnEnded))
    assert found.index(kept) > ended
