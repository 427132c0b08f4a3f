"""
Whether a call may run, must ask, or is denied: in one fixed order, from the turn's journalled context and the policy of now.

The order: audience profile, hard deny, mode deny, in-doubt twin, grants, mode auto, ask. The same function decides when a call is made and again
right before it starts, so that later tightening applies, and later widening does not (the second time only what was allowed or approved is looked at).
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from holdfast import limits
from holdfast.ids import CallId
from holdfast.session.authority import Audience, TurnContext
from holdfast.session.home_events import GrantProposed
from holdfast.session.plan import Binding, ToolDefinition

Mode = Literal["auto", "ask", "deny"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What settings say of one tool in one audience. `approvers`: None names nobody (the requester answers); empty names nobody who could."""

    mode: Mode
    approvers: tuple[str, ...] | None = None
    requester_may_answer: bool | None = None
    expires_after_seconds: int | None = None


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
    session_jobs_max: int = limits.JOBS_PER_SESSION_MAX
    home_jobs_max: int = limits.JOBS_PER_HOME_MAX
    job_seconds: float = limits.JOB_SECONDS

    def rule(self, audience: Audience, tool: str) -> Rule | None:
        rules = self.rules.get(audience)
        return None if rules is None else rules.get(tool) or rules.get("*")


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter's look at one call found: what would run, or why it can't."""

    call: CallId
    definition: ToolDefinition | None = None
    arguments: str | None = None
    binding: Binding | None = None
    background: bool = False  # it would go on as a job
    problem: tuple[str, str] | None = None
    """(code, text for the model): unknown tool, invalid arguments, cannot bind, hard deny. Beside the latter two the tool is known, and the arguments."""


class Allow(msgspec.Struct, frozen=True):
    by: str  # "policy" or a grant's id


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    may_answer: tuple[str, ...]
    reason: str
    rule: str  # what decided: part of the plan
    expires_after_seconds: int
    in_doubt_twin: bool = False


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
) -> Verdict:
    """Decide one call. Hard denials of the adapter (the Holdfast home, secrets) never get here: they are problems of the look."""
    settled = policy.rule(context.audience, definition.name)
    rule = settled or _profile_rule(context.audience, definition, binding)
    if rule.mode == "deny" and settled is None and context.requester is None and definition.default_mode == "ask":
        return Deny("approval_unattended", f"{definition.name} needs an approval, and nobody is known to have asked for it")
    if rule.mode == "deny":
        return Deny("denied_by_policy", f"{definition.name} is not allowed for the audience {context.audience.value}")
    question = definition.kind == "question"  # it always asks, and nothing of it is remembered
    if not in_doubt_twin and not question:
        for grant in grants:
            if covers(grant, context=context, definition=definition, arguments=arguments, binding=binding):
                return Allow(grant.grant)
    outside = binding.reach == "outside"
    if rule.mode == "auto" and is_contained(binding) and not (question or outside or binding.network or in_doubt_twin):
        return Allow("policy")
    answerers = may_answer(context, rule)
    if not answerers:
        return Deny("approval_unattended", f"{definition.name} needs an approval, and nobody may give it here")
    return Ask(
        may_answer=answerers,
        reason=_reason(definition, binding, in_doubt_twin=in_doubt_twin),
        rule=f"{context.audience.value}:{rule.mode}",
        expires_after_seconds=rule.expires_after_seconds or policy.expires_after_seconds,
        in_doubt_twin=in_doubt_twin,
    )


def is_contained(binding: Binding) -> bool:
    """Whether it may run without a person's look at each call: not a command, or one that reaches nothing of the user."""
    return binding.level in (None, "isolated")


