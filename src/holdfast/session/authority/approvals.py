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
from holdfast.session.authority.plan import Binding, Risk, ToolDefinition, is_contained
from holdfast.session.authority.policy import Ask
from holdfast.session.events import ApprovalRequested, OptionOffered
from holdfast.session.view.safe_text import render

APPROVE_ONCE = "approve_once"
APPROVE_SESSION = "approve_session"
APPROVE_FOLDER = "approve_folder"
APPROVE_EVERYWHERE = "approve_everywhere"
EDIT = "edit"
DENY = "deny"
ANSWER = "answer"
SCOPES = {APPROVE_SESSION: "session", APPROVE_FOLDER: "folder", APPROVE_EVERYWHERE: "everywhere"}
"""Options that leave a grant behind, with the grant's scope."""
KEYS = {
    APPROVE_ONCE: "1",
    APPROVE_SESSION: "2",
    APPROVE_FOLDER: "3",
    APPROVE_EVERYWHERE: "4",
    EDIT: "5",
    DENY: "d",
}
"""One key for each option, everywhere. A prompt that leaves an option out leaves its key out."""
RUNS_NOW_AND = "Runs now and "
IN_THIS_CONVERSATION = "in this conversation"
ON_THIS_PATH = "on this path"
"""
The prompt shows the conversation and the path. A list of grants writes them out in the place of
these two texts.
"""
FOR_SO_LONG = ", for "
"""Before how long a grant lasts. A list of grants shows the date of its end instead."""
UNCONFINED = "runs UNCONFINED: it could read keys and answer prompts on this machine"
IN_DOUBT_TWIN = "an earlier attempt of this very call is in doubt: it may have happened already"
EXACTLY = "Runs exactly this call, once."
OPEN_FILES = "Runs exactly this command, once. Files that it runs can still change."
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
        head.insert(0, f"! {UNCONFINED}")
    if ask.in_doubt_twin:
        head.append(f"! {IN_DOUBT_TWIN}")
    return "\n".join([*asks, *head, binding.display])


def risks_of(display: str, binding: Binding, ask: Ask) -> tuple[Risk, ...]:
    """
    Return why the call deserves a second look, with offsets in the whole display. A call that may
    have run already says that, and only that: it decides whether to look at anything else.
    """
    if ask.in_doubt_twin:
        text = "This may have run already. Check first."
        return (
            _marked(display, IN_DOUBT_TWIN, Risk(kind="in_doubt_twin", text=text, start=0, end=0)),
        )
    offset = len(display) - len(binding.display)
    found = [
        msgspec.structs.replace(each, start=each.start + offset, end=each.end + offset)
        for each in binding.risks
    ]
    if binding.level == "unconfined":
        text = "This command is not confined. It can read Holdfast's keys and answer prompts."
        found.insert(
            0, _marked(display, UNCONFINED, Risk(kind="unconfined", text=text, start=0, end=0))
        )
    return tuple(found)


def _marked(display: str, part: str, risk: Risk) -> Risk:
    start = display.index(part)
    return msgspec.structs.replace(risk, start=start, end=start + len(part))


def display_chars_max(definition: ToolDefinition) -> int:
    """Return how long a prompt may be: the text of a file may be longer than a command."""
    is_file = definition.kind == "write_file"
    return limits.FILE_DISPLAY_CHARS_MAX if is_file else limits.DISPLAY_CHARS_MAX


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

    A delegate's call is never remembered. Where two people must decide, nothing can be edited. The
    same holds for a call that another program runs as it made it, in a folder that Holdfast does
    not see.
    """
    if definition.kind == "question":
        chosen = [OptionOffered(choice, f"Answer: {choice}") for choice in choices]
        return (
            *chosen,
            OptionOffered(ANSWER, "Answer in your own words. An answer allows nothing."),
            OptionOffered(DENY, "Decline to answer."),
        )
    once = OptionOffered(APPROVE_ONCE, OPEN_FILES if binding.runs_open_files else EXACTLY)
    deny = OptionOffered(DENY, "Nothing runs.")
    if binding.level == "unconfined" or definition.kind == "handed_over":
        return (once, deny)
    said = "Change the values. You see the new call before it runs."
    edit = (OptionOffered(EDIT, said),) if ask.may_edit else ()
    if (
        not is_contained(binding)
        or not binding.readable
        or not binding.memorable
        or ask.in_doubt_twin
        or path
    ):
        return (once, *edit, deny)
    allowed = SCOPES_OF[ask.remember]
    kept = [
        OptionOffered(option, words)
        for option, words in _kept(definition, binding, requester, ask.remember_for_seconds)
        if SCOPES[option] in allowed
    ]
    return (once, *kept, *edit, deny)


def _kept(
    definition: ToolDefinition, binding: Binding, requester: str, seconds: int
) -> list[tuple[str, str]]:
    """
    Return the options that leave a grant behind, each with a text of exactly the calls that its
    grant covers (`grants.covers`), and for how long.
    """
    who, folder = render(requester).text, folder_of(definition, binding)
    own = f"in all conversations of {who}"
    if definition.kind == "shell":
        exactly = f"whenever {who} asks for exactly this command"
        here = f"{exactly} in {render(binding.cwd or '').text}"
        anywhere = f"{exactly}, in any folder, {own}"
        below = f"{exactly} in {render(folder or '').text} or below"
    else:
        free = (
            f", whatever {' and '.join(definition.free_fields)} is"
            if definition.free_fields and definition.kind != "write_file"
            else ""
        )
        on = "" if binding.path is None else f", {ON_THIS_PATH}"
        here = f"whenever {who} asks for exactly this{free}{on}"
        anywhere = f"{here}, {own}"
        path = render(folder or "").text
        below = f"whenever {who} asks for {definition.name} on any path in {path} or below"
    options = [(APPROVE_SESSION, f"{here}, {IN_THIS_CONVERSATION}")]
    if folder is not None:
        options.append((APPROVE_FOLDER, f"{below}, {own}"))
    return [
        (option, f"{RUNS_NOW_AND}{words}{FOR_SO_LONG}{duration_words(seconds)}.")
        for option, words in (*options, (APPROVE_EVERYWHERE, anywhere))
    ]


def duration_words(seconds: int) -> str:
    """
    >>> [duration_words(each) for each in (30 * 86400, 86400, 5400, 61)]
    ['30 days', '1 day', '90 minutes', '61 seconds']
    """
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    name, size = next(each for each in units if seconds % each[1] == 0)
    count = seconds // size
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


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
    if len(display) > display_chars_max(definition):
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
        risks=() if question else risks_of(display, binding, ask),
        reason=ask.reason,
        in_doubt_twin=ask.in_doubt_twin,
        doubts=ask.doubts,
        path=binding.path if definition.kind in ("read_file", "write_file") else None,
    )
