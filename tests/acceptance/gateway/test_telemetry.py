"""
Live export to a collector on loopback, which reads what a real one would: gzip and protobuf. The
server is killed for real.
"""

import gzip
import threading
from collections import Counter
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.acceptance.gateway.conftest import Gateway, until

trace_service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra otel has it"
)
metrics_service = pytest.importorskip(
    "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2", reason="the extra otel has it"
)


class Collector:
    """Takes OTLP over HTTP. It can be away, and it can refuse."""

    def __init__(self) -> None:
        self.status = 200
        self.says = b""
        self.takes_metrics = True
        self.headers: dict[str, str] = {}
        self.spans: list[Any] = []
        self.metrics: dict[str, int] = {}
        self.requests = 0
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["content-length"])))
                collector.headers = {key.lower(): value for key, value in self.headers.items()}
                is_known = collector.takes_metrics or self.path != "/v1/metrics"
                status = collector.status if is_known else 404
                answer = collector.take(self.path, body) if status == 200 else b""
                answer = answer or collector.says
                collector.requests += 1
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path: str, body: bytes) -> bytes:
        if path == "/v1/metrics":
            request = metrics_service.ExportMetricsServiceRequest.FromString(body)
            self.metrics = {
                metric.name: sum(point.count for point in metric.histogram.data_points)
                for metric in request.resource_metrics[0].scope_metrics[0].metrics
            }
            return b""
        assert path == "/v1/traces"
        request = trace_service.ExportTraceServiceRequest.FromString(body)
        self.spans.extend(request.resource_spans[0].scope_spans[0].spans)
        return b""

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    @property
    def drives(self) -> int:
        """Different ones: a kill may make the server send a span again, with equal ids."""
        return len({span.span_id for span in self.spans if span.name.startswith("invoke_agent")})

    @property
    def ids(self) -> Counter[tuple[str, str]]:
        return Counter((span.trace_id.hex(), span.span_id.hex()) for span in self.spans)


@pytest.fixture
def collector() -> Generator[Collector, None, None]:
    made = Collector()
    made.start()
    yield made
    made.stop()


def settings(gateway: Gateway, collector: Collector, more: str = "") -> None:
    gateway.settings(f'[telemetry]\notlp = "http://127.0.0.1:{collector.port}"\n{more}')


def ids_in_journal(gateway: Gateway, session: str) -> set[tuple[str, str]]:
    spans = gateway.run("sessions", "trace", session)
    return {(span["trace_id"], span["span_id"]) for span in spans}


def test_a_kill_between_question_and_answer_loses_no_span(
    gateway: Gateway, collector: Collector
) -> None:
    settings(gateway, collector)
    alice = gateway.start().client(gateway.token("alice"))
    gateway.send(alice, "ops/api", "run: echo private-words")
    prompt = gateway.waiting(alice)
    until(lambda: "ask_approval shell" in collector.names, "the question at the collector")
    gateway.kill()
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    assert gateway.answer(alice, prompt, "approve_once").is_success
    until(lambda: collector.drives == 2, "both drives")
    assert set(collector.ids) == ids_in_journal(gateway, "ops/api")
    tool = next(span for span in collector.spans if span.name == "execute_tool shell")
    asked = next(span for span in collector.spans if span.name == "ask_approval shell")
    assert [link.span_id for link in tool.links] == [asked.span_id]
    sent = b"".join(span.SerializeToString() for span in collector.spans)
    assert b"private-words" not in sent
    assert b"alice" not in sent
    until(lambda: collector.metrics.get("holdfast.approval.wait") == 1, "the wait in the totals")
    assert collector.metrics["holdfast.drive.duration"] == 2


def test_a_collector_that_was_away_gets_everything_later_and_only_once(
    gateway: Gateway, collector: Collector
) -> None:
    settings(gateway, collector)
    collector.stop()
    alice = gateway.start().client(gateway.token("alice"))
    for number in range(3):
        assert gateway.send(alice, f"ops/s{number}", "what time is it?").is_success
    until(lambda: "no spans were exported" in gateway.log.read_text(), "a word about it in the log")
    collector.start()
    until(lambda: collector.drives == 3, "the three turns")
    gateway.stop()
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    gateway.send(alice, "ops/s0", "what time is it?")
    until(lambda: collector.drives == 4, "the fourth turn")
    assert set(collector.ids.values()) == {1}
    until(lambda: collector.metrics.get("holdfast.drive.duration") == 4, "the totals of all four")