def denied_unseen(context: TurnContext, looked: Looked, policy: Policy) -> Deny | None:
    """
    Of a call that can't be bound: whether it would be denied whatever it is bound to.

    That is said first: whoever may not use a tool is not told by it what is there and what is not.
    """
    if looked.definition is None or looked.problem is None or looked.problem[0] != "cannot_bind":
        return None
    unseen = Binding(display="")
    verdict = judge(
        context=context, definition=looked.definition, arguments=looked.arguments or "", binding=unseen, policy=policy, grants=(), in_doubt_twin=False
    )
    return verdict if isinstance(verdict, Deny) else None


def _profile_rule(audience: Audience, definition: ToolDefinition, binding: Binding) -> Rule:
    """Where settings say nothing: PERSONAL may look and asks for the rest; TEAM may look; PUBLIC may call what is made for it."""
    if Audience(definition.audience).narrowness > audience.narrowness:
        return Rule(mode="deny")
    if audience is not Audience.PERSONAL and binding.reach == "outside":
        return Rule(mode="deny")
    return Rule(mode=definition.default_mode)


def offered(context: TurnContext, definition: ToolDefinition, policy: Policy) -> bool:
    """Whether to show the tool to the model at all: what would be denied whatever the arguments is left out."""
    rule = policy.rule(context.audience, definition.name)
    if rule is not None:
        return rule.mode != "deny"
    return context.requester is None or Audience(definition.audience).narrowness <= context.audience.narrowness


def may_answer(context: TurnContext, rule: Rule) -> tuple[str, ...]:
    """Who could answer a prompt of this turn; empty means that no prompt is made (A6)."""
    if context.requester is None:
        return ()
    named = rule.approvers or ()
    requester_may = rule.requester_may_answer if rule.requester_may_answer is not None else rule.approvers != ()
    if context.interactive and requester_may:
        return (context.requester, *(name for name in named if name != context.requester))
    return tuple(name for name in named if name != context.requester or requester_may)


def _reason(definition: ToolDefinition, binding: Binding, *, in_doubt_twin: bool) -> str:
    if in_doubt_twin:
        return "an earlier, equal call is in doubt: it may have run already"
    if binding.reach == "outside":
        return "it reaches outside the workspace"
    if binding.network:
        return "it asks for the network"
    if definition.kind == "question":
        return "the agent asks you something"
    return "policy asks before this tool runs"


def granted_arguments(arguments: str, definition: ToolDefinition, scope: str) -> str:
    """What of the arguments a grant binds: all of them, but for fields the tool names as free and what the scope frees."""
    freed = set(definition.free_fields)
    if scope == "folder" and definition.kind in ("read_file", "write_file"):
        return "{}"
    if scope in ("folder", "everywhere") and definition.kind == "shell":
        freed.add("cwd")
    if not freed:
        return arguments
    fields = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: value for name, value in fields.items() if name not in freed}).decode()


def covers(grant: GrantProposed, *, context: TurnContext, definition: ToolDefinition, arguments: str, binding: Binding) -> bool:
    """Whether a remembered approval speaks of this very call: same tool, same requester and boundary, no wider audience, equal arguments, in its scope."""
    return (
        grant.tool == definition.name
        and grant.definition == definition.digest()
        and context.requester is not None
        and grant.requester == context.requester
        and grant.boundary == context.boundary
        and context.audience.narrowness >= Audience(grant.audience).narrowness
        and binding.readable
        and is_contained(binding)
        and _in_scope(grant, context, binding)
        and grant.arguments == granted_arguments(arguments, definition, grant.scope)
    )


def _in_scope(grant: GrantProposed, context: TurnContext, binding: Binding) -> bool:
    match grant.scope:
        case "session":
            return (grant.session, grant.instance) == (context.session, context.instance) and grant.folder == binding.cwd
        case "folder":
            return grant.folder is not None and is_below(binding.path or binding.cwd, grant.folder)
        case "everywhere":
            return True
        case _:
            return False


def is_below(path: str | None, folder: str) -> bool:
    """Textual, on paths that the adapter has already resolved."""
    return path is not None and (path == folder or path.startswith(folder.rstrip("/") + "/"))
