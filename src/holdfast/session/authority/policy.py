"""
Decide whether a call may run, must ask, or is denied, in one fixed order, from the turn's
journalled context and the current policy.

The order: audience profile, hard deny, mode deny, equal call in doubt, grants, mode auto, ask. The
same function decides when a call is made and again right before it starts. So later tightening
applies. Later widening does not, because the second time only allowed or approved calls are judged.
The current rule judges a grant as well: see `authority/grants.py`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from holdfast import limits
from holdfast.ids import CallId
from holdfast.session.authority.context import NARROWNESS, Audience, TurnContext
from holdfast.session.authority.grants import SCOPES_OF, Remember, Terms, covers, flaw_of
from holdfast.session.authority.plan import Binding, ToolDefinition, is_contained
from holdfast.session.home.events import GrantProposed

Mode = Literal["auto", "ask", "deny"]
Way = Literal["script", "terminal", "page", "channels"]
"""
How an answer arrived: from a program or without a terminal, from a person's terminal, from the
gateway's page, or from a channel.
"""
WAYS: tuple[Way, ...] = ("script", "terminal", "page", "channels")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """
    The settings for one tool in one audience. `approvers` None: no approvers are named, so the
    requester answers. Empty: nobody may answer.
    """

    mode: Mode
    approvers: tuple[str, ...] | None = None
    requester_may_answer: bool | None = None
    expires_after_seconds: int | None = None
    remember: Remember | None = None
    """None: `never` if the rule chooses who answers, else `any`."""
    line: int | None = None
    """The rule's line in holdfast.toml, for people who ask why."""

    @property
    def remembers(self) -> Remember:
        """
        How far an answer under this rule may be remembered.

        >>> Rule(mode="ask").remembers, Rule(mode="ask", approvers=("bob",)).remembers
        ('any', 'never')
        """
        if self.remember is not None:
            return self.remember
        chosen = self.approvers is not None or self.requester_may_answer is False
        return "never" if chosen else "any"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decide. `rules` is by audience, then by tool name or `*`."""

    rules: Mapping[Audience, Mapping[str, Rule]] = {}
    on_message: Literal["supersede", "wait"] = "supersede"
    expires_after_seconds: int = limits.APPROVAL_EXPIRES_AFTER_SECONDS
    prompts_per_turn_max: int = limits.PROMPTS_PER_TURN_MAX
    turn_model_calls_max: int = limits.MODEL_CALLS_PER_TURN_MAX
    turn_tool_calls_max: int = limits.TOOL_CALLS_PER_TURN_MAX
    turn_tokens_max: int | None = None
    turn_cost_microusd_max: int | None = None
    model_retry_for_seconds: float = limits.MODEL_RETRY_FOR_SECONDS
    session_jobs_max: int = limits.JOBS_PER_SESSION_MAX
    home_jobs_max: int = limits.JOBS_PER_HOME_MAX
    job_seconds: float = limits.JOB_SECONDS
    consent: tuple[Way, ...] = WAYS
    remember_for_seconds: int = limits.GRANT_EXPIRES_AFTER_SECONDS
    people: Mapping[str, Mapping[str, str]] = {}
    """
    The people that settings list, by name: identity by channel. A grant counts only for the people
    it was made by and for.
    """

    def rule(self, audience: Audience, tool: str) -> Rule | None:
        """The rule for the tool itself, else for its whole server, else for every tool."""
        rules = self.rules.get(audience)
        if rules is None:
            return None
        server, dot, _ = tool.partition(".")
        return rules.get(tool) or (rules.get(f"{server}.*") if dot else None) or rules.get("*")


class BoundCall(msgspec.Struct, frozen=True, kw_only=True):
    """The result of binding one call: the plan that would run, or the reason why it cannot."""

    call: CallId
    definition: ToolDefinition | None = None
    arguments: str | None = None
    binding: Binding | None = None
    background: bool = False  # it would go on as a job
    problem: tuple[str, str] | None = None
    """
    (code, text for the model): unknown tool, invalid arguments, cannot bind, hard deny. For the
    latter two, the tool and the arguments are known.
    """


class Allow(msgspec.Struct, frozen=True):
    by: str  # "policy" or a grant's id


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    may_answer: tuple[str, ...]
    reason: str
    rule: str  # the deciding rule, which is part of the plan
    expires_after_seconds: int
    in_doubt_twin: bool = False
    doubts: tuple[CallId, ...] = ()  # the equal calls that are in doubt
    remember: Remember = "never"
    remember_for_seconds: int = limits.GRANT_EXPIRES_AFTER_SECONDS
    may_edit: bool = True
    """
    False where the requester may not answer: a person who edits a call would decide about it
    alone.
    """


class Deny(msgspec.Struct, frozen=True):
    code: str
    text: str


Verdict = Allow | Ask | Deny


def judge(
    *,
    context: TurnContext,
    definition: ToolDefinition,
    arguments: str,
    binding: Binding,
    policy: Policy,
    grants: Iterable[GrantProposed],
    in_doubt_twin: bool,
    now: int,
) -> Verdict:
    """
    Decide one call. Hard denials of the adapter (the Holdfast home, secrets) never get here:
    binding reports them as problems.
    """
    settled = policy.rule(context.audience, definition.name)
    rule = rule_for(context, definition, binding, policy)
    if (
        rule.mode == "deny"
        and settled is None
        and context.requester is None
        and definition.default_mode == "ask"
    ):
        return Deny(
            "approval_unattended",
            f"{definition.name} needs an approval, and nobody is known to have asked for it",
        )
    if rule.mode == "deny":
        return Deny(
            "denied_by_policy",
            f"{definition.name} is not allowed for the audience {context.audience.value}",
        )
    question = definition.kind == "question"  # it always asks, and it is never remembered
    if not in_doubt_twin and not question and context.requester is not None:
        terms = terms_of(rule, context.requester, policy, now=now)
        for grant in grants:
            if flaw_of(grant, terms) is None and covers(
                grant, context=context, definition=definition, arguments=arguments, binding=binding
            ):
                return Allow(grant.grant)
    outside = binding.reach == "outside"
    if (
        rule.mode == "auto"
        and is_contained(binding)
        and not (question or outside or binding.network or in_doubt_twin)
    ):
        return Allow("policy")
    answerers = may_answer(context, rule)
    if not answerers:
        return Deny(
            "approval_unattended",
            f"{definition.name} needs an approval, and nobody may give it here",
        )
    return Ask(
        may_answer=answerers,
        reason=_reason(context, definition, binding, settled, in_doubt_twin=in_doubt_twin),
        rule=f"{context.audience.value}:{rule.mode}",
        expires_after_seconds=rule.expires_after_seconds or policy.expires_after_seconds,
        in_doubt_twin=in_doubt_twin,
        remember=rule.remembers,
        remember_for_seconds=policy.remember_for_seconds,
        may_edit=context.requester in entitled(context.requester or "", rule),
    )


def rule_for(
    context: TurnContext, definition: ToolDefinition, binding: Binding, policy: Policy
) -> Rule:
    """The rule that decides this call: from settings, else the audience's profile."""
    return policy.rule(context.audience, definition.name) or _profile_rule(
        context.audience, definition, binding
    )


