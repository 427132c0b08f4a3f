"""One chat as settings describe it, and the authority that they give to what arrives there."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from holdfast.ports.chat.messages import Arrived, ChatKind
from holdfast.ports.chat.platform import ChatPlatform
from holdfast.session.authority.context import (
    PUBLIC_BOUNDARY,
    Audience,
    MessageSource,
    Principal,
    Provenance,
)
from holdfast.session.view.messages import Quote


class ChatRules(msgspec.Struct, frozen=True, kw_only=True):
    """
    `person_for` and `identities_now` read the settings of the moment, so that a person who was
    taken out of them is a stranger at once.
    """

    name: str
    kind: ChatKind
    person_for: Callable[[str], str | None]
    identities_now: Callable[[], Iterable[str]] = tuple
    teams: Mapping[str, str] = {}  # by the platform's id of a channel
    answers: Literal["mentions", "all"] = "mentions"
    agent: str | None = None
    late_seconds_max: float = 24 * 3600.0  # an older message is not acted on


class OpenChat(msgspec.Struct, frozen=True):
    """A chat that a server listens to."""

    rules: ChatRules
    platform: ChatPlatform


def is_wanted(rules: ChatRules, arrived: Arrived) -> bool:
    """In a channel, only a message that mentions us or replies to us, unless settings say all."""
    return arrived.place_kind == "direct" or arrived.is_for_us or rules.answers == "all"


def source_of(rules: ChatRules, arrived: Arrived, person: str) -> MessageSource:
    """
    Return the source of a message. A direct message is PERSONAL. A channel that settings list is
    TEAM. Everything else is PUBLIC, and so is a channel that another tenant reads.
    """
    team = rules.teams.get(arrived.place) if not arrived.is_shared else None
    quotes = tuple(
        Quote(speaker=_speaker(rules, each.user), text=each.text) for each in arrived.quotes
    )
    if arrived.place_kind == "direct":
        audience, boundary, scope = Audience.PERSONAL, f"personal:{person}", "direct"
    elif team is not None:
        audience, boundary, scope = Audience.TEAM, f"team:{team}", "group"
    else:
        audience, boundary, scope = Audience.PUBLIC, PUBLIC_BOUNDARY, "broadcast"
    return MessageSource(
        channel=rules.name,
        person=person,
        principal=Principal.UNTRUSTED_EXTERNAL
        if audience is Audience.PUBLIC
        else Principal.TRUSTED_INTERNAL,
        audience=audience,
        boundary=boundary,
        provenance=Provenance(authenticity="verified", taint="clean", scope=scope, kind="message"),
        can_prompt=True,
        quotes=quotes,
        message_id=arrived.message,
    )


def _speaker(rules: ChatRules, user: str | None) -> str:
    """Return the person's name. An unknown speaker keeps the platform's id."""
    if user is None:
        return f"{rules.kind} user"
    return rules.person_for(user) or f"{rules.kind} user {user}"
