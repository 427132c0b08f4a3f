"""
A session's records as they are stored: in parts, so that a long conversation opens at its end, and
verified one by one in front of a reader.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from holdfast.errors import HoldfastError, Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.pagination import LIMIT, page_asked_for
from holdfast.gateway.http.router import AnyRoute, ApiCall, Parameter, Route, StreamRoute
from holdfast.gateway.http.schemas import RecordsList
from holdfast.gateway.routes.visibility import check_seen, session_in_path
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.frames import (
    RecordSent,
    frame_from_event,
    frame_from_record,
    reader_set_from_input,
    record_sent,
)
from holdfast.gateway.streams.registry import LiveStream
from holdfast.gateway.streams.sse_response import SseResponse
from holdfast.journal.record import Record
from holdfast.ports.journal_store import Journal

_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_PART_BYTES_MAX = 4 * 1024 * 1024  # of one part; a part with large records has fewer
_CHECKED_AT_ONCE = 50  # records of one event, so that the reader sees them pass
_BEFORE = Parameter(
    "before",
    "records with a lower seq than this; without it, the last ones",
    {"type": "string", "pattern": "^[0-9]{1,15}$"},
)


class HistoryRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self) -> list[AnyRoute]:
        base = "/v1/sessions/{channel}/{thread}"
        return [
            Route(
                method="GET", path=f"{base}/records", scope="read", handle=self.records,
                response=RecordsList, query=(LIMIT, _BEFORE),
                id="listRecords", summary="A part of a session's records",
                answer="the last records before `before`, in their order",
            ),
            StreamRoute(
                method="GET", path=f"{base}/verify", scope="read", open=self.verify,
                id="verifySession", summary="Verify every record of a session",
                answer="the records as they are verified, then the verdict",
            ),
        ]  # fmt: skip

    async def records(self, call: ApiCall[None]) -> RecordsList:
        bearer = call.bearer
        limit, _ = page_asked_for({k: v for k, v in call.query.items() if k == "limit"})
        session = await check_seen(self._gateway, session_in_path(call.request), bearer)
        part = _Part(bearer)
        async with self._gateway.service.live.read_anew(session) as journal:
            head = await journal.load(part.learn) if part.must_learn else None
            before = _seq(call.query.get("before"))
            if before is None:
                last = head.seq if head is not None else (await journal.load(_nothing)).seq
                before = last + 1
            part.before = before
            with suppress(_Enough):
                await journal.load(part.take, after=max(0, before - 1 - limit))
        return RecordsList(records=tuple(part.found))

    @asynccontextmanager
    async def verify(self, call: ApiCall[None]) -> AsyncGenerator[SseResponse, None]:
        bearer = call.bearer
        session = await check_seen(self._gateway, session_in_path(call.request), bearer)
        report = await self._gateway.service.show(session)
        async with self._gateway.service.live.read_anew(session) as journal:
            stream = _Verifying(bearer, journal, report.seq)
            with self._gateway.streams.hold(stream):
                yield SseResponse(stream)


class _Enough(Exception):
    """Leaves a load early; not an error."""


def _nothing(_: Record) -> None: ...


class _Part:
    """Collects the records of one part that the token may see."""

    def __init__(self, bearer: Bearer) -> None:
        self._bearer = bearer
        self._reader_sets: dict[str, tuple[str, str]] = {}
        self._bytes = 0
        self.before = 0
        self.found: list[RecordSent] = []
        self.must_learn = not bearer.reads_every_reader_set

    def learn(self, record: Record) -> None:
        """Note which audience and boundary each turn has."""
        if record.type == "input_accepted":
            turn, reader_set = reader_set_from_input(record.body)
            self._reader_sets[turn] = reader_set

    def take(self, record: Record) -> None:
        if record.seq >= self.before:
            raise _Enough
        frame = frame_from_record(record)
        reader_set = self._reader_sets.get(frame.turn or "")
        if (
            not self.must_learn
            or frame.is_open
            or (reader_set is not None and self._bearer.reads(*reader_set))
        ):
            self.found.append(record_sent(record))
            self._bytes += len(record.body)
        while self._bytes > _PART_BYTES_MAX and len(self.found) > 1:
            self._bytes -= len(self.found.pop(0).body)


def _seq(given: str | None) -> int | None:
    if given is None:
        return None
    if not _NUMBER.match(given):
        raise Refused(
            "before is the seq of a record",
            code="malformed",
            hint="take the seq of the first record that you have",
        )
    return int(given)


class _Verifying(LiveStream):
    """
    Reads the journal part by part. Each load verifies the chain from the disk; a record that does
    not verify ends it with a verdict.
    """

    def __init__(self, bearer: Bearer, journal: Journal, count: int) -> None:
        super().__init__(bearer)
        self._journal = journal
        self._count = count
        self._seq = 0

    @property
    def place(self) -> dict[str, int | str]:
        return {"seq": self._seq}

    async def read(self) -> bytes:
        self.wake.clear()
        checked: list[dict[str, object]] = []

        def take(record: Record) -> None:
            checked.append(
                {"seq": record.seq, "type": record.type, "at": record.at, "mac": record.mac.hex()}
            )
            if len(checked) >= _CHECKED_AT_ONCE:
                raise _Enough

        try:
            with suppress(_Enough):
                await self._journal.load(take, after=self._seq)
        except HoldfastError as exc:
            return self._verdict(holds=False, detail=exc.message)
        if not checked:
            mark = self._journal.sealed
            return self._verdict(holds=mark is None, detail=mark.detail if mark else "")
        self._seq = int(str(checked[-1]["seq"]))
        self.wake.set()
        content = {"records": checked, "of": max(self._count, self._seq)}
        return frame_from_event("checked", content).data

    def _verdict(self, *, holds: bool, detail: str) -> bytes:
        self.end("done")
        content = {"holds": holds, "records": self._seq, "detail": detail}
        return frame_from_event("verdict", content).data
