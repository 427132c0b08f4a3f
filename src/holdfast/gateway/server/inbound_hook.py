"""A webhook that the server receives, as settings describe it."""

import msgspec

from holdfast.session.authority.context import Audience, MessageSource

HOOK_BODY_BYTES_MAX = 64 * 1024
"""The standard advises 20 kB. The body is one quote, in one record with the message's context."""

WEBHOOK_CHANNEL = "webhook"


class InboundHook(msgspec.Struct, frozen=True, kw_only=True):
    keys: tuple[bytes, ...]  # any of them signs; two while a sender changes its key
    person: str
    session: str
    text: str
    agent: str | None = None
    team: str | None = None  # the team that reads the session; None: the person alone

    def source(self) -> MessageSource:
        own = MessageSource.automation(self.person, channel=WEBHOOK_CHANNEL)
        if self.team is None:
            return own
        provenance = msgspec.structs.replace(own.provenance, scope="group")
        return msgspec.structs.replace(
            own, audience=Audience.TEAM, boundary=f"team:{self.team}", provenance=provenance
        )
