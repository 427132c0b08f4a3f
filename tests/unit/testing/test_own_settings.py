"""A user's own holdfast.toml and agents in a home in memory, with the model replaced."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import ScriptModel, open_in_memory

RULE = '[policy.personal]\nact = { ask = ["bob"], requester_may_answer = false }\n'
AGENTS = '[agents.night]\nmodel = "openai:gpt-5"\ninstructions = "Watch."\ntools = ["now"]\n'
ALICE, BOB = holdfast.MessageSource.local("alice"), holdfast.MessageSource.local("bob")


@holdfast.tool
async def act(what: str) -> str:
    """Act."""
    return f"did {what}"


OPS = holdfast.Agent("ops", model="anthropic:nobody-has-this-key", tools=[act])


def _model() -> ScriptModel:
    return ScriptModel([{"call": [{"tool": "act", "args": {"what": "it"}}]}, {"say": "done"}])


@pytest.mark.parametrize("as_path", [True, False], ids=["a path", "text"])
def test_a_two_person_rule_is_tested_in_five_lines(
    holdfast_home: Any, tmp_path: Path, as_path: bool
) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_text(RULE)

    async def story() -> None:
        settings = path if as_path else RULE
        async with holdfast_home(settings=settings, agents=[OPS], model=_model()) as home:
            turn = await home.send("ops/api", "go", source=ALICE)
            alone = await home.answer(turn.approvals[0], "approve_once", by=ALICE)
            both = await home.answer(turn.approvals[0], "approve_once", by=BOB)
            assert (alone.reason, both.turn.reply) == ("wrong_approver", "done")

    asyncio.run(story())


def test_an_agent_of_the_settings_speaks_with_the_given_model() -> None:
    async def story() -> str | None:
        model = ScriptModel([{"say": "all quiet"}])
        async with open_in_memory(settings=AGENTS, model=model) as home:
            return (await home.send("ops/night", "well?", source=ALICE, agent="night")).reply

    assert asyncio.run(story()) == "all quiet"


def test_the_given_model_may_be_a_name() -> None:
    async def story() -> str:
        async with open_in_memory(settings=AGENTS, agents=[OPS], model="demo") as home:
            mine = await home.send("ops/api", "help", source=ALICE)
            theirs = await home.send("ops/night", "help", source=ALICE, agent="night")
            return f"{mine.reply} {theirs.reply}"

    said = asyncio.run(story())
    assert "Tools: act." in said
    assert "Tools: now." in said


@pytest.mark.parametrize("settings", ["/nowhere/holdfast.toml", "[policy.personal]\nact = 3\n"])
def test_settings_that_cannot_be_used_are_refused_with_a_hint(settings: str) -> None:
    with pytest.raises(holdfast.Unusable) as refused:
        open_in_memory(settings=settings)
    assert refused.value.hint
