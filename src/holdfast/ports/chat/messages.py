"""The values that go between a platform and the gateway: facts in, messages out."""

from typing import Literal

import msgspec

from holdfast.ids import ApprovalId

ChatKind = Literal["slack", "telegram", "discord"]
PlaceKind = Literal["direct", "channel"]
Shown = Literal["whole", "head"]


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """An open prompt, as its message must show it."""

    approval: ApprovalId
    session: str
    tool: str
    kind: str  # approval, question
    requester: str
    agent: str  # wrote the call
    editor: str | None = None  # wrote it anew
    risks: tuple[str, ...] = ()  # reasons to look twice; with one there is no approving button
    display: str  # journalled; a message that does not have all of it offers no approval
    digest: str
    options: tuple[str, ...]
    may_answer: tuple[str, ...]
    expires_at: int  # Unix milliseconds
    is_at_home: bool = False  # the message is in the conversation that asks


class ChatParcel(msgspec.Struct, frozen=True, kw_only=True):
    """One message that is owed. `prompt` is set for an open prompt, `replaces` for an update."""

    delivery: str  # permanent: the same for every try
    to: str
    kind: str  # reply, notice, prompt, update
    text: str
    queued_at: int  # Unix milliseconds; it is not older than this on the platform
    prompt: ChatPrompt | None = None
    replaces: str = ""


class ChatReceipt(msgspec.Struct, frozen=True):
    """The platform's name of a message that arrived, and how much of a prompt it shows."""

    message: str
    shown: Shown | None = None


class QuotedText(msgspec.Struct, frozen=True):
    """Text of a message that this one replies to. `user` is an identity, None if unknown."""

    user: str | None
    text: str


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """
    One message, as the platform authenticated it. `identity` is the opaque user id, after the
    tenant and a slash where ids belong to a tenant. It never holds a name or an e-mail address.
    """

    identity: str
    place_kind: PlaceKind
    place: str  # the platform's id of the channel; the key of `teams` in settings
    thread: str  # the address of the reply
    message: str  # the platform's id of the message: the same in every redelivery
    text: str
    sent_at: int  # Unix milliseconds, by the platform's clock
    authenticated_by: str
    is_for_us: bool  # it mentions us, or replies to us
    is_shared: bool = False  # people of another tenant read this place
    quotes: tuple[QuotedText, ...] = ()


class KnownThread(msgspec.Struct, frozen=True):
    """A thread with a session, and the last message of a person that is durable there."""

    thread: str
    place: str
    message: str


class ChatPlaces(msgspec.Struct, frozen=True):
    """The places that settings name, with or without a session."""

    identities: tuple[str, ...] = ()  # of people, who may write directly
    channels: tuple[str, ...] = ()


class Pressed(msgspec.Struct, frozen=True, kw_only=True):
    """One pressed button. `payload` is as the vendor returned it; it proves nothing."""

    identity: str
    message: str  # the message with the button, named as in its receipt
    payload: str
    press: str  # the platform's id of this press: the same in every redelivery
    authenticated_by: str


class Taken(msgspec.Struct, frozen=True):
    """
    The message or the press needs no redelivery. `words` are for its sender alone, where the
    platform can show them to one person.
    """

    outcome: Literal["taken", "duplicate", "ignored", "refused"]
    words: str | None = None


def direct_address(identity: str) -> str:
    """
    >>> direct_address("T024BE7LD/U024BE7LH")
    'dm-t024be7ld.u024be7lh'
    """
    return "dm-" + identity.lower().replace("/", ".")
