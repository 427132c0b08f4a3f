"""
Metrics for Prometheus, as text. A label never carries a name that a client chose.

Each process counts for itself. Where several workers serve a home, every sample of a process has
the label `worker`. Gauges of the whole home have none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Gauges = Mapping[str, tuple[str, float]]
"""By name: the meaning, and the value."""

_Labels = tuple[tuple[str, str], ...]
_Sample = tuple[_Labels, str]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one process."""

    requests: tuple[tuple[str, str, int, int], ...]  # method, route, status, number
    seconds: tuple[int, ...]  # requests by bucket, the last for all that took longer
    seconds_sum: float
    messages: int
    answers: dict[str, int]
    gauges: dict[str, tuple[str, float]]


class Metrics:
    """Counts the requests of this process."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # method, route, status
        self._seconds = [0] * (len(_BUCKETS) + 1)
        self._seconds_sum = 0.0
        self.messages = 0
        self.answers: Counter[str] = Counter()

    def saw(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests[method, route, status] += 1
        self._seconds_sum += seconds
        self._seconds[
            next((n for n, bound in enumerate(_BUCKETS) if seconds <= bound), len(_BUCKETS))
        ] += 1

    def counts(self, gauges: Gauges) -> Counts:
        return Counts(
            requests=tuple((*key, count) for key, count in sorted(self.requests.items())),
            seconds=tuple(self._seconds),
            seconds_sum=self._seconds_sum,
            messages=self.messages,
            answers=dict(sorted(self.answers.items())),
            gauges=dict(gauges),
        )


def metrics_text(counts: Mapping[int | None, Counts], of_home: Gauges) -> str:
    """Return the samples of each process, by its worker's number, and those of the home."""
    workers = [(_worker(number), each) for number, each in counts.items()]
    lines: list[str] = []
    lines += _metric(
        "http_requests_total",
        "counter",
        "Requests answered.",
        (
            ((*worker, ("method", method), ("route", route), ("status", str(status))), str(number))
            for worker, each in workers
            for method, route, status, number in each.requests
        ),
    )
    lines += _histogram(workers)
    lines += _metric(
        "messages_total",
        "counter",
        "Messages taken, repeats of one that was taken before among them.",
        ((worker, str(each.messages)) for worker, each in workers),
    )
    lines += _metric(
        "answers_total",
        "counter",
        "Answers to prompts, repeats among them, by what came of them.",
        (
            ((*worker, ("result", result)), str(number))
            for worker, each in workers
            for result, number in each.answers.items()
        ),
    )
    about = {name: text for _, each in workers for name, (text, _) in each.gauges.items()}
    for name, text in about.items():
        samples = [
            (worker, f"{each.gauges[name][1]:g}") for worker, each in workers if name in each.gauges
        ]
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += _metric(name, kind, text, samples)
    for name, (text, value) in of_home.items():
        lines += _metric(name, "gauge", text, [((), f"{value:g}")])
    return "\n".join(lines) + "\n"


def _worker(number: int | None) -> _Labels:
    return () if number is None else (("worker", str(number)),)


def _histogram(workers: list[tuple[_Labels, Counts]]) -> list[str]:
    name = "http_seconds"
    lines = _metric(name, "histogram", "Time to answer a request, streams left out.", ())
    for worker, each in workers:
        below = 0
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), each.seconds, strict=True):
            below += count
            lines.append(_sample(f"{name}_bucket", (*worker, ("le", bound)), str(below)))
        lines.append(_sample(f"{name}_sum", worker, f"{each.seconds_sum:.6f}"))
        lines.append(_sample(f"{name}_count", worker, str(below)))
    return lines


def _metric(name: str, kind: str, about: str, samples: Iterable[_Sample]) -> list[str]:
    return [
        f"# HELP holdfast_{name} {about}",
        f"# TYPE holdfast_{name} {kind}",
        *(_sample(name, labels, value) for labels, value in samples),
    ]


def _sample(name: str, labels: _Labels, value: str) -> str:
    shown = ",".join(f'{key}="{text}"' for key, text in labels)
    return f"holdfast_{name}{f'{{{shown}}}' if shown else ''} {value}"
