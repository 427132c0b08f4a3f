"""
The messages that events owe to chats, decided in the commit of those events.

- A reply goes to the thread that the turn came from, in numbered parts.
- A prompt goes to that thread, and to the direct messages of each person who may answer it.
- A prompt that closes is updated in every message that shows it, also in one whose receipt came
  after the closing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from holdfast.ids import ApprovalId, TurnId
from holdfast.ports.chat.platform import ConfiguredChat
from holdfast.runtime.drive.reply_parts import reply_parts
from holdfast.session.commands import QueueDelivery
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    DeliveryConfirmed,
    SessionEvent,
    TurnEnded,
)
from holdfast.session.state import SessionState, ShownPrompt

OWING: frozenset[type[SessionEvent]] = frozenset(
    {ApprovalRequested, TurnEnded, ApprovalAnswered, ApprovalClosed, DeliveryConfirmed}
)
_ABOUT_CHARS = 500  # an updated message has to fit on every platform
ChannelOf = Callable[[TurnId], str]

_ANSWERED = {
    "approve_once": "Approved by {}, once.",
    "approve_session": "Approved by {}, for this conversation.",
    "approve_folder": "Approved by {}, for this folder.",
    "approve_everywhere": "Approved by {}, everywhere.",
    "edit": "Changed by {}. The changed call asks again.",
    "deny": "Denied by {}. It does not run.",
}
_CLOSED = {
    "expired": "Not run: nobody answered in time.",
    "superseded": "Not run: another message was sent instead.",
    "cancelled": "Not run: the request was cancelled.",
    "voided": "Not run: what would run has changed, or may no longer run.",
}


def owed_to_chats(
    chats: Mapping[str, ConfiguredChat],
    before: SessionState,
    events: Sequence[SessionEvent],
    channel_of: ChannelOf,
) -> Iterator[QueueDelivery]:
    for event in events:
        match event:
            case ApprovalRequested():
                yield from _prompt(chats, before, event, channel_of(event.turn))
            case TurnEnded() if before.parent is None:
                yield from _end(chats, before, event, channel_of(event.turn))
            case ApprovalAnswered() | ApprovalClosed():
                for message in before.shown.values():
                    if message.approval == event.approval:
                        yield _update(message, closing_words(event) + _about(before, event))
            case DeliveryConfirmed():
                yield from _late_update(before, events, event)
            case _:
                pass


def closing_words(event: ApprovalAnswered | ApprovalClosed) -> str:
    if isinstance(event, ApprovalClosed):
        return _CLOSED[event.closed_as]
    return _ANSWERED.get(event.option, "Answered by {}.").format(event.by)


def _about(before: SessionState, event: ApprovalAnswered | ApprovalClosed) -> str:
    """Return the beginning of the closed prompt, for those who read the updated message."""
    found = before.open_call(event.turn, event.call)
    if found is None or found.approval is None:
        return ""
    display = found.approval.asked.display
    more = "..." if len(display) > _ABOUT_CHARS else ""
    return f"\n{found.tool}\n{display[:_ABOUT_CHARS]}{more}"


def _prompt(
    chats: Mapping[str, ConfiguredChat],
    before: SessionState,
    event: ApprovalRequested,
    origin: str,
) -> Iterator[QueueDelivery]:
    for chat in chats.values():
        if chat.name != origin and not chat.prompts_of_all:
            continue
        here = _thread(chat, before.session) if chat.name == origin else None
        direct = [chat.direct(person) for person in event.may_answer]
        for to in dict.fromkeys(each for each in (here, *direct) if each is not None):
            yield QueueDelivery(
                turn=event.turn,
                channel=chat.name,
                part=f"{event.approval} {to}",
                kind="prompt",
                text=event.tool,
                to=to,
                about=event.approval,
            )


def _end(
    chats: Mapping[str, ConfiguredChat], before: SessionState, event: TurnEnded, origin: str
) -> Iterator[QueueDelivery]:
    chat = chats.get(origin)
    to = _thread(chat, before.session) if chat is not None else None
    if chat is None or to is None:
        return
    text, kind = event.reply, "reply"
    if event.outcome == "superseded":
        return  # the message that replaced it gets its own reply
    if event.outcome != "completed" or text is None:
        text = f"This request {event.outcome}: {event.message or event.code or 'no reason given'}"
        kind = "notice"
    for number, part in enumerate(reply_parts(text or "-", chat.part_size_max, chat.size), 1):
        yield QueueDelivery(
            turn=event.turn,
            channel=chat.name,
            part=f"{kind} {number}",
            kind=kind,
            text=part,
            to=to,
        )


def _late_update(
    before: SessionState, events: Sequence[SessionEvent], event: DeliveryConfirmed
) -> Iterator[QueueDelivery]:
    """The prompt may have closed while its message was on its way."""
    owed = before.deliveries.get(event.delivery)
    if owed is None or owed.about is None or event.shown is None or event.receipt is None:
        return
    if is_open(before, owed.about) and not any(
        isinstance(each, ApprovalAnswered | ApprovalClosed) and each.approval == owed.about
        for each in events
    ):
        return
    yield _update(
        ShownPrompt(owed.about, owed.turn, owed.channel, owed.to, event.receipt, is_whole=False),
        "This prompt is closed.",
    )


def _update(message: ShownPrompt, words: str) -> QueueDelivery:
    return QueueDelivery(
        turn=message.turn,
        channel=message.channel,
        part=f"closed {message.message}",
        kind="update",
        text=words,
        to=message.to,
        about=message.approval,
        replaces=message.message,
    )


def is_open(state: SessionState, approval: ApprovalId) -> bool:
    found = state.find_prompt(approval)
    prompt = found[1].approval if found is not None and found[1] is not None else None
    return prompt is not None and prompt.asked.approval == approval and prompt.is_open


def _thread(chat: ConfiguredChat, session: str) -> str | None:
    channel, _, thread = session.partition("/")
    return thread if channel == chat.name else None
