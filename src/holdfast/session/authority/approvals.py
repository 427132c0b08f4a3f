"""
The prompt that an approver sees, and the digest that binds the answer.

The digest covers everything that would make it another request: tool and definition, exact
arguments, the binding that the adapter found, the context, the deciding rule, and the displayed
text. Only options that are offered here, and journalled, may be answered.
"""

import msgspec
from blake3 import blake3

from holdfast import limits
from holdfast.ids import CallId, TurnId, approval_id
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.grants import SCOPES_OF, granted_arguments
from holdfast.session.authority.plan import Binding, ToolDefinition, is_contained
from holdfast.session.authority.policy import Ask
from holdfast.session.events import ApprovalRequested, OptionOffered
from holdfast.session.view.rendering import render

APPROVE_ONCE = "approve_once"
APPROVE_SESSION = "approve_session"
APPROVE_FOLDER = "approve_folder"
APPROVE_EVERYWHERE = "approve_everywhere"
EDIT = "edit"
DENY = "deny"
ANSWER = "answer"
SCOPES = {APPROVE_SESSION: "session", APPROVE_FOLDER: "folder", APPROVE_EVERYWHERE: "everywhere"}
"""Options that leave a grant behind, with the grant's scope."""
HERE = "here"
ON_THIS_PATH = "on this path"
"""
The prompt shows the folder and the path. A list of grants writes them out in the place of these two
texts.
"""
RESERVED = frozenset({APPROVE_ONCE, *SCOPES, EDIT, DENY, ANSWER})
"""Names with a fixed meaning: a choice of a model's question may not be one of them."""


def plan_digest(
    *,
    context: TurnContext,
    call: CallId,
    definition: ToolDefinition,
    arguments: str,
    binding: Binding,
    rule: str,
    display: str,
) -> str:
    """Return the fingerprint of the call that would run and of the text that was shown."""
    parts = (
        "plan/1",
        context.session,
        context.instance,
        context.turn,
        call,
        definition.digest(),
        arguments,
        binding.digest(),
        blake3(msgspec.json.encode(context)).hexdigest(),
        rule,
        display,
    )
    return blake3(msgspec.json.encode(parts)).hexdigest()


def shown(binding: Binding, ask: Ask, path: tuple[str, ...] = ()) -> str:
    """
    Return the prompt's text: for a delegate, the path of agents that asks; then warnings; then the
    complete plan.
    """
    asks = [f"{' > '.join(render(name).text for name in path)} asks"] if path else []
    head = [f"! {warning}" for warning in binding.warnings]
    if binding.level == "unconfined":
        head.insert(0, "! runs UNCONFINED: it could read keys and answer prompts on this machine")
    if ask.in_doubt_twin:
        head.append(
            "! an earlier attempt of this very call is in doubt: it may have happened already"
        )
    return "\n".join([*asks, *head, binding.display])


def folder_of(definition: ToolDefinition, binding: Binding) -> str | None:
    """
    Return the folder that approve_folder would allow: the folder a command runs in, or the folder
    of a file to read. A tool that writes gets none.
    """
    if definition.kind == "shell":
        return binding.cwd
    if definition.kind == "read_file" and binding.path is not None:
        return binding.path.rsplit("/", 1)[0] or "/"
    return None


def options_for(
    definition: ToolDefinition,
    binding: Binding,
    ask: Ask,
    choices: tuple[str, ...] = (),
    *,
    requester: str = "the requester",
    path: tuple[str, ...] = (),
) -> tuple[OptionOffered, ...]:
    """
    Return the options in their fixed order. An option is left out if the call is not safe to
    remember, or if the rule does not allow remembering that far.

    A delegate's call is never remembered.
    """
    if definition.kind == "question":
        chosen = [OptionOffered(choice, f"answers: {choice}") for choice in choices]
        return (
            *chosen,
            OptionOffered(ANSWER, "answers in your own words; it grants nothing"),
            OptionOffered(DENY, "declines to answer"),
        )
    once = OptionOffered(APPROVE_ONCE, "this call, once")
    deny = OptionOffered(DENY, "nothing runs; remembers nothing")
    if binding.level == "unconfined":
        return (once, deny)
    edit = OptionOffered(EDIT, "other arguments instead: shown again before anything runs")
    if (
        not is_contained(binding)
        or not binding.readable
        or not binding.memorable
        or ask.in_doubt_twin
        or path
    ):
        return (once, edit, deny)
    allowed = SCOPES_OF[ask.remember]
    kept = [
        OptionOffered(option, words)
        for option, words in _kept(definition, binding, requester)
        if SCOPES[option] in allowed
    ]
    return (once, *kept, edit, deny)


def _kept(definition: ToolDefinition, binding: Binding, requester: str) -> list[tuple[str, str]]:
    """
    Return the options that leave a grant behind, each with a text of exactly the calls that its
    grant covers (`grants.covers`).
    """
    own, folder = f"in any session of {render(requester).text}", folder_of(definition, binding)
    if definition.kind == "shell":
        said, anywhere = (
            f"this exact command {HERE}",
            f"this exact command anywhere, for {render(requester).text}",
        )
        below = f"this exact command run in {render(folder or '').text} or below"
    else:
        free = (
            f", whatever {' and '.join(definition.free_fields)} is"
            if definition.free_fields and definition.kind != "write_file"
            else ""
        )
        on = "" if binding.path is None else f", {ON_THIS_PATH}"
        said = f"{definition.name} with these exact arguments{free}{on}"
        anywhere = f"{said}, {own}"
        below = f"{definition.name} with any arguments, on any path in {render(folder or '').text} or below"
    options = [(APPROVE_SESSION, f"{said}, in this session")]
    if folder is not None:
        options.append((APPROVE_FOLDER, f"{below}, {own}"))
    return [*options, (APPROVE_EVERYWHERE, anywhere)]


def request(
    *,
    context: TurnContext,
    turn: TurnId,
    call: CallId,
    definition: ToolDefinition,
    arguments: str,
    binding: Binding,
    ask: Ask,
    prompt: int,
    now: int,
    choices: tuple[str, ...] = (),
    path: tuple[str, ...] = (),
) -> ApprovalRequested | None:
    """Return the prompt as it is journalled, or None if it is too long for a person to judge."""
    display = shown(binding, ask, path)
    if len(display) > limits.DISPLAY_CHARS_MAX:
        return None
    question = definition.kind == "question"
    options = options_for(
        definition, binding, ask, choices, requester=context.requester or "", path=path
    )
    names = {each.option for each in options}
    return ApprovalRequested(
        approval=approval_id(context.instance, call, prompt),
        turn=turn,
        call=call,
        tool=definition.name,
        definition=definition.digest(),
        arguments=arguments,
        binding=binding.digest(),
        display=display,
        digest=plan_digest(
            context=context,
            call=call,
            definition=definition,
            arguments=arguments,
            binding=binding,
            rule=ask.rule,
            display=display,
        ),
        options=options,
        may_answer=ask.may_answer,
        expires_at=now + ask.expires_after_seconds * 1000,
        kind="question" if question else "approval",
        cwd=binding.cwd,
        folder=folder_of(definition, binding),
        granted={
            scope: granted_arguments(arguments, definition, scope)
            for option, scope in SCOPES.items()
            if option in names
        },
        dangerous=not question
        and (not is_contained(binding) or not binding.readable or ask.in_doubt_twin),
        reason=ask.reason,
        in_doubt_twin=ask.in_doubt_twin,
        path=binding.path if definition.kind in ("read_file", "write_file") else None,
    )
