"""From a parcel to a message of Slack: blocks in which no text is interpreted. Pure."""

from typing import Any

from holdfast.adapters.channels.chat_sizes import slack_escaped, slack_size
from holdfast.adapters.channels.prompt_text import PromptText, prompt_text
from holdfast.ports.chat.messages import ChatParcel

ROOM = 12_000  # over all blocks; Slack refuses more than about 13,200 (msg_blocks_too_long)
EVENT_TYPE = "holdfast_delivery"
_SECTION_CHARS = 2_900  # of plain text in one section, under the limit of 3,000


def laid_out(parcel: ChatParcel, page: str | None) -> PromptText | None:
    if parcel.prompt is None:
        return None
    return prompt_text(parcel.prompt, room=ROOM, size=slack_size, page=page)


def message(parcel: ChatParcel, laid: PromptText | None) -> dict[str, Any]:
    """The fields of `chat.postMessage`. The delivery's id is in its metadata, to be found again."""
    fields: dict[str, Any] = {
        "text": slack_escaped(parcel.text if laid is None else laid.before.strip()),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "metadata": {
            "event_type": EVENT_TYPE,
            "event_payload": {"delivery": parcel.delivery},
        },
    }
    if laid is None:
        return fields
    blocks: list[dict[str, Any]] = [
        *_plain(laid.before),
        _preformatted(laid.display),
        *_plain(laid.after),
    ]
    if laid.buttons:
        blocks.append({"type": "actions", "elements": [_button(each) for each in laid.buttons]})
    return fields | {"blocks": blocks}


def update(parcel: ChatParcel) -> dict[str, Any]:
    """The fields of `chat.update`: the same message without buttons."""
    return {"text": slack_escaped(parcel.text), "blocks": [_preformatted(parcel.text)]}


def _preformatted(text: str) -> dict[str, Any]:
    element = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [element]}


def _plain(text: str) -> list[dict[str, Any]]:
    """Plain text: no markup, no mention, no emoji."""
    pieces = [
        text[at : at + _SECTION_CHARS].strip("\n") for at in range(0, len(text), _SECTION_CHARS)
    ]
    return [
        {"type": "section", "text": {"type": "plain_text", "text": piece, "emoji": False}}
        for piece in pieces
        if piece
    ]


def _button(button: Any) -> dict[str, Any]:
    return {
        "type": "button",
        "text": {"type": "plain_text", "text": button.label},
        "value": button.payload,
        "action_id": f"holdfast_{'approve' if button.is_approval else 'deny'}",
        **({"style": "primary"} if button.is_approval else {"style": "danger"}),
    }
