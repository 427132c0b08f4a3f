"""The library for synchronous code: the same names, the same outcomes, and no way to wait for oneself."""

import pytest

import holdfast
from holdfast import blocking
from holdfast.home import Home
from holdfast.runtime.foreign import ForeignTurn
from holdfast.testing import open_in_memory

ALICE = holdfast.MessageSource.local("alice")
HERE: list[blocking.Home] = []


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
    return {name for name in vars(kind) if not name.startswith("_")}


def test_the_names_are_the_same() -> None:
    assert names(Home) - {"service"} == names(blocking.Home)
    assert names(ForeignTurn) == names(blocking.OwnLoop)


def test_a_loop_of_ones_own_needs_no_event_loop() -> None:
    with blocking.Home(open_in_memory(agents=[OPS])) as home:
        with home.turn("ops/api", "how is the api?", source=ALICE) as turn:
            gate = turn.gate("look", {"at": "api"})
            assert gate.may_run
            turn.record(gate, "ok", look(**gate.arguments))
            ended = turn.finish("The api is up.")
            assert (ended.turn, ended.outcome, ended.reply, turn.is_over) == (turn.turn, "completed", "The api is up.", True)
        assert home.session("ops/api").phase == "idle"


def test_a_loop_that_raises_leaves_no_turn_open() -> None:
    def broken(home: blocking.Home) -> None:
        with home.turn("ops/api", "how is the api?", source=ALICE):
            raise ZeroDivisionError

    with blocking.Home(open_in_memory(agents=[OPS])) as home:
        with pytest.raises(ZeroDivisionError):
            broken(home)
        assert home.session("ops/api").phase == "idle"


def test_a_tool_that_calls_the_home_from_its_own_loop_is_told_and_nothing_hangs() -> None:
    with blocking.Home(open_in_memory(agents=[OPS])) as home:
        HERE[:] = [home]
        turn = home.send("ops/api", "ask_itself", source=ALICE)
        assert (turn.outcome, "the home is called from its own loop" in (turn.reply or "")) == ("completed", True)
