"""Pydantic AI keeps the contract of an external loop."""

from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.testing.under import UnderContract
from tests.integrations.guide import says_alone


class Line:
    line: ClassVar[str] = "tests.integrations.pydantic_ai.scripted:line"
    cwd: ClassVar[Path | None] = Path(__file__).parents[3]


@pytest.mark.long
class TestPydanticAI(Line, UnderContract):
    """Every story."""


class TestPydanticAIInShort(Line):
    """The two stories that matter most. Each process of a story imports the framework."""

    processes = UnderContract.processes
    test_a_prompt_survives_kill_9_a_stranger_is_refused_and_the_call_runs_once = (
        UnderContract.test_a_prompt_survives_kill_9_a_stranger_is_refused_and_the_call_runs_once
    )
    test_a_kill_in_mid_tool_is_in_doubt_and_the_same_line_never_runs_it_again = (
        UnderContract.test_a_kill_in_mid_tool_is_in_doubt_and_the_same_line_never_runs_it_again
    )


@pytest.mark.long
def test_the_guide_says_what_the_framework_does_alone_in_the_same_crash() -> None:
    assert says_alone("Pydantic AI", "pydantic_ai_alone")
