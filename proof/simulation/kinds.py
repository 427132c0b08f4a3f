"""
The kind of a simulation, by its seed: turns alone, or with delegates, reminders, memory or
background jobs, or with everything at once.

One kind at a time costs less than everything every time, so a thousand seeds cover more of each.
"""

from enum import Enum

from holdfast.ids import SessionId
from holdfast.runtime.context import AgentSpec
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Policy, Rule


class Has(Enum):
    """Features of a simulation besides turns, tools and prompts."""

    DELEGATES = "delegates"
    REMINDERS = "reminders"
    MEMORY = "memory"
    JOBS = "jobs"


KINDS: tuple[frozenset[Has], ...] = (
    frozenset(),
    *(frozenset({each}) for each in Has),
    frozenset(Has),
)
PLAIN_TOOLS = ("act", "tidy", "look", "charge", "ask_person")
ONLY_BELOW = "vault"
"""A tool that the delegates' agents have but the people's agent lacks, so it must never run."""
BELOW = "You work for another agent."
_TOOLS = {
    Has.REMINDERS: ("set_reminder", "list_reminders", "cancel_reminder"),
    Has.MEMORY: ("remember", "recall"),
    Has.JOBS: ("dig", "brew", "job_status"),
}
JOB_SECONDS = 30.0


def kind_of(seed: int) -> frozenset[Has]:
    return KINDS[seed % len(KINDS)]


def sessions_of(kind: frozenset[Has]) -> tuple[SessionId, ...]:
    """
    Return the sessions. Memory is recalled only where all readers share one boundary, so some
    people have a session of their own.
    """
    alone = ("notes/alice", "notes/bob") if Has.MEMORY in kind else ("ops/web",)
    return tuple(SessionId(name) for name in ("ops/api", *alone))


def agents_of(kind: frozenset[Has]) -> dict[str, AgentSpec]:
    tools = (*PLAIN_TOOLS, *(name for each in Has if each in kind for name in _TOOLS.get(each, ())))
    if Has.DELEGATES not in kind:
        return {"ops": AgentSpec(name="ops", model="dice", tools=tools)}
    return {
        "ops": AgentSpec(name="ops", model="dice", tools=tools, delegates=("helper",)),
        "helper": AgentSpec(
            name="helper",
            model="dice",
            instructions=BELOW,
            tools=(*tools, ONLY_BELOW),
            delegates=("scout",),
        ),
        "scout": AgentSpec(
            name="scout", model="dice", instructions=BELOW, tools=(*tools, ONLY_BELOW)
        ),
    }


def policy_of(kind: frozenset[Has]) -> Policy:
    """
    Return the initial policy. Some tools that ask by default run without asking, because otherwise
    they would hardly ever run.
    """
    free = ("set_reminder", "remember") if kind & {Has.REMINDERS, Has.MEMORY} else ()
    return Policy(
        rules={Audience.PERSONAL: {name: Rule(mode="auto") for name in free}},
        job_seconds=JOB_SECONDS,
    )
