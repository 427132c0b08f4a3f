"""
The words for states that people see, from one file: the command line reads `state_words.json` here,
and the gateway serves the same file to the page.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

import msgspec


class StateWords(msgspec.Struct, frozen=True, kw_only=True):
    """Each table maps a stored name to words. A name without words is shown as it is."""

    phases: dict[str, str]
    calls: dict[str, str]
    options: dict[str, str]
    answered: dict[str, str]
    closed: dict[str, str]
    turns: dict[str, str]
    owes: dict[str, str]
    failures: dict[str, str]
    jobs: dict[str, str]
    askers: dict[str, str]
    results: dict[str, str]


def state_words_json() -> bytes:
    return files("holdfast").joinpath("state_words.json").read_bytes()


@cache
def state_words() -> StateWords:
    """
    >>> state_words().phases["calling_model"]
    'thinking'
    """
    return msgspec.json.decode(state_words_json(), type=StateWords)


def phase_words(phase: str) -> str:
    """
    >>> phase_words("parked")
    'waits for a person'
    """
    return state_words().phases.get(phase, phase)


def job_words(outcome: str, seconds: float | None = None) -> str:
    """
    >>> job_words("in_doubt", 12.3)
    'is over after 12 s, and its outcome is in doubt'
    """
    after = "" if seconds is None else f" after {seconds:.0f} s"
    return state_words().jobs.get(outcome, f"{outcome}{{after}}").replace("{after}", after)


def answer_words(person: str | None, option: str | None) -> str:
    """
    >>> answer_words("alice", "approve_once")
    'alice approved it once'
    """
    return f"{person} {state_words().answered.get(option or '', f'chose {option}')}"


def asker_words(kind: str, *, requester: str, agent: str, editor: str | None = None) -> str:
    """
    Say who asked for a call and who wrote it.

    >>> asker_words("approval", requester="alice", agent="ops")
    'alice asked; the agent ops wrote this call'
    """
    template = state_words().askers["edited" if editor else kind]
    names = {"{requester}": requester, "{agent}": agent, "{editor}": editor or ""}
    return re.sub(r"{\w+}", lambda found: names[found[0]], template)


def owed_words(owes: Iterable[str]) -> str:
    """
    >>> owed_words(["AwaitTool"])
    'the result of a call that has started'
    """
    return ", ".join(state_words().owes.get(each, each) for each in owes)
