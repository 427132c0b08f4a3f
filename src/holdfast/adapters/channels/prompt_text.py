"""
The text and the buttons of a prompt's message: whole, or its head with a link.

A button that approves is offered only if the whole journalled display is in the message, counted as
the platform counts, with the frame around it. Otherwise the message has the beginning, says how
much is missing, and offers to deny. A call with a known risk is approved where a person types its
tool's name, so it has no such button either.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from holdfast.ports.chat.messages import ChatPrompt, Shown
from holdfast.state_words import asker_words

APPROVE_ONCE, DENY = "approve_once", "deny"
_LABELS = {APPROVE_ONCE: "Approve once", DENY: "Deny"}
_DIGEST_CHARS = 16


class Button(msgspec.Struct, frozen=True):
    label: str
    payload: str  # approval, option's place, digest's beginning: 48 bytes, within every limit
    is_approval: bool


class PromptText(msgspec.Struct, frozen=True):
    """`display` is shown preformatted, so that nothing in it acts, between the other two."""

    before: str
    display: str
    after: str
    shown: Shown
    buttons: tuple[Button, ...]


def prompt_text(
    prompt: ChatPrompt, *, room: int, size: Callable[[str], int], page: str | None
) -> PromptText:
    """`size` counts a text as the platform does, after escaping; `room` is what fits."""
    asks = "Question" if prompt.kind == "question" else "Approval needed"
    before = f"{asks}: {prompt.tool}\n{_who(prompt)}\n"
    where = page or f"`holdfast approvals show {prompt.approval}`"
    after = _after(prompt)
    options = (APPROVE_ONCE, DENY) if prompt.kind == "approval" and not prompt.risks else (DENY,)
    if prompt.risks:
        after = f"\n{' '.join(prompt.risks)}{after}\nApprove it where its name is typed: {where}"
    elif prompt.kind == "question":
        after += f"\n{_answer_way(prompt, where)}"
    elif not set(options) & set(prompt.options):
        after += f"\nAnswer it here: {where}"
    if size(before) + size(prompt.display) + size(after) <= room:
        return PromptText(before, prompt.display, after, "whole", _buttons(prompt, options))
    total = len(prompt.display)
    missing = (
        f"\nOnly the first {total} of {total} characters are shown. That is not enough to judge."
        f"\nSee everything and answer here: {where}"
    )
    left = room - size(before) - size(after) - size(missing)
    head = _beginning(prompt.display, left, size)
    missing = missing.replace(f"first {total}", f"first {len(head)}", 1)
    return PromptText(before, head, missing + after, "head", _buttons(prompt, (DENY,)))


def _who(prompt: ChatPrompt) -> str:
    return asker_words(
        prompt.kind, requester=prompt.requester, agent=prompt.agent, editor=prompt.editor
    )


def _answer_way(prompt: ChatPrompt, where: str) -> str:
    if prompt.is_at_home:
        return f"Write me your answer in this conversation, or answer it here: {where}"
    return f"Answer it in that conversation, or here: {where}"


def _after(prompt: ChatPrompt) -> str:
    until = datetime.fromtimestamp(prompt.expires_at / 1000, UTC)
    who = " or ".join(prompt.may_answer) or "nobody"
    return f"\nWaits for {who} until {until:%Y-%m-%d %H:%M} UTC. Conversation: {prompt.session}"


def _buttons(prompt: ChatPrompt, options: tuple[str, ...]) -> tuple[Button, ...]:
    return tuple(
        Button(
            _LABELS[option],
            f"{prompt.approval}:{prompt.options.index(option)}:{prompt.digest[:_DIGEST_CHARS]}",
            option == APPROVE_ONCE,
        )
        for option in options
        if option in prompt.options
    )


def _beginning(text: str, room: int, size: Callable[[str], int]) -> str:
    low, high = 0, min(len(text), max(room, 0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= room else (low, middle - 1)
    return text[:low]
