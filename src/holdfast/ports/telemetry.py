"""
A collector of spans, and the book of how far each session was exported.

An export may be repeated: a collector that takes a span twice sees equal ids. So the book is
written after the collector has taken everything, and a crash in between costs a repetition.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.ids import InstanceId, SessionId
from holdfast.telemetry.span import Span
from holdfast.telemetry.totals import Totals
from holdfast.telemetry.trace_state import TraceState


class NotCollected(Exception):
    """The collector did not take them. `may_pass`: the same request may succeed later."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class Collector(Protocol):
    async def send_spans(self, spans: Sequence[Span]) -> None:
        """Return once the collector has taken all of them. Raise `NotCollected` otherwise."""
        ...

    async def send_totals(self, totals: Totals, *, at: int) -> None:
        """The same for totals, as they stand at this instant."""
        ...


class ExportPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How far one session was exported, and what later spans need of its earlier records."""

    session: SessionId
    instance: InstanceId
    seq: int
    state: TraceState


class ExportBook(Protocol):
    async def places(self) -> Mapping[SessionId, tuple[InstanceId, int]]:
        """The instance and the last exported record of every session in the book."""
        ...

    async def place(self, session: SessionId) -> ExportPlace | None: ...

    async def totals(self) -> Totals | None: ...

    async def write(
        self, places: Sequence[ExportPlace], totals: Totals, *, forget: Sequence[SessionId] = ()
    ) -> None:
        """Store all of it, or nothing."""
        ...

    def close(self) -> None: ...
