"""
Random calls of a model and random policies, from the dice of one seed.
"""

import random

import msgspec

from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Mode, Policy, Rule
from holdfast.session.view.messages import ProposedCall

_CALLS = (
    "look",
    "look",
    "peek",
    "delete",
    "delete",
    "tidy",
    "charge",
    "shell",
    "write_file",
    "ask_person",
    "delegate_helper",
    "nosuch",
    "dig",
    "dig",
)


def random_calls(dice: random.Random) -> tuple[ProposedCall, ...]:
    return tuple(_call(dice) for _ in range(dice.choice((1, 1, 2, 3))))


def _call(dice: random.Random) -> ProposedCall:
    tool = dice.choice(_CALLS)
    fields = {
        "branch": dice.choice("ab"),
        "path": dice.choice(("/srv/x", "/srv/y", "/outside/z", "home")),
    }
    if tool == "shell":
        fields["command"] = dice.choice(("ls", "$(date)"))
    if tool == "ask_person":
        return ProposedCall(tool, '{"question":"which?","choices":["answer","left","edit"]}')
    return ProposedCall(
        tool, dice.choice((msgspec.json.encode(fields).decode(),) * 9 + ("{broken",))
    )


def random_policy(dice: random.Random) -> Policy:
    modes: tuple[Mode, ...] = ("auto", "ask", "deny")
    rules = {
        audience: {
            tool: Rule(
                mode=dice.choice(modes),
                approvers=dice.choice((None, ("bob",), ("bob", "carol"), ())),
                requester_may_answer=dice.choice((None, False)),
            )
            for tool in ("delete", "look", "shell", "charge")
            if dice.random() < 0.5
        }
        for audience in Audience
    }
    return Policy(
        rules=rules,
        prompts_per_turn_max=dice.choice((1, 3, 20)),
        turn_model_calls_max=dice.choice((3, 50)),
        turn_tool_calls_max=dice.choice((4, 200)),
    )
