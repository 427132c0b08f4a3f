"""
The size of a view. Tokens are the model's own count, if it reported one. Messages that came since,
or that were never counted, are estimated from their characters.
"""

from collections.abc import Iterable

from holdfast.session.view.messages import AssistantMessage, Message, UserMessage

CHARS_PER_TOKEN = (
    4  # for English prose and code; a model's real count replaces it as soon as there is one
)


def chars_of(message: Message) -> int:
    """
    >>> chars_of(UserMessage("four", None))
    4
    """
    size = len(message.text)
    match message:
        case UserMessage(quotes=quotes):
            for quote in quotes:
                size += len(quote.text) + len(quote.speaker)
        case AssistantMessage(calls=calls, blob=blob):
            for call in calls:
                size += len(call.tool) + len(call.arguments)
            size += len(blob or "")
        case _:
            pass
    return size


def chars(messages: Iterable[Message]) -> int:
    return sum(map(chars_of, messages))


def estimated_tokens(characters: int) -> int:
    return -(-characters // CHARS_PER_TOKEN)
