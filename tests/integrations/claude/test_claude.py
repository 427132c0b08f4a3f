"""Claude's own program keeps the contract of an external loop, as far as its hooks reach."""

from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.testing.under import UnderContract
from tests.integrations.guide import run_example

pytest.importorskip("claude_agent_sdk", reason="make test-integrations has it")


class TestClaude(UnderContract):
    line: ClassVar[str] = "tests.integrations.claude.scripted:line"
    cwd: ClassVar[Path | None] = Path(__file__).parents[3]

    # Claude can pause at one call alone, and not inside of a sub-agent: see test_hooks.
    test_each_of_two_calls_continues_with_its_own_answer = None
    test_a_nested_agents_call_pauses_its_parent_and_runs_once = None


def test_the_example_of_the_guide_runs_as_printed(tmp_path: Path) -> None:
    """The example needs a model: its environment names the Messages API on loopback."""
    from tests.integrations.claude.messages_api import MessagesAPI
    from tests.integrations.claude.scripted import environment

    api = MessagesAPI()
    try:
        printed = run_example("claude", tmp_path, environment(tmp_path, api)).splitlines()
    finally:
        api.shutdown()
        api.server_close()
    assert (len(printed), printed[0], "api restarted" in printed[1]) == (2, "waiting", True)
    assert api.asked == 2
