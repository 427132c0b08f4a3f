"""
The library for synchronous code: the same names, the same outcomes, and no way to wait for oneself.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

import holdfast
from holdfast import blocking
from holdfast.home import Home
from holdfast.runtime.external_loop.items import Items
from holdfast.runtime.external_loop.turn import ExternalTurn
from holdfast.testing import open_in_memory

ALICE = holdfast.MessageSource.local("alice")
HERE: list[blocking.BlockingHome] = []


@holdfast.tool(mode="auto", contract="pure")
def look(at: str) -> str:
    """Look somewhere."""
    return f"{at} is well"


@holdfast.tool(mode="auto")
async def ask_itself() -> str:
    """Call the very home that runs it."""
    return HERE[0].session("ops/api").phase


OPS = holdfast.Agent("ops", model="demo", tools=[look, ask_itself])


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_names_are_the_same() -> None:
    assert names(Home) - {"service"} == names(blocking.BlockingHome)
    assert names(ExternalTurn) == names(blocking.BlockingTurn)
    assert names(Items) == names(blocking.BlockingItems)


def test_the_module_has_every_name_of_the_library() -> None:
    """A notebook may write `from holdfast import blocking as holdfast`."""
    own = {
        "ExternalTurn": blocking.BlockingTurn,
        "Home": blocking.BlockingHome,
        "Items": blocking.BlockingItems,
        "open": blocking.open,
    }
    for name in holdfast.__all__:
        assert getattr(blocking, name) is own.get(name, getattr(holdfast, name)), name
    assert set(holdfast.__all__) <= set(dir(blocking))
    with pytest.raises(AttributeError, match="nothing"):
        _ = blocking.nothing


def test_help_says_the_same() -> None:
    assert (Home.send.__doc__ or "").strip().startswith("Send a message")
    assert blocking.BlockingHome.send.__doc__ == Home.send.__doc__
    assert blocking.BlockingTurn.gate.__doc__ == ExternalTurn.gate.__doc__


def test_a_loop_of_ones_own_needs_no_event_loop() -> None:
    with blocking.BlockingHome(open_in_memory(agents=[OPS])) as home:
        with home.turn("ops/api", "how is the api?", source=ALICE) as turn:
            gate = turn.start(turn.gate("look", {"at": "api"}))
            assert gate.may_run
            turn.record(gate, "ok", look(**gate.arguments))
            ended = turn.finish("The api is up.")
            assert (ended.turn, ended.outcome, ended.reply, turn.is_over) == (
                turn.turn,
                "completed",
                "The api is up.",
                True,
            )
        assert home.session("ops/api").phase == "idle"


def test_a_loop_that_raises_leaves_its_turn_for_another_loop() -> None:
    def broken(home: blocking.BlockingHome) -> None:
        with home.turn("ops/api", "how is the api?", source=ALICE):
            raise ZeroDivisionError

    with blocking.BlockingHome(open_in_memory(agents=[OPS])) as home:
        with pytest.raises(ZeroDivisionError):
            broken(home)
        assert home.session("ops/api").phase == "parked"


def test_a_tool_that_calls_the_home_from_its_own_loop_gets_an_error_and_nothing_hangs() -> None:
    with blocking.BlockingHome(open_in_memory(agents=[OPS])) as home:
        HERE[:] = [home]
        turn = home.send("ops/api", "ask_itself", source=ALICE)
        assert (turn.outcome, "the home is called from its own loop" in (turn.reply or "")) == (
            "completed",
            True,
        )


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[threading.Event], None]:
    """
    From now on the next that waits for a result hears Ctrl-C instead, once something has happened.
    """
    scheduled, after = asyncio.run_coroutine_threadsafe, list[threading.Event]()

    def interrupted(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Future[Any]:
        future = scheduled(work, loop)
        if after:
            happened = after.pop()

            def result() -> None:
                assert happened.wait(60)
                raise KeyboardInterrupt

            monkeypatch.setattr(future, "result", result)
        return future

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    return after.append


def test_a_follower_who_presses_ctrl_c_hears_of_that_and_of_nothing_else(
    interrupt: Callable[[threading.Event], None],
) -> None:
    at_once = threading.Event()
    at_once.set()
    with blocking.BlockingHome(open_in_memory(agents=[OPS])) as home:
        home.send("ops/api", "hello", source=ALICE)
        followed = home.follow("ops/api", after=0)
        for _ in range(home.session("ops/api").seq):
            next(followed)
        interrupt(at_once)
        with pytest.raises(KeyboardInterrupt):
            next(followed)
        assert home.session("ops/api").phase == "idle"


def test_an_interrupted_blocking_call_has_stopped_its_tool(
    interrupt: Callable[[threading.Event], None],
) -> None:
    """
    The tool has been stopped by the time that the interruption is told, as it is where a task that
    awaits a turn is cancelled.
    """
    began, stopped = threading.Event(), threading.Event()

    @holdfast.tool(mode="auto")
    async def wait_for_ever() -> str:
        """Never come back."""
        began.set()
        try:
            return str(await asyncio.Event().wait())
        finally:
            stopped.set()

    with blocking.BlockingHome(
        open_in_memory(agents=[holdfast.Agent("ops", model="demo", tools=[wait_for_ever])])
    ) as home:
        interrupt(began)
        with pytest.raises(KeyboardInterrupt):
            home.send("ops/api", "wait_for_ever", source=ALICE)
        assert stopped.is_set()
        assert [turn.outcome for turn in home.resume()] == ["completed"]
