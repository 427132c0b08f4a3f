"""From an update of the Bot API to the facts that arrived. Pure; nothing is taken on trust."""

import re
from typing import Any

from holdfast.ports.chat.messages import Arrived, Pressed, QuotedText, direct_address

_BY = "bot token"
_GROUPS = frozenset({"group", "supergroup"})
_THREAD = re.compile(r"in(-[0-9]{1,20})(?:\.([0-9]{1,20}))?\Z")
_DIRECT = re.compile(r"dm-([0-9]{1,20})\Z")
# The field of today, and those of an older Bot API server.
_FOREIGN_FIELDS = ("forward_origin", "forward_date", "forward_from", "via_bot")
_FORWARDED = "(I forward a message.)"


class Me:
    """The bot itself, from `getMe`."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.id: int = answer["id"]
        self.username: str = str(answer.get("username", ""))


def arrived(update: dict[str, Any], me: Me) -> Arrived | None:
    """
    Return the message of a person. None for anything else: an edit, a post of a channel, an
    anonymous admin, another bot, ourselves, a sender without a user id.
    """
    message = update.get("message")
    if not isinstance(message, dict):
        return None
    sender, chat, text = message.get("from"), message.get("chat"), message.get("text")
    if not isinstance(sender, dict) or not isinstance(chat, dict) or not isinstance(text, str):
        return None
    if sender.get("is_bot") or "sender_chat" in message or not isinstance(sender.get("id"), int):
        return None
    is_direct = chat.get("type") == "private"
    if not is_direct and chat.get("type") not in _GROUPS:
        return None
    identity = str(sender["id"])
    foreign = _forwarded(message)
    topic = message.get("message_thread_id") if message.get("is_topic_message") else None
    thread = f"in{chat['id']}" + (f".{topic}" if topic is not None else "")
    return Arrived(
        identity=identity,
        place_kind="direct" if is_direct else "channel",
        place=str(chat["id"]),
        thread=direct_address(identity) if is_direct else thread,
        message=str(message["message_id"]),
        text=_without_address(text, me) if foreign is None else _FORWARDED,
        sent_at=int(message.get("date", 0)) * 1000,
        authenticated_by=_BY,
        is_for_us=is_direct or _is_for_us(message, me),
        quotes=_quotes(message, me) if foreign is None else (foreign,),
    )


def pressed(update: dict[str, Any]) -> Pressed | None:
    query = update.get("callback_query")
    if not isinstance(query, dict):
        return None
    sender, message = query.get("from"), query.get("message")
    if not isinstance(sender, dict) or not isinstance(message, dict):
        return None
    chat = message.get("chat")
    if not isinstance(chat, dict) or not isinstance(sender.get("id"), int):
        return None
    return Pressed(
        identity=str(sender["id"]),
        message=message_name(chat.get("id"), message.get("message_id")),
        payload=str(query.get("data", "")),
        press=str(query["id"]),
        authenticated_by=_BY,
    )


def message_name(chat: object, message: object) -> str:
    return f"{chat}:{message}"


def address(to: str) -> dict[str, int]:
    """
    Return the fields that name a chat, and its topic.

    >>> address("dm-42"), address("in-1001.7")
    ({'chat_id': 42}, {'chat_id': -1001, 'message_thread_id': 7})
    """
    if (direct := _DIRECT.match(to)) is not None:
        return {"chat_id": int(direct[1])}
    if (thread := _THREAD.match(to)) is None:
        raise ValueError(f"{to!r} is not an address on Telegram")
    fields = {"chat_id": int(thread[1])}
    return fields if thread[2] is None else {**fields, "message_thread_id": int(thread[2])}


def _without_address(text: str, me: Me) -> str:
    """Leave out our name at the beginning: it says whom the text is for."""
    name = f"@{me.username}"
    is_address = text[: len(name)].lower() == name.lower() and text[len(name) :][:1] in ("", " ")
    return text[len(name) :].lstrip() if me.username and is_address else text


def _is_for_us(message: dict[str, Any], me: Me) -> bool:
    replied = message.get("reply_to_message")
    if isinstance(replied, dict) and (replied.get("from") or {}).get("id") == me.id:
        return True
    units = message["text"].encode("utf-16-le")
    for entity in message.get("entities") or ():
        start, length = 2 * int(entity.get("offset", 0)), 2 * int(entity.get("length", 0))
        name = units[start : start + length].decode("utf-16-le", "replace")
        if entity.get("type") == "mention" and name.lower() == f"@{me.username}".lower():
            return True
        if entity.get("type") == "text_mention" and (entity.get("user") or {}).get("id") == me.id:
            return True
    return False


def _forwarded(message: dict[str, Any]) -> QuotedText | None:
    """
    Return text of another author that the sender forwarded, or that another bot wrote. It is never
    the sender's own.
    """
    origin = message.get("forward_origin")
    author = origin.get("sender_user") if isinstance(origin, dict) else None
    author = author or message.get("forward_from") or message.get("via_bot")
    if not any(name in message for name in _FOREIGN_FIELDS):
        return None
    user = author.get("id") if isinstance(author, dict) else None
    return QuotedText(str(user) if isinstance(user, int) else None, message["text"])


def _quotes(message: dict[str, Any], me: Me) -> tuple[QuotedText, ...]:
    replied = message.get("reply_to_message")
    if not isinstance(replied, dict) or not isinstance(replied.get("text"), str):
        return ()
    sender = (replied.get("from") or {}).get("id")
    if sender == me.id:
        return ()  # our own words are in the conversation already
    return (QuotedText(str(sender) if isinstance(sender, int) else None, replied["text"]),)
