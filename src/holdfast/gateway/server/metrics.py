"""Metrics for Prometheus, as text. A label never carries a name that a client chose."""

from collections import Counter
from collections.abc import Mapping

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
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

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        lines = [
            "# HELP holdfast_http_requests_total Requests answered.",
            "# TYPE holdfast_http_requests_total counter",
        ]
        lines += [
            f'holdfast_http_requests_total{{method="{method}",route="{route}",status="{status}"}} '
            f"{count}"
            for (method, route, status), count in sorted(self.requests.items())
        ]
        lines += [
            "# HELP holdfast_http_seconds Time to answer a request, streams left out.",
            "# TYPE holdfast_http_seconds histogram",
        ]
        below = 0
        for bound, count in zip(_BUCKETS, self._seconds, strict=False):
            below += count
            lines.append(f'holdfast_http_seconds_bucket{{le="{bound}"}} {below}')
        total = below + self._seconds[-1]
        lines += [
            f'holdfast_http_seconds_bucket{{le="+Inf"}} {total}',
            f"holdfast_http_seconds_sum {self._seconds_sum:.6f}",
        ]
        lines.append(f"holdfast_http_seconds_count {total}")
        lines += [
            (
                "# HELP holdfast_messages_total Messages taken, repeats of one that was taken before "
                "among them."
            ),
            "# TYPE holdfast_messages_total counter",
            f"holdfast_messages_total {self.messages}",
        ]
        lines += [
            (
                "# HELP holdfast_answers_total Answers to prompts, repeats among them, by what came of "
                "them."
            ),
            "# TYPE holdfast_answers_total counter",
        ]
        lines += [
            f'holdfast_answers_total{{result="{result}"}} {count}'
            for result, count in sorted(self.answers.items())
        ]
        for name, (about, value) in gauges.items():
            lines += [
                f"# HELP holdfast_{name} {about}",
                f"# TYPE holdfast_{name} gauge",
                f"holdfast_{name} {value:g}",
            ]
        return "\n".join(lines) + "\n"
