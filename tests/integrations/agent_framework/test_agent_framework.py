"""Microsoft Agent Framework keeps the contract of an external loop."""

from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.testing.under import UnderContract
from tests.integrations.guide import run_example, says_alone

pytest.importorskip("agent_framework", reason="make test-integrations has it")


class TestAgentFramework(UnderContract):
    line: ClassVar[str] = "tests.integrations.agent_framework.scripted:line"
    cwd: ClassVar[Path | None] = Path(__file__).parents[3]


def test_the_example_of_the_guide_runs_as_printed(tmp_path: Path) -> None:
    assert run_example("agent-framework", tmp_path) == "waiting\nit is up\n"


def test_the_guide_says_what_the_framework_does_alone_in_the_same_crash() -> None:
    assert says_alone("Agent Framework", "agent_framework_alone")
