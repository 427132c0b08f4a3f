"""How each platform counts a message. Light: every process needs it to split replies."""

from collections.abc import Callable
from typing import NamedTuple

from holdfast.ports.chat.messages import ChatKind


def utf16_units(text: str) -> int:
    """
    Telegram counts, and places its entities, in UTF-16 code units.

    >>> utf16_units("a"), utf16_units("\\N{GRINNING FACE}")
    (1, 2)
    """
    return len(text) + sum(character > "\uffff" for character in text)


def slack_escaped(text: str) -> str:
    """
    >>> slack_escaped("<@U1> & co")
    '&lt;@U1&gt; &amp; co'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slack_size(text: str) -> int:
    return len(slack_escaped(text))


class ChatSize(NamedTuple):
    part_size_max: int  # of one message
    size: Callable[[str], int]


CHAT_SIZES: dict[ChatKind, ChatSize] = {
    "telegram": ChatSize(4_096, utf16_units),
    "slack": ChatSize(3_000, slack_size),  # one section; a longer reply is easier to read in parts
    "discord": ChatSize(2_000, utf16_units),  # it counts code points; this never counts less
}
