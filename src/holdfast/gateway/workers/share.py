"""A worker's share of the sessions."""

import msgspec
from blake3 import blake3

from holdfast.ids import SessionId


class Share(msgspec.Struct, frozen=True):
    """
    The sessions that worker `number` of `workers` drives. A single server drives them all. Only the
    first `drivers` workers drive; the others answer requests.
    """

    number: int = 0
    workers: int = 1
    drivers: int = 1

    def has(self, session: SessionId) -> bool:
        """
        >>> [Share(number, 3, 3).has(SessionId("ops/a")) for number in range(3)].count(True)
        1
        >>> [Share(number, 3, 1).has(SessionId("ops/a")) for number in range(3)]
        [True, False, False]
        """
        if self.drivers == 1:
            return self.is_first
        digest = blake3(session.encode()).digest(length=8)
        return int.from_bytes(digest, "big") % self.drivers == self.number

    @property
    def is_first(self) -> bool:
        """The first worker also does the work that a home needs once, such as retention."""
        return self.number == 0


ALL = Share()
"""The share of a server without workers."""
