"""
A message in a conversation whose agent asked a question: it is the answer. An answer is text for
the agent, and allows nothing.
"""

from decimal import Decimal, InvalidOperation

from holdfast.ports.chat.messages import Arrived
from holdfast.session.authority.approvals import ANSWER, DENY
from holdfast.session.state import Approval, SessionState


def open_question(state: SessionState, person: str) -> Approval | None:
    """Return the question that waits for this person here, if there is just one."""
    found = [
        each
        for turn in state.turns.values()
        for each in turn.open_approvals
        if each.asked.kind == "question" and person in each.asked.may_answer
    ]
    return found[0] if len(found) == 1 else None


def is_reply(state: SessionState, question: Approval, channel: str, arrived: Arrived) -> bool:
    """
    Return whether the message came after the one that shows the question here. Vendors number the
    messages of a place upwards. Words that the sender quotes or forwards are not their answer.
    """
    return not arrived.quotes and any(
        each.approval == question.asked.approval
        and (each.channel, each.to) == (channel, arrived.thread)
        and _number(arrived.message) > _number(each.message.rpartition(":")[2])
        for each in state.shown.values()
    )


def was_reply(state: SessionState, key: str) -> bool:
    """Return whether a message has answered a prompt before: this is its redelivery."""
    if any(each.answer_id == key for _, each in state.settled.items()):
        return True
    return any(
        call.approval is not None
        and call.approval.answer is not None
        and call.approval.answer.answer_id == key
        for turn in state.turns.values()
        for call in (*turn.calls, *turn.past)
    )


def option_and_words(question: Approval, text: str) -> tuple[str, str | None]:
    """Return the choice that the text names, or the text as the answer in the person's words."""
    offered = [each.option for each in question.asked.options]
    choice = text.strip()
    if choice in offered and choice not in (ANSWER, DENY):
        return choice, None
    return ANSWER, text


def _number(message: str) -> Decimal:
    try:
        return Decimal(message)
    except InvalidOperation:
        return Decimal(-1)
