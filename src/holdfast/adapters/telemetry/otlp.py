"""
A collector that speaks OTLP over HTTP, with protobuf bodies.

One POST per batch. Nothing is sent again here: the exporter decides that, and it reads the batch
from the journal again. A redirect is not followed.
"""

import asyncio
import gzip
import http.client
import ssl
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.errors import Unusable, install_hint
from holdfast.ports.telemetry import NotCollected
from holdfast.telemetry.span import AttributeValue, Span
from holdfast.telemetry.totals import METRICS, Series, Totals
from holdfast.threads import ThreadPool

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

TIMEOUT_SECONDS = 10.0
_POSTS = ThreadPool(2, "holdfast-otlp")
_OK, _REDIRECT, _SERVER = 200, 300, 500
_MAY_PASS = {401, 403, 404, 408, 425, 429}  # a person mends the first three at the collector
_BODY_BYTES_MAX = 65_536  # of an answer; it is a few bytes
_NANOSECONDS_PER_MS = 1_000_000


class OtlpCollector:
    def __init__(
        self,
        address: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        require_otlp()
        self._parts = urlsplit(address)
        self.headers = dict(headers or {})
        self._timeout_seconds = timeout_seconds

    async def send_spans(self, spans: Sequence[Span]) -> None:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
            ExportTraceServiceResponse,
        )

        request = ExportTraceServiceRequest()
        group = request.resource_spans.add(resource=_resource())
        scope = group.scope_spans.add()
        scope.scope.name, scope.scope.version = "holdfast", version("holdfast")
        for span in spans:
            _fill_span(scope.spans.add(), span)
        answer = await self._post("/v1/traces", request.SerializeToString())
        try:
            taken = ExportTraceServiceResponse.FromString(answer).partial_success
        except DecodeError as exc:
            raise NotCollected(
                f"{self._parts.netloc} answered for {len(spans)} spans, and its answer cannot be "
                f"read: {exc}",
                may_pass=False,
            ) from exc
        if taken.rejected_spans:
            raise NotCollected(
                f"{self._parts.netloc} refused {taken.rejected_spans} of {len(spans)} spans: "
                f"{taken.error_message or 'it gave no reason'}",
                may_pass=False,
            )

    async def send_totals(self, totals: Totals, *, at: int) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest,
        )

        if not totals.series:
            return
        request = ExportMetricsServiceRequest()
        group = request.resource_metrics.add(resource=_resource())
        scope = group.scope_metrics.add()
        scope.scope.name, scope.scope.version = "holdfast", version("holdfast")
        by_name: dict[str, list[Series]] = {}
        for series in totals.series.values():
            by_name.setdefault(series.metric, []).append(series)
        for name, several in by_name.items():
            known = METRICS.get(name)
            if known is None:  # of an older version of Holdfast
                continue
            metric = scope.metrics.add(name=name, unit=known.unit, description=known.about)
            metric.histogram.aggregation_temporality = 2  # cumulative
            for series in several:
                metric.histogram.data_points.add(
                    attributes=_attributes(series.labels),
                    start_time_unix_nano=totals.since * _NANOSECONDS_PER_MS,
                    time_unix_nano=at * _NANOSECONDS_PER_MS,
                    count=series.count,
                    sum=series.sum,
                    bucket_counts=series.buckets,
                    explicit_bounds=known.bounds,
                )
        await self._post("/v1/metrics", request.SerializeToString())

    async def _post(self, path: str, message: bytes) -> bytes:
        body = gzip.compress(message, 1)
        connection = self._connection()
        try:
            return await _POSTS.call(lambda: self._exchange(connection, path, body))
        except asyncio.CancelledError:
            connection.close()
            raise

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout_seconds, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout_seconds)

    def _exchange(self, connection: http.client.HTTPConnection, path: str, body: bytes) -> bytes:
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": f"holdfast/{version('holdfast')}",
            **self.headers,
        }
        try:
            connection.request("POST", self._parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            answer = response.read(_BODY_BYTES_MAX)
        except (OSError, http.client.HTTPException) as exc:
            raise NotCollected(
                f"no answer from {self._parts.netloc}: {str(exc) or type(exc).__name__}",
                may_pass=True,
            ) from exc
        finally:
            connection.close()
        if _OK <= response.status < _REDIRECT:
            return answer
        raise NotCollected(
            f"{self._parts.netloc} answered {response.status} for {path}",
            may_pass=response.status >= _SERVER or response.status in _MAY_PASS,
        )


def require_otlp() -> None:
    """Raise `Unusable` with the next step if the extra is not installed."""
    try:
        import opentelemetry.proto.trace.v1.trace_pb2  # noqa: F401
    except ModuleNotFoundError as exc:
        raise Unusable(
            f"sending spans needs {exc.name}, which is not installed",
            code="missing_part",
            hint=install_hint("otel"),
        ) from exc


def _resource() -> "Resource":
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    return Resource(
        attributes=_attributes({"service.name": "holdfast", "service.version": version("holdfast")})
    )


def _fill_span(target: "WireSpan", span: Span) -> None:
    from opentelemetry.proto.trace.v1 import trace_pb2

    target.trace_id = bytes.fromhex(span.trace_id)
    target.span_id = bytes.fromhex(span.span_id)
    if span.parent_id is not None:
        target.parent_span_id = bytes.fromhex(span.parent_id)
    target.name = span.name
    target.kind = (
        trace_pb2.Span.SPAN_KIND_CLIENT
        if span.kind == "client"
        else trace_pb2.Span.SPAN_KIND_INTERNAL
    )
    target.start_time_unix_nano = span.started_at * _NANOSECONDS_PER_MS
    target.end_time_unix_nano = span.ended_at * _NANOSECONDS_PER_MS
    target.attributes.extend(_attributes(span.attributes))
    for link in span.links:
        target.links.add(
            trace_id=bytes.fromhex(link.trace_id),
            span_id=bytes.fromhex(link.span_id),
            attributes=_attributes({"holdfast.link": link.relation}),
        )
    if span.error_type is not None:
        target.status.code = trace_pb2.Status.STATUS_CODE_ERROR


def _attributes(values: Mapping[str, AttributeValue]) -> "list[KeyValue]":
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

    def value_of(value: AttributeValue) -> AnyValue:
        match value:
            case bool():
                return AnyValue(bool_value=value)
            case int():
                return AnyValue(int_value=value)
            case float():
                return AnyValue(double_value=value)
            case tuple():
                return AnyValue(array_value=ArrayValue(values=[value_of(each) for each in value]))
            case _:
                return AnyValue(string_value=value)

    return [KeyValue(key=key, value=value_of(value)) for key, value in values.items()]
