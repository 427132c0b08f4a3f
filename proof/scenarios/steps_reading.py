"""
Parse the arguments of a scenario step: the speaker, the model's calls, a policy rule, a duration.
"""

from typing import cast

import msgspec

from holdfast.session.authority.context import Audience, MessageSource, Principal, Provenance
from holdfast.session.authority.policy import Mode, Rule
from holdfast.session.view.messages import ProposedCall, Quote

BOUNDS = {
    "prompts": "prompts_per_turn_max",
    "model_calls": "turn_model_calls_max",
    "tool_calls": "turn_tool_calls_max",
    "tokens": "turn_tokens_max",
    "jobs": "session_jobs_max",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def source_of(by: str, quote: str | None) -> MessageSource | None:
    speaker, _, said = (quote or "").partition(":")
    quotes = (Quote(speaker, said),) if quote else ()
    if by == "nobody":
        return None
    kind, colon, person = by.partition(":")
    if colon:
        return MessageSource.automation(person, channel=kind)
    person, at, team = by.partition("@")
    if person == "somebody":
        provenance = Provenance(
            authenticity="verified", taint="clean", scope="group", kind="message"
        )
        return MessageSource(
            channel="slack",
            person=None,
            principal=Principal.TRUSTED_INTERNAL,
            audience=Audience.TEAM,
            boundary="team:ops",
            provenance=provenance,
            can_prompt=True,
        )
    return (
        MessageSource.team(person, team, quotes=quotes)
        if at
        else MessageSource.local(person, quotes=quotes)
    )


def proposed_call(call: str) -> ProposedCall:
    tool, *pairs = call.split(" ")
    if pairs and pairs[0].startswith("{"):
        return ProposedCall(tool, " ".join(pairs))
    return ProposedCall(
        tool, msgspec.json.encode(dict(pair.split("=", 1) for pair in pairs)).decode()
    )


def rule_of(value: str) -> Rule:
    mode, *rest = value.split(":")
    if not rest:
        return Rule(mode=cast(Mode, mode))
    named = tuple(filter(None, rest[0].split(",")))
    return Rule(
        mode=cast(Mode, mode),
        approvers=named,
        requester_may_answer=False if "only" in rest[1:] else None,
    )


def span_ms(span: str) -> int:
    return int(span[:-1]) * _UNITS[span[-1]] * 1000
