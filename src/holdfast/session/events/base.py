"""The base of every event, and the opaque bytes that an event may carry."""

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A fact about a session."""


class Blob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """
    Opaque bytes of an adapter, which no other code reads. Exactly one of `text`, `data` (base64)
    and `kept` (the digest of a large one, beside the journal) holds them.
    """

    adapter: str  # its name and version, such as "langchain/1"
    size: int
    text: str | None = None
    data: str | None = None
    kept: str | None = None