def test_spans_that_a_collector_refuses_do_not_stop_the_others(
    gateway: Gateway, collector: Collector
) -> None:
    settings(gateway, collector)
    collector.status = 400
    alice = gateway.start().client(gateway.token("alice"))
    gateway.send(alice, "ops/first", "what time is it?")
    until(lambda: "goes on behind them" in gateway.log.read_text(), "a word about it in the log")
    collector.status = 200
    gateway.send(alice, "ops/second", "what time is it?")
    until(lambda: "invoke_agent assistant" in collector.names, "the second turn")
    sent = b"".join(span.SerializeToString() for span in collector.spans)
    assert b"ops/first" not in sent
    gateway.run("sessions", "trace", "ops/first", "--otlp", f"http://127.0.0.1:{collector.port}")
    assert ids_in_journal(gateway, "ops/first") <= set(collector.ids)


def test_an_answer_that_cannot_be_read_does_not_stop_the_export(
    gateway: Gateway, collector: Collector
) -> None:
    settings(gateway, collector)
    collector.says = b"\x1f\x8b no message at all"
    alice = gateway.start().client(gateway.token("alice"))
    gateway.send(alice, "ops/first", "what time is it?")
    until(lambda: "cannot be read" in gateway.log.read_text(), "a word about it in the log")
    collector.says = b""
    gateway.send(alice, "ops/second", "what time is it?")
    until(lambda: collector.drives == 2, "the second turn")


def test_content_leaves_only_where_settings_say_so(gateway: Gateway, collector: Collector) -> None:
    settings(gateway, collector, "content = true\n")
    alice = gateway.start().client(gateway.token("alice"))
    gateway.send(alice, "ops/api", "remember that the bridge is green")
    until(lambda: "invoke_agent assistant" in collector.names, "the turn")
    sent = b"".join(span.SerializeToString() for span in collector.spans)
    assert b"the bridge is green" in sent


def test_the_key_of_a_collector_is_sent_as_settings_say(
    gateway: Gateway, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLECTOR_KEY", "c0llector-key-for-tests")
    settings(gateway, collector, 'key_env = "COLLECTOR_KEY"\n')
    alice = gateway.start().client(gateway.token("alice"))
    gateway.send(alice, "ops/api", "what time is it?")
    until(lambda: collector.requests, "a request")
    assert collector.headers["authorization"] == "Bearer c0llector-key-for-tests"


def test_a_deleted_session_is_forgotten(gateway: Gateway, collector: Collector) -> None:
    settings(gateway, collector)
    alice = gateway.start().client(gateway.token("alice"))
    gateway.send(alice, "ops/old", "what time is it?")
    until(lambda: "invoke_agent assistant" in collector.names, "the turn")
    gateway.run("sessions", "delete", "ops/old", "--yes")
    gateway.send(alice, "ops/old", "what time is it?")
    until(lambda: collector.drives == 2, "the new session's turn")
    assert set(collector.ids.values()) == {1}


def test_an_operator_sees_how_long_prompts_wait_and_how_far_the_export_is(
    gateway: Gateway, collector: Collector
) -> None:
    settings(gateway, collector)
    alice = gateway.start().client(gateway.token("alice"))
    assert "holdfast_prompt_oldest_seconds 0\n" in alice.get("/metrics").text
    gateway.send(alice, "ops/api", "run: true")
    gateway.waiting(alice)

    def oldest() -> bool:
        text: str = alice.get("/metrics").text
        assert "holdfast_sessions_sealed 0\n" in text
        return "holdfast_prompt_oldest_seconds 0\n" not in text

    until(oldest, "the age of the prompt")
    until(
        lambda: "holdfast_telemetry_sessions_behind 0\n" in alice.get("/metrics").text,
        "an export that is done",
    )
    assert "ask_approval shell" in collector.names


def test_a_collector_that_takes_no_metrics_gets_every_span_once(
    gateway: Gateway, collector: Collector
) -> None:
    settings(gateway, collector)
    collector.takes_metrics = False
    alice = gateway.start().client(gateway.token("alice"))
    for number in range(2):
        gateway.send(alice, "ops/api", "what time is it?")
        until(lambda number=number: collector.drives == number + 1, "the turn's spans")
        until(lambda: "no metrics were exported" in gateway.log.read_text(), "a word in the log")
    assert set(collector.ids.values()) == {1}
    assert "no spans were exported" not in gateway.log.read_text()


def test_a_book_that_cannot_be_used_does_not_end_the_server(
    gateway: Gateway, collector: Collector
) -> None:
    settings(gateway, collector)
    book = gateway.home / "telemetry.db"
    book.mkdir()
    alice = gateway.start().client(gateway.token("alice"))
    until(lambda: "no spans were exported" in gateway.log.read_text(), "a word in the log")
    assert gateway.send(alice, "ops/api", "what time is it?").is_success
    assert collector.spans == []
    book.rmdir()
    until(lambda: collector.drives == 1, "the export to go on by itself")
