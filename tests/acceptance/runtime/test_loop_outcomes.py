"""Every known end of a call in an external loop is recorded as it was, whatever the tool gave."""

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.session.events import CallFinished
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice
from tests.acceptance.runtime.test_foreign_loop import loop_agent
from tests.acceptance.runtime.test_pause_and_answer import of


class Marked(str):
    """Text of a framework's own type, which JSON does not know."""

    __slots__ = ()

    def __str__(self) -> str:
        raise AssertionError


class Wordless(Exception):
    def __str__(self) -> str:
        raise AssertionError


async def _ended(stage: Stage, run: Callable[[Any], Any]) -> tuple[CallFinished, str]:
    raised = ""
    async with (
        stage.open(loop_agent(stage)) as home,
        home.turn("ops/api", "look around", source=alice) as turn,
    ):
        gate = await turn.gate("look", {"at": "api"})
        try:
            await turn.call(gate, run)
        except Exception as exc:  # noqa: BLE001  as a loop does that goes on
            raised = type(exc).__name__
        assert (await turn.finish("looked")).outcome == "completed"
    (finished,) = of(CallFinished, await stage.events("ops/api"))
    return finished, raised


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a file named \udcff", "a file named ?"),
        (Marked("well"), "well"),
        (holdfast.LoopResult("half \ud800"), "half ?"),
        (holdfast.LoopResult(Marked("well")), "well"),
    ],
    ids=["half a character", "own text", "half in a result", "own text in a result"],
)
@in_loop
async def test_a_tool_that_ran_is_not_in_doubt_for_the_text_that_it_gave(
    stage: Stage, value: object, text: str
) -> None:
    finished, raised = await _ended(stage, lambda _: value)
    assert (finished.outcome, finished.text, raised) == ("ok", text, "")


@pytest.mark.parametrize(
    "value",
    [
        holdfast.LoopResult(None),  # type: ignore[arg-type]  # a mistake
        holdfast.LoopResult("well", blob=b"state"),
        holdfast.LoopResult("well", blob=5, adapter="ours/1"),  # type: ignore[arg-type]  # a mistake
    ],
    ids=["no text", "no adapter", "no blob"],
)
@in_loop
async def test_a_tool_that_ran_is_not_in_doubt_for_a_result_that_cannot_be_kept(
    stage: Stage, value: object
) -> None:
    finished, raised = await _ended(stage, lambda _: value)
    assert (finished.outcome, raised) == ("error", "Unusable")
    assert finished.text.startswith("it ran, but its result can't be recorded (Unusable: ")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no \udcff"), "ValueError: no ?"),
        (ValueError(Marked("no")), "ValueError: (it can't say why)"),
        (Wordless(), "Wordless: (it can't say why)"),
    ],
    ids=["half a character", "own text", "no words"],
)
@in_loop
async def test_a_tool_that_failed_is_not_in_doubt_for_the_words_of_its_error(
    stage: Stage, error: Exception, text: str
) -> None:
    def fail(_: object) -> None:
        raise error

    finished, raised = await _ended(stage, fail)
    assert (finished.outcome, finished.text, raised) == ("error", text, type(error).__name__)