def terms_of(rule: Rule, requester: str, policy: Policy, *, now: int) -> Terms:
    """Return the conditions of the current rule for a grant of this requester."""
    return Terms(
        givers=() if rule.mode == "deny" else entitled(requester, rule),
        scopes=SCOPES_OF[rule.remembers],
        seconds=policy.remember_for_seconds,
        people=policy.people,
        now=now,
        ways=policy.consent,
    )


_DEPENDS_ON_FILES = frozenset({"cannot_bind", "unconfined", "no_network"})
"""Problems of binding a call that may tell which files and folders exist."""


def denied_unseen(context: TurnContext, bound: BoundCall, policy: Policy) -> Deny | None:
    """
    Check whether a call that cannot be bound would be denied in any case.

    This denial comes first: a requester who may not use a tool must not learn from it which files
    exist.
    """
    if bound.definition is None or bound.problem is None:
        return None
    if bound.problem[0] not in _DEPENDS_ON_FILES:
        return None
    unseen = Binding(display="")
    verdict = judge(
        context=context,
        definition=bound.definition,
        arguments=bound.arguments or "",
        binding=unseen,
        policy=policy,
        grants=(),
        in_doubt_twin=False,
        now=0,  # grants are not consulted
    )
    return verdict if isinstance(verdict, Deny) else None


