"""
Totals over all exported spans, as cumulative histograms. They are stored with the exporter's
places, so a restart neither loses nor doubles a value.

A label never carries a name that a client or a server chose: no session, no person, no tool.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from holdfast.telemetry.span import Span

_SERIES_MAX = 1_000  # labels are few by design; a fault must not grow the totals without end
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LONG_SECONDS = (1.0, 10.0, 60.0, 300.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
_TOKENS = (16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0)


class Metric(NamedTuple):
    """One histogram that collectors know by name."""

    name: str
    unit: str
    about: str
    bounds: tuple[float, ...]


MODEL_SECONDS = Metric(
    "gen_ai.client.operation.duration", "s", "Time that a model call took.", _SECONDS
)
TOKENS = Metric("gen_ai.client.token.usage", "{token}", "Tokens of a model call.", _TOKENS)
TOOL_SECONDS = Metric("gen_ai.execute_tool.duration", "s", "Time that a tool ran.", _SECONDS)
DRIVE_SECONDS = Metric(
    "holdfast.drive.duration", "s", "Time from a turn's start to its pause or end.", _SECONDS
)
WAIT_SECONDS = Metric(
    "holdfast.approval.wait", "s", "Time that a prompt stood open.", _LONG_SECONDS
)
JOB_SECONDS = Metric("holdfast.job.duration", "s", "Time that a job ran.", _LONG_SECONDS)
DELIVERY_SECONDS = Metric(
    "holdfast.delivery.duration", "s", "Time until a reply or prompt was delivered.", _SECONDS
)
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        MODEL_SECONDS,
        TOKENS,
        TOOL_SECONDS,
        DRIVE_SECONDS,
        WAIT_SECONDS,
        JOB_SECONDS,
        DELIVERY_SECONDS,
    )
}


class Series(msgspec.Struct, kw_only=True):
    """One metric with one set of labels."""

    metric: str
    labels: dict[str, str]
    count: int = 0
    sum: float = 0.0
    buckets: list[int] = []


class Totals(msgspec.Struct, kw_only=True):
    since: int  # Unix milliseconds at which counting began
    series: dict[str, Series] = {}

    def add(self, spans: Iterable[Span]) -> None:
        for span in spans:
            for metric, labels, value in _values(span):
                self._add(metric, labels, value)

    def _add(self, metric: Metric, labels: dict[str, str], value: float) -> None:
        key = " ".join((metric.name, *(f"{name}={labels[name]}" for name in sorted(labels))))
        series = self.series.get(key)
        if series is None:
            if len(self.series) >= _SERIES_MAX:
                return
            series = self.series[key] = Series(
                metric=metric.name, labels=labels, buckets=[0] * (len(metric.bounds) + 1)
            )
        series.count += 1
        series.sum += value
        series.buckets[bisect_left(metric.bounds, value)] += 1


def _values(span: Span) -> Iterable[tuple[Metric, dict[str, str], float]]:
    seconds = (span.ended_at - span.started_at) / 1000
    known = span.attributes

    def labels(**names: str) -> dict[str, str]:
        return {label: str(known[key]) for label, key in names.items() if key in known}

    match span.name.partition(" ")[0]:
        case "chat":
            of = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": str(known["gen_ai.request.model"]),
            }
            failed = {"error.type": span.error_type} if span.error_type else {}
            yield MODEL_SECONDS, of | failed, seconds
            for kind in ("input", "output"):
                tokens = known[f"gen_ai.usage.{kind}_tokens"]
                yield TOKENS, of | {"gen_ai.token.type": kind}, float(str(tokens))
        case "execute_tool":
            yield TOOL_SECONDS, labels(outcome="holdfast.call.outcome"), seconds
        case "invoke_agent":
            yield (
                DRIVE_SECONDS,
                labels(outcome="holdfast.turn.outcome", kind="holdfast.turn.kind"),
                seconds,
            )
        case "close_approval":
            waited = float(str(known["holdfast.approval.wait_seconds"]))
            yield (
                WAIT_SECONDS,
                labels(
                    option="holdfast.approval.option",
                    closed_as="holdfast.approval.closed_as",
                    way="holdfast.approval.way",
                ),
                waited,
            )
        case "run_job":
            yield JOB_SECONDS, labels(outcome="holdfast.job.outcome"), seconds
        case "deliver":
            yield (
                DELIVERY_SECONDS,
                labels(kind="holdfast.delivery.kind", outcome="holdfast.delivery.outcome"),
                seconds,
            )
        case _:
            return
