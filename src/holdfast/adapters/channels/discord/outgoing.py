"""
From a parcel to a message of Discord. Pure.

Everything that Discord shows is Markdown. A prompt's display goes into a code block, in which no
markup, mention or link acts. Three backticks would end the block, so an invisible space goes
between two of them; nothing else of the display changes.
"""

import re
from typing import Any

from holdfast.adapters.channels.prompt_text import Button, PromptText, prompt_text
from holdfast.ids import short_digest
from holdfast.ports.chat.messages import ChatParcel

CONTENT_CHARS_MAX = 2_000
NONCE_CHARS_MAX = 25
_FENCE = "```"
_ROOM = CONTENT_CHARS_MAX - len(f"{_FENCE}\n\n{_FENCE}")
_BETWEEN = "\u200b"
_MARKUP = re.compile(r"([\\*_~`|>#\[\]()<@:-])")
_ADDRESS = re.compile(r"https?://\S+")
_EPHEMERAL, _NO_EMBEDS = 1 << 6, 1 << 2
_NO_MENTIONS: dict[str, list[str]] = {"parse": []}
_ROW, _BUTTON, _PRIMARY, _DANGER = 1, 2, 1, 4


def laid_out(parcel: ChatParcel, page: str | None) -> PromptText | None:
    if parcel.prompt is None:
        return None
    return prompt_text(parcel.prompt, room=_ROOM, size=_size, page=page)


def message(parcel: ChatParcel, laid: PromptText | None) -> dict[str, Any]:
    """
    The body of a new message. With `enforce_nonce`, Discord answers a repeat within minutes with
    the first message and makes no second one.
    """
    fields: dict[str, Any] = {
        "content": parcel.text if laid is None else _content(laid),
        "nonce": short_digest("discord", parcel.delivery)[:NONCE_CHARS_MAX],
        "enforce_nonce": True,
        "allowed_mentions": _NO_MENTIONS,
        "flags": _NO_EMBEDS,
    }
    if laid is not None and laid.buttons:
        row = {"type": _ROW, "components": [_button(each) for each in laid.buttons]}
        fields["components"] = [row]
    return fields


def update(parcel: ChatParcel) -> dict[str, Any]:
    """The body of an edit: the text alone. A closed prompt need not be whole."""
    text = parcel.text
    while len(block(text)) > CONTENT_CHARS_MAX:
        text = text[: len(text) * 9 // 10]
    return {
        "content": block(text),
        "components": [],
        "allowed_mentions": _NO_MENTIONS,
        "flags": _NO_EMBEDS,
    }


def plain(words: str) -> dict[str, Any]:
    """Words of ours, in which nothing acts."""
    return {
        "content": escaped(words[: CONTENT_CHARS_MAX // 2]),
        "allowed_mentions": _NO_MENTIONS,
        "flags": _NO_EMBEDS,
    }


def whisper(words: str) -> dict[str, Any]:
    """The same for one person alone, as the answer to their press."""
    return plain(words) | {"flags": _EPHEMERAL}


def same_text(one: object, other: str) -> bool:
    """Compare two contents. Discord may trim spaces."""
    return isinstance(one, str) and one.split() == other.split()


def block(text: str) -> str:
    """
    >>> block("ls")
    '```\\nls\\n```'
    """
    return f"{_FENCE}\n{_inside(text)}\n{_FENCE}"


def escaped(text: str) -> str:
    """
    Escape everything that Discord would interpret, but leave addresses as they are.

    >>> print(escaped("read_file: https://a.b/c_d"))
    read\\_file\\: https://a.b/c_d
    """
    found, at = [], 0
    for address in _ADDRESS.finditer(text):
        found += [_MARKUP.sub(r"\\\1", text[at : address.start()]), address[0]]
        at = address.end()
    return "".join([*found, _MARKUP.sub(r"\\\1", text[at:])])


def _inside(text: str) -> str:
    return text.replace("``", f"`{_BETWEEN}`").replace("``", f"`{_BETWEEN}`")


def _size(text: str) -> int:
    """The longer of the two forms that a part of a prompt can have."""
    return max(len(_inside(text)), len(escaped(text)) if len(text) <= CONTENT_CHARS_MAX else 0)


def _content(laid: PromptText) -> str:
    return f"{escaped(laid.before)}{block(laid.display)}{escaped(laid.after)}"


def _button(button: Button) -> dict[str, Any]:
    return {
        "type": _BUTTON,
        "style": _PRIMARY if button.is_approval else _DANGER,
        "label": button.label,
        "custom_id": button.payload,
    }
