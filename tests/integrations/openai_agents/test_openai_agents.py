"""The OpenAI Agents SDK keeps the contract of an external loop."""

from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.testing.under import UnderContract
from tests.integrations.guide import run_example

pytest.importorskip("agents", reason="make test-integrations has it")


class TestOpenAIAgents(UnderContract):
    line: ClassVar[str] = "tests.integrations.openai_agents.scripted:line"
    cwd: ClassVar[Path | None] = Path(__file__).parents[3]


def test_the_example_of_the_guide_runs_as_printed(tmp_path: Path) -> None:
    assert run_example("openai-agents", tmp_path) == "waiting\nIt is restarted.\n"
