"""From a payload of Discord's gateway to the facts that arrived. Pure; nothing is trusted."""

import re
from typing import Any

import msgspec

from holdfast.ports.chat.messages import Arrived, Pressed, QuotedText, direct_address

GATEWAY = "gateway of the bot token"
_EPOCH_MS = 1_420_070_400_000  # the first millisecond of 2015, from which ids count
_SNOWFLAKE = re.compile(r"[0-9]{1,20}\Z")
_DIRECT = re.compile(r"dm-([0-9]{1,20})\Z")
_THREAD = re.compile(r"in([0-9]{1,20})\Z")
_OF_PEOPLE = (0, 19)  # types of messages: a plain one, and a reply
_THREADS = (10, 11, 12)  # types of channels that are threads of another channel
_COMPONENT = 3  # type of an interaction: a button


class DiscordSelf(msgspec.Struct, frozen=True):
    """The bot itself."""

    id: str
    name: str


class Place(msgspec.Struct, frozen=True):
    """A channel. The place of a thread is the channel that it belongs to."""

    id: str
    is_direct: bool


def place_of(channel: dict[str, Any]) -> Place:
    """From a channel object. A thread has the readers of its parent, or fewer."""
    parent = channel.get("parent_id") if channel.get("type") in _THREADS else None
    return Place(str(parent or channel["id"]), is_direct=not channel.get("guild_id"))


def arrived(message: dict[str, Any], place: Place, me: DiscordSelf) -> Arrived | None:
    """
    Return the message of a person. None for anything else: a bot, a webhook that may have any name,
    ourselves, a notice of the system.
    """
    author, text = message.get("author"), message.get("content")
    if not isinstance(author, dict) or not isinstance(text, str):
        return None
    if author.get("bot") or author.get("system") or message.get("webhook_id"):
        return None
    user, ident, channel = (author.get("id"), message.get("id"), message.get("channel_id"))
    if not all(_is_id(each) for each in (user, ident, channel)) or user == me.id:
        return None
    if message.get("type", 0) not in _OF_PEOPLE:
        return None
    return Arrived(
        identity=str(user),
        place_kind="direct" if place.is_direct else "channel",
        place=place.id,
        thread=direct_address(str(user)) if place.is_direct else thread_of(str(channel)),
        message=str(ident),
        text=_without_address(text, me),
        sent_at=sent_at(str(ident)),
        authenticated_by=GATEWAY,
        is_for_us=place.is_direct or _is_for_us(message, me),
        quotes=_quotes(message, me),
    )


def pressed(interaction: dict[str, Any]) -> Pressed | None:
    data, message = interaction.get("data"), interaction.get("message")
    member = interaction.get("member")
    user = member.get("user") if isinstance(member, dict) else interaction.get("user")
    if interaction.get("type") != _COMPONENT:
        return None
    if not (isinstance(data, dict) and isinstance(message, dict) and isinstance(user, dict)):
        return None
    if not _is_id(user.get("id")) or not _is_id(interaction.get("id")):
        return None
    return Pressed(
        identity=str(user["id"]),
        message=message_name(message.get("channel_id"), message.get("id")),
        payload=str(data.get("custom_id", "")),
        press=str(interaction["id"]),
        authenticated_by=GATEWAY,
    )


def message_name(channel: object, message: object) -> str:
    return f"{channel}:{message}"


def direct_user(to: str) -> str | None:
    """
    Return the user of a direct address, or None.

    >>> direct_user("dm-42"), direct_user("in7")
    ('42', None)
    """
    found = _DIRECT.match(to)
    return found[1] if found is not None else None


def thread_of(channel: str) -> str:
    """
    Return the address of a channel or a thread.

    >>> thread_of("7")
    'in7'
    """
    return f"in{channel}"


def channel_of(to: str) -> str:
    """
    >>> channel_of("in7")
    '7'
    """
    found = _THREAD.match(to)
    if found is None:
        raise ValueError(f"{to!r} is not an address on Discord")
    return found[1]


def sent_at(snowflake: str) -> int:
    """
    Return the time in an id, in Unix milliseconds.

    >>> sent_at("175928847299117063")
    1462015105796
    """
    return (int(snowflake) >> 22) + _EPOCH_MS


def snowflake_at(unix_ms: int) -> int:
    """Return the lowest id of that millisecond."""
    return max(0, unix_ms - _EPOCH_MS) << 22


def _without_address(text: str, me: DiscordSelf) -> str:
    """Leave out our name at the beginning: it says whom the text is for."""
    return re.sub(rf"\A\s*<@!?{me.id}>\s*", "", text)


def _is_for_us(message: dict[str, Any], me: DiscordSelf) -> bool:
    mentioned = message.get("mentions") or ()
    replied = message.get("referenced_message")
    if isinstance(replied, dict) and (replied.get("author") or {}).get("id") == me.id:
        return True
    return any(isinstance(each, dict) and each.get("id") == me.id for each in mentioned)


def _quotes(message: dict[str, Any], me: DiscordSelf) -> tuple[QuotedText, ...]:
    replied = message.get("referenced_message")
    if not isinstance(replied, dict) or not replied.get("content"):
        return ()
    author = (replied.get("author") or {}).get("id")
    if author == me.id:
        return ()  # our own words are in the conversation already
    return (QuotedText(str(author) if _is_id(author) else None, str(replied["content"])),)


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _SNOWFLAKE.match(value) is not None
