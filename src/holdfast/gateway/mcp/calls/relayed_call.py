"""One call as a client made it, and the turns of a session that are the same call."""

from collections.abc import Container, Iterable

import msgspec

from holdfast.ids import SessionId, TurnId
from holdfast.runtime.context import PROXY_AGENT
from holdfast.session.authority.context import MessageSource
from holdfast.session.state import Turn

CALL = "call"  # the id of the one call in each turn


class RelayedCall(msgspec.Struct, frozen=True, kw_only=True):
    """`arguments` is JSON text with sorted keys, so equal ones have one text."""

    session: SessionId
    source: MessageSource
    client: str
    tool: str
    arguments: str
    key: str | None = None  # the same key again is the same request

    @property
    def sameness(self) -> tuple[str, str, str]:
        return self.session, self.tool, self.arguments

    def equal_among(
        self, turns: Iterable[Turn], *, beside: Container[TurnId | None]
    ) -> TurnId | None:
        """
        Find the open turn of an equal call: it waits for a person, was answered, or ended without a
        client that took its result.
        """
        for turn in turns:
            is_equal = any(
                (each.tool, each.made) == (self.tool, self.arguments) for each in turn.calls
            )
            if turn.agent == PROXY_AGENT and turn.parked and is_equal and turn.id not in beside:
                return turn.id
        return None
