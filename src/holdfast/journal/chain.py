"""
Home keys and the subkeys derived from them.

A home key (32 random bytes, one per generation) never touches a record. Every session *instance*
has subkeys of its own, one per purpose. So a row of another session, of an earlier instance or of
another use never verifies. Pure; the store decides where keys are kept.
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from blake3 import blake3

from holdfast.ids import InstanceId, SessionId

KEY_BYTES = 32


class KeyMissing(Exception):
    """A segment names a key generation that this home does not have."""

    def __init__(self, generation: int) -> None:
        super().__init__(f"key generation {generation} is missing")
        self.generation = generation


class Subkeys(NamedTuple):
    """The subkeys of one instance under one key generation."""

    generation: int
    key_id: str
    record: bytes  # chains records
    segment: bytes  # digests of whole segments, and the fence
    anchor: bytes  # anchor slots


def subkey(key: bytes, purpose: str, session: str, instance: str) -> bytes:
    """Keyed BLAKE3 over the three parts, each preceded by its length in 4 bytes, big endian."""
    name, instance_bytes = session.encode(), instance.encode()
    parts = (
        _framed(purpose),
        len(name).to_bytes(4, "big"),
        name,
        len(instance_bytes).to_bytes(4, "big"),
        instance_bytes,
    )
    return blake3(b"".join(parts), key=key).digest()


@cache
def _framed(purpose: str) -> bytes:
    """
    Cached: there are few purposes, and a list of ten thousand sessions derives a key for each
    session.
    """
    named = purpose.encode()
    return len(named).to_bytes(4, "big") + named


def key_id(key: bytes) -> str:
    """Return a public name of a key: 16 hex digits that reveal nothing about it."""
    return subkey(key, "key id", "", "").hex()[:16]


class Keyring:
    """The keys of one home, by generation, and the subkeys of one instance, each derived once."""

    def __init__(self, keys: Mapping[int, bytes], session: SessionId, instance: InstanceId) -> None:
        self._keys, self._session, self._instance = keys, session, instance
        self._derived: dict[int, Subkeys] = {}

    @property
    def newest(self) -> int:
        return max(self._keys, default=0)

    def all(self) -> list[Subkeys]:
        return [self.get(generation) for generation in sorted(self._keys)]

    def get(self, generation: int) -> Subkeys:
        found = self._derived.get(generation)
        if found is None:
            try:
                key = self._keys[generation]
            except KeyError:
                raise KeyMissing(generation) from None
            parts = [
                subkey(key, purpose, self._session, self._instance)
                for purpose in ("record", "segment", "anchor")
            ]
            found = self._derived[generation] = Subkeys(generation, key_id(key), *parts)
        return found
