"""The two protocols of a chat, and a chat as settings configure it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from holdfast.ports.chat.messages import (
    Arrived,
    ChatKind,
    ChatParcel,
    ChatPlaces,
    ChatReceipt,
    KnownThread,
    Pressed,
    Taken,
    direct_address,
)


class ChatInbox(Protocol):
    """The only way in. Implemented by the gateway."""

    async def message(self, arrived: Arrived) -> Taken:
        """Durable when it returns. An exception: nothing is; do not acknowledge, try later."""
        ...

    async def press(self, pressed: Pressed) -> Taken:
        """Durable when it returns. Nothing of the message may change before."""
        ...

    async def threads(self) -> Sequence[KnownThread]:
        """The threads with a session, the latest first, to read what was missed there."""
        ...

    def places(self) -> ChatPlaces:
        """The places to look at for a first message that was missed."""
        ...

    def came_up(self) -> None:
        """The platform answers. Owed messages are sent."""
        ...

    def went_down(self, reason: str) -> None:
        """The platform does not answer; `run` goes on trying."""
        ...


class ChatPlatform(Protocol):
    @property
    def is_up(self) -> bool:
        """Whether it answered last. While it does not, owed messages stay owed."""
        ...

    async def send(self, parcel: ChatParcel) -> ChatReceipt:
        """Deliver it, in one attempt. Raise NotDelivered or DeliveryInDoubt."""
        ...

    async def update(self, parcel: ChatParcel) -> None:
        """
        Replace the message `parcel.replaces` by the text, without buttons. It may be repeated. A
        message that is gone counts as updated.
        """
        ...

    async def find(self, parcel: ChatParcel) -> ChatReceipt | Literal["absent", "unknown"]:
        """
        Look for a message that may have been sent. `absent` only if the platform is certain:
        then it is sent again.
        """
        ...

    async def run(self, inbox: ChatInbox) -> None:
        """Listen until cancelled, and connect again by itself. First read what was missed."""
        ...

    async def check(self) -> str:
        """Ask the platform who we are. Return the answer for people. Raise NotDelivered."""
        ...


@runtime_checkable
class CallingPlatform(Protocol):
    """A platform that calls us over HTTP, beside what it is asked."""

    async def receive(
        self,
        header: Callable[[str], str | None],
        body: bytes,
        inbox: ChatInbox,
        *,
        now_seconds: int,
    ) -> str | None:
        """
        Take one request. Return None if it is not the vendor's, else the challenge to answer with,
        or nothing.
        """
        ...


class ConfiguredChat(msgspec.Struct, frozen=True, kw_only=True):
    """A configured chat. `platform` is None in a process that does not serve."""

    name: str  # the first part of its sessions' names
    kind: ChatKind
    identities: Mapping[str, str] = {}  # by person
    prompts_of_all: bool = False  # also prompts of turns that came another way
    part_size_max: int  # of one message, as `size` counts
    size: Callable[[str], int]
    platform: ChatPlatform | None = None

    @property
    def is_open(self) -> bool:
        return self.platform is not None and self.platform.is_up

    def direct(self, person: str) -> str | None:
        """The address of a person's direct messages."""
        identity = self.identities.get(person)
        return None if identity is None else direct_address(identity)
