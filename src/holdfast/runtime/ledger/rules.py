"""
The rules that a service gives to each of its ledgers: the home's time, further commands of a
commit, and where commits are announced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from holdfast.runtime.context import Tuning
from holdfast.runtime.ledger.attempt import WriteAs
from holdfast.session.commands import SessionCommand
from holdfast.session.events import SessionEvent
from holdfast.session.state import SessionState

if TYPE_CHECKING:
    from holdfast.runtime.ledger.ledger import Ledger


class Timekeeper(Protocol):
    """The home's time; see `HomeLedger`."""

    async def check_clock(self) -> None: ...

    def decided_at(self, stamp: int) -> int: ...


Also = Callable[[SessionState, Sequence[SessionEvent]], Sequence[SessionCommand]]
"""From the state before a commit, and its events, to the commands that go with them."""


class Announces(Protocol):
    """Hears of new records; see `reports/announcer.py`."""

    def committed(self, ledger: "Ledger", before: SessionState, by: WriteAs) -> None: ...

    async def settle(self, ledger: "Ledger") -> None: ...

    async def settle_undriven(self, ledger: "Ledger") -> None: ...

    async def put_back(self, ledger: "Ledger") -> None: ...


@dataclass(frozen=True, kw_only=True)
class LedgerRules:
    """The rules of every ledger of a service. Without them, its journal alone decides."""

    also: Also | None = None
    """Further commands that the events of a commit require: the deliveries owed to channels."""
    time: Timekeeper | None = None
    announcer: Announces | None = None
    tuning: Tuning = field(default_factory=Tuning)
