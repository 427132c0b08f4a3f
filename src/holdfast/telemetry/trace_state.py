"""
Everything that a later span needs of earlier records. It is small, and it can be stored, so that an
exporter goes on after a restart without reading a session again.
"""

from collections.abc import Mapping

import msgspec


class SpanPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a span stands: enough to link to it."""

    trace_id: str
    span_id: str


class OpenCall(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A call that a model made and that has no result yet."""

    tool: str
    started_at: int | None = None
    run: int = 1
    trace_id: str = ""  # of the drive that started it
    parent_id: str = ""
    asked: SpanPlace | None = None
    asked_at: int = 0
    arguments: str | None = None


class OpenTurn(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    agent: str
    model: str
    accepted_at: int
    kind: str = "message"
    loop: str = "ours"
    drive: int = 0  # 0: no drive yet
    drive_at: int | None = None  # None: parked, or not begun
    seen_at: int = 0  # of its latest record: the end of a drive that died
    model_number: int | None = None
    model_name: str = ""
    model_at: int = 0
    calls: Mapping[str, OpenCall] = {}
    text: str | None = None


class OpenJob(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    tool: str
    submitted_at: int
    call: SpanPlace


class OpenDelivery(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    turn: str
    kind: str
    queued_at: int


class TraceState(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    session: str = ""
    instance: str = ""
    parent: str | None = None  # the session that a delegate works for
    carried: int = 0  # records of an earlier instance that still follow; they were its spans
    turns: Mapping[str, OpenTurn] = {}
    jobs: Mapping[str, OpenJob] = {}
    deliveries: Mapping[str, OpenDelivery] = {}
