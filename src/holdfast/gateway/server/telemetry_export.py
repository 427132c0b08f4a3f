"""
Live export: spans and totals of every session, read from the journals after the commit.

Nothing is kept in memory but the names of sessions that moved. A batch is read from the journals,
sent, and only then noted in the book. So a kill -9 loses no span, and a collector that is away
costs nothing: the exporter waits and reads again later.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from holdfast.errors import Busy, HoldfastError
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Record
from holdfast.ports.telemetry import Collector, ExportBook, ExportPlace, NotCollected
from holdfast.runtime.service import Service
from holdfast.secrecy import secrecy_of
from holdfast.session.codec import decode
from holdfast.telemetry.span import Span
from holdfast.telemetry.totals import Totals
from holdfast.telemetry.trace import trace
from holdfast.telemetry.trace_state import TraceState

_BATCH_SPANS = 512
_BATCH_SECONDS = 1.0  # a turn's spans go together, and a busy home is asked once a second
_RETRY_SECONDS = (1.0, 60.0)  # the first and the longest wait for a collector
_MOVED_MAX = 10_000  # names; with more, all sessions are compared with the book instead
_log = logging.getLogger("holdfast.telemetry")


class TelemetryExporter:
    def __init__(
        self, service: Service, collector: Collector, book: ExportBook, *, with_content: bool
    ) -> None:
        self._live = service.live
        self._collector = collector
        self._book = book
        self._with_content = with_content
        self._moved: dict[SessionId, int] = {}  # the number of notices that it had
        self._must_compare = True  # all sessions with the book, as after a start
        self._wake = asyncio.Event()
        self._wake.set()
        self._owes_totals = False
        self._is_without_totals = False  # the log has said so
        self.failure: str | None = None  # of the latest export; None after a success

    @property
    def sessions_behind(self) -> int:
        """Sessions that moved and whose spans the collector has not taken yet."""
        return len(self._moved)

    def notice(self, session: SessionId) -> None:
        if session in self._moved or len(self._moved) < _MOVED_MAX:
            self._moved[session] = self._moved.get(session, 0) + 1
        else:
            self._must_compare = True
        self._wake.set()

    async def run(self) -> None:
        wait_seconds = _RETRY_SECONDS[0]
        while True:
            await self._wake.wait()
            await asyncio.sleep(_BATCH_SECONDS)
            self._wake.clear()
            try:
                await self.export()
            except Exception as exc:  # noqa: BLE001  whatever it is, it must not end the server
                if self.failure is None:
                    _log.warning("no spans were exported: %s. They are sent again later.", exc)
                self.failure = str(exc)
            else:
                if self.failure is not None:
                    _log.info("the collector is back; spans are exported again")
                self.failure, wait_seconds = None, _RETRY_SECONDS[0]
            if self.failure is not None or self._moved or self._owes_totals:
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(wait_seconds * 2, _RETRY_SECONDS[1])
                self._wake.set()

    async def export(self) -> None:
        """Send everything that the collector lacks. Raise what keeps it from going on."""
        if self._must_compare:
            await self._compare()
        totals = await self._book.totals() or Totals(since=self._live.now_ms())
        batch = _Batch()
        for session in list(self._moved):
            is_more = True
            while is_more:
                is_more = await self._read(session, batch)
                if is_more or batch.is_full:
                    await self._send(batch, totals)
                    batch = _Batch()
        await self._send(batch, totals)
        await self._send_totals(totals)

    async def _compare(self) -> None:
        self._must_compare = False
        places = await self._book.places()
        heads = await self._live.heads()
        for session, instance, seq in heads:
            if places.get(session, (None, 0)) != (instance, seq):
                self._moved.setdefault(session, 0)
        for session in places.keys() - {session for session, _, _ in heads}:
            self._moved.setdefault(session, 0)

    async def _read(self, session: SessionId, batch: "_Batch") -> bool:
        """
        Add a session's new spans. Return whether there are more than the batch takes. A session
        that is at its head, gone or unreadable no longer moves; a busy one is read again later.
        """
        notices = self._moved[session]
        place = await self._book.place(session)
        is_more = False
        try:
            async with self._live.use(session) as ledger:
                if ledger.journal.sealed is None and not ledger.driving:
                    await ledger.catch_up()
                if place is None or place.instance != ledger.instance:
                    place = _beginning(session, ledger.instance)
                while not (is_more := batch.is_full):
                    records = await self._live.records_after(ledger, place.seq)
                    if not records:
                        batch.done.append((session, notices))
                        break
                    place = self._trace(place, records, batch.spans)
        except Busy:
            pass
        except HoldfastError as exc:
            if exc.code == "unknown":
                batch.gone.append(session)
                return False
            _log.warning("%s is not exported further: %s", session, exc)
            batch.done.append((session, notices))
        if place is not None:
            batch.places.append(place)
        return is_more

    def _trace(
        self, place: ExportPlace, records: Sequence[Record], spans: list[Span]
    ) -> ExportPlace:
        state = place.state
        for record in records:
            event = decode(record.type, record.version, record.body)
            state, found = trace(state, event, at=record.at, with_content=self._with_content)
            spans.extend(found)
        return msgspec.structs.replace(place, seq=records[-1].seq, state=state)

    async def _send(self, batch: "_Batch", totals: Totals) -> None:
        spans = self._hidden(batch.spans) if self._with_content else batch.spans
        if spans:
            try:
                await self._collector.send_spans(spans)
            except NotCollected as exc:
                if exc.may_pass:
                    raise
                # They stay in the journal: `sessions trace --otlp` sends them.
                _log.warning("%s. The export goes on behind them.", exc)
            else:
                totals.add(spans)
                self._owes_totals = True
        await self._book.write(batch.places, totals, forget=batch.gone)
        for session, notices in batch.done:
            if self._moved.get(session) == notices:  # it did not move meanwhile
                del self._moved[session]
        for session in batch.gone:
            self._moved.pop(session, None)

    async def _send_totals(self, totals: Totals) -> None:
        """
        A collector may take spans alone. Totals are cumulative, so the next request makes up for
        one that failed, and no span waits for it.
        """
        if not self._owes_totals:
            return
        try:
            await self._collector.send_totals(totals, at=self._live.now_ms())
        except NotCollected as exc:
            if not self._is_without_totals:
                _log.warning("no metrics were exported: %s", exc)
            self._is_without_totals = True
            self._owes_totals = exc.may_pass
        else:
            self._is_without_totals = self._owes_totals = False

    def _hidden(self, spans: Sequence[Span]) -> list[Span]:
        """A secret that became known after its record was written is not exported either."""
        secrecy = secrecy_of(self._live.secrets)
        return [
            msgspec.convert(
                msgspec.json.decode(secrecy.hidden_json(msgspec.json.encode(span))), Span
            )
            for span in spans
        ]


class _Batch:
    """One request's spans, and the places that are noted once the collector has taken them."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.places: list[ExportPlace] = []
        self.done: list[tuple[SessionId, int]] = []  # read to the head
        self.gone: list[SessionId] = []  # deleted

    @property
    def is_full(self) -> bool:
        return max(len(self.spans), len(self.places)) >= _BATCH_SPANS


def _beginning(session: SessionId, instance: InstanceId) -> ExportPlace:
    return ExportPlace(session=session, instance=instance, seq=0, state=TraceState())
