"""ADK keeps the contract of an external loop."""

from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.testing.under import UnderContract
from tests.integrations.guide import run_example

pytest.importorskip("google.adk", reason="make test-integrations has it")


class TestADK(UnderContract):
    line: ClassVar[str] = "tests.integrations.adk.scripted:line"
    cwd: ClassVar[Path | None] = Path(__file__).parents[3]


def test_the_example_of_the_guide_runs_as_printed(tmp_path: Path) -> None:
    assert run_example("adk", tmp_path) == "waiting\nIt is restarted.\n"