def _profile_rule(audience: Audience, definition: ToolDefinition, binding: Binding) -> Rule:
    """
    The rule where settings have none: PERSONAL may read and asks for the rest, TEAM may read,
    PUBLIC may call tools that are made for it.
    """
    if NARROWNESS[definition.audience] > NARROWNESS[audience]:
        return Rule(mode="deny")
    if audience is not Audience.PERSONAL and binding.reach == "outside":
        return Rule(mode="deny")
    return Rule(mode=definition.default_mode)


def offered(context: TurnContext, definition: ToolDefinition, policy: Policy) -> bool:
    """
    Check whether to show the tool to the model at all. A tool that would be denied with any
    arguments is left out.
    """
    rule = policy.rule(context.audience, definition.name)
    if rule is not None:
        return rule.mode != "deny"
    return (
        context.requester is None or NARROWNESS[definition.audience] <= NARROWNESS[context.audience]
    )


def counts(way: str | None, consent: Collection[str]) -> bool:
    """
    Check whether an answer that arrived this way is consent. An answer of unknown origin counts as
    made by a program.

    >>> counts("terminal", ["terminal", "page"]), counts(None, ["terminal", "page"])
    (True, False)
    """
    return (way or "script") in consent


def may_answer(context: TurnContext, rule: Rule) -> tuple[str, ...]:
    """
    Return the people who could answer a prompt of this turn. Empty means that no prompt is made
    (A6).
    """
    if context.requester is None:
        return ()
    if context.interactive:
        return entitled(context.requester, rule)
    requester_may = context.requester in entitled(context.requester, rule)
    return tuple(
        name for name in rule.approvers or () if name != context.requester or requester_may
    )


def entitled(requester: str, rule: Rule) -> tuple[str, ...]:
    """
    Return the people whose answer the rule takes for this requester's calls, even if a prompt could
    not reach them in this turn.

    A grant depends on this, not on `may_answer`: the requester's own grant lets a reminder go on in
    a turn that cannot prompt.
    """
    named = rule.approvers or ()
    requester_may = (
        rule.requester_may_answer if rule.requester_may_answer is not None else rule.approvers != ()
    )
    others = tuple(name for name in named if name != requester)
    return (requester, *others) if requester_may else others


def _reason(
    context: TurnContext,
    definition: ToolDefinition,
    binding: Binding,
    settled: Rule | None,
    *,
    in_doubt_twin: bool,
) -> str:
    """Say why a person is asked: the fact that decided, or the rule with its line."""
    if in_doubt_twin:
        return "An earlier, equal call may have run already."
    if definition.kind == "question":
        return "The agent asks a question."
    if binding.reach == "outside":
        return "It reaches outside the workspace."
    if binding.network:
        return "It asks for the network."
    name = definition.name
    if settled is None:
        return f"By default, {name} asks before it runs."
    if settled.mode != "ask":
        return "It is a command that is not isolated. Such a command always asks."
    return f"Your settings ask before {name} ({place_of(context.audience, settled)})."


def place_of(audience: Audience, rule: Rule) -> str:
    """
    >>> place_of(Audience.TEAM, Rule(mode="ask", line=9))
    '[policy.team], line 9'
    """
    line = "" if rule.line is None else f", line {rule.line}"
    return f"[policy.{audience.value}]{line}"
