"""Spans from records: the same whenever and wherever they are computed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.ids import ApprovalId, CallId, InputId, InstanceId, JobId, SessionId, TurnId
from holdfast.session import events
from holdfast.session.codec import decode
from holdfast.telemetry.span import Span
from holdfast.telemetry.totals import Totals
from holdfast.telemetry.trace import trace
from holdfast.telemetry.trace_state import TraceState

GOLDEN = sorted((Path(__file__).parents[2] / "proof/golden").glob("session_v*.jsonl"))
TURN, CALL, PROMPT = TurnId("t1"), CallId("t1.1.1"), ApprovalId("a-1")
BORN = events.SessionBorn(
    session=SessionId("ops/api"), instance=InstanceId("i1"), origin="created", by="tests"
)
ACCEPTED = events.InputAccepted(
    input=InputId("m1"),
    turn=TURN,
    text="restart the API",
    context=msgspec.Raw(b"{}"),
    agent="ops",
    model="script:/home/me/talk.py",
)
STARTED = events.TurnStarted(turn=TURN, inputs=(InputId("m1"),), epoch=1)
CALLED = events.ModelCallStarted(turn=TURN, number=1, epoch=1, model="anthropic:claude")
ANSWERED = events.ModelAnswered(
    turn=TURN,
    number=1,
    text="I restart it.",
    calls=(events.CallMade(call=CALL, tool="shell", arguments='{"command": "reboot"}'),),
)
ASKED = events.ApprovalRequested(
    approval=PROMPT, turn=TURN, call=CALL, tool="shell", definition="d", arguments="{}",
    binding="b", display="reboot", digest="x", options=(), may_answer=("alice",), expires_at=9,
)  # fmt: skip
PARKED = events.TurnParked(turn=TURN)
SAID_YES = events.ApprovalAnswered(
    approval=PROMPT, turn=TURN, call=CALL, option="approve_once", by="alice", answer_id="1",
    digest="x", way="page",
)  # fmt: skip
RESUMED = events.TurnResumed(turn=TURN, epoch=2, after="pause")
RUNS = events.ToolStarted(
    turn=TURN, call=CALL, tool="shell", arguments="{}", digest="x", contract="once",
    allowed_by="a-1", epoch=2,
)  # fmt: skip
RAN = events.CallFinished(turn=TURN, call=CALL, outcome="ok", text="done")
ENDED = events.TurnEnded(turn=TURN, outcome="completed", reply="It is up.")
STORY = (
    BORN, ACCEPTED, STARTED, CALLED, ANSWERED, ASKED, PARKED, SAID_YES, RESUMED, RUNS, RAN, ENDED,
)  # fmt: skip


def spans_of(story: Sequence[events.Event], *, with_content: bool = False) -> list[Span]:
    state, found = TraceState(), list[Span]()
    for at, event in enumerate(story):
        state, spans = trace(state, event, at=at * 1000, with_content=with_content)
        found.extend(spans)
    return found


def named(spans: Sequence[Span]) -> dict[str, Span]:
    return {span.name: span for span in spans}


def test_a_wait_is_a_link_between_two_traces() -> None:
    spans = spans_of(STORY)
    assert [span.name for span in spans] == [
        "chat anthropic:claude",
        "ask_approval shell",
        "invoke_agent ops",
        "close_approval shell",
        "execute_tool shell",
        "invoke_agent ops",
    ]
    chat, asked, first, closed, tool, second = spans
    assert chat.trace_id == asked.trace_id == first.trace_id != second.trace_id == tool.trace_id
    assert [(link.trace_id, link.span_id) for link in second.links] == [
        (first.trace_id, first.span_id)
    ]
    assert [link.span_id for link in closed.links] == [asked.span_id]
    assert [link.span_id for link in tool.links] == [asked.span_id]
    assert closed.trace_id not in {first.trace_id, second.trace_id}
    assert closed.attributes["holdfast.approval.wait_seconds"] == 2.0
    assert (first.started_at, first.ended_at) == (2000, 6000)
    assert (second.started_at, second.ended_at) == (8000, 11000)
    assert tool.parent_id == second.span_id
    assert chat.attributes["gen_ai.provider.name"] == "anthropic"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_state_that_was_stored_after_every_record_gives_the_same_spans(path: Path) -> None:
    state, stored = TraceState(), TraceState()
    spans, again = list[Span](), list[Span]()
    for line in path.read_text().splitlines():
        record = json.loads(line)
        event = decode(record["type"], record["version"], record["body"].encode())
        state, found = trace(state, event, at=record["at"])
        spans.extend(found)
        read_back = msgspec.json.decode(msgspec.json.encode(stored), type=TraceState)
        stored, found = trace(read_back, event, at=record["at"])
        again.extend(found)
    assert spans == again
    ids = [(span.trace_id, span.span_id) for span in spans]
    assert ids
    assert len(set(ids)) == len(ids)
    inside = {span.span_id for span in spans}
    ended = {span.parent_id for span in spans if span.parent_id} - inside
    open_drives = {turn for turn, each in state.turns.items() if each.drive_at is not None}
    assert not ended or open_drives, "every parent was exported, or its drive is still open"


def test_a_drive_that_died_ends_with_its_last_record() -> None:
    resumed = events.TurnResumed(turn=TURN, epoch=2, after="crash")
    story = (BORN, ACCEPTED, STARTED, CALLED, resumed, CALLED)
    (lost,) = spans_of(story)
    assert (lost.started_at, lost.ended_at) == (2000, 3000)
    assert lost.error_type == "lost"


def test_a_denied_call_is_not_an_error_and_never_looks_like_a_run() -> None:
    denied = events.CallFinished(turn=TURN, call=CALL, outcome="denied", text="no")
    no = msgspec.structs.replace(SAID_YES, option="deny")
    spans = named(spans_of((*STORY[:7], no, RESUMED, denied, ENDED)))
    assert spans["refuse_tool shell"].error_type is None
    assert spans["close_approval shell"].error_type is None
    assert "execute_tool shell" not in spans


def test_a_call_in_doubt_is_an_error() -> None:
    doubt = events.CallFinished(turn=TURN, call=CALL, outcome="in_doubt", text="?")
    assert named(spans_of((*STORY[:10], doubt)))["execute_tool shell"].error_type == "in_doubt"


def test_a_turn_that_ends_while_it_is_parked_has_a_drive_of_no_length() -> None:
    ended = events.TurnEnded(turn=TURN, outcome="superseded")
    *_, last = spans_of((*STORY[:7], ended))
    assert last.name == "invoke_agent ops"
    assert last.started_at == last.ended_at == 7000
    assert [link.relation for link in last.links] == ["resumes"]


def test_records_of_an_earlier_instance_are_not_exported_again() -> None:
    created = msgspec.structs.replace(BORN, instance=InstanceId("i2"), carried=len(STORY) - 1)
    assert spans_of((created, *STORY[1:])) == []
    assert [span.name for span in spans_of((created, *STORY[1:], ACCEPTED, STARTED, ENDED))] == [
        "invoke_agent ops"
    ]


def test_a_job_is_a_trace_of_its_own_that_names_the_call() -> None:
    job = events.JobSubmitted(
        job=JobId("j-1"), turn=TURN, call=CALL, tool="shell", arguments="{}", digest="x",
        contract="once", context=msgspec.Raw(b"{}"), agent="ops", model="demo", epoch=2,
        host="process", process={}, seconds_max=1, bytes_max=1,
    )  # fmt: skip
    done = events.JobEnded(job=JobId("j-1"), turn=TURN, outcome="ok", text="")
    spans = named(spans_of((*STORY[:10], job, RAN, ENDED, done)))
    run, tool = spans["run_job shell"], spans["execute_tool shell"]
    assert run.trace_id != tool.trace_id
    assert [(link.trace_id, link.span_id) for link in run.links] == [(tool.trace_id, tool.span_id)]
    assert (run.started_at, run.ended_at) == (10_000, 13_000)


def test_no_content_and_no_path_leaves_by_default() -> None:
    text = msgspec.json.encode(spans_of(STORY)).decode()
    for private in ("restart the API", "I restart it", "reboot", "It is up", "alice", "/home/me"):
        assert private not in text
    text = msgspec.json.encode(spans_of(STORY, with_content=True)).decode()
    for private in ("restart the API", "I restart it", "It is up"):
        assert private in text
    assert "/home/me" not in text


def test_content_is_bounded() -> None:
    long = msgspec.structs.replace(ACCEPTED, text="x" * 100_000)
    spans = spans_of((BORN, long, STARTED, ENDED), with_content=True)
    assert max(len(str(value)) for value in spans[0].attributes.values()) < 9_000


def test_a_clock_that_was_set_back_makes_no_negative_span() -> None:
    state, _ = trace(TraceState(), BORN, at=9000)
    for event in (ACCEPTED, STARTED):
        state, _ = trace(state, event, at=9000)
    _, (span,) = trace(state, ENDED, at=1000)
    assert span.started_at == span.ended_at == 9000


def test_totals_count_each_span_once_and_name_nobody() -> None:
    totals = Totals(since=0)
    totals.add(spans_of(STORY))
    by_metric: dict[str, int] = {}
    for series in totals.series.values():
        by_metric[series.metric] = by_metric.get(series.metric, 0) + series.count
        assert sum(series.buckets) == series.count
    assert by_metric == {
        "gen_ai.client.operation.duration": 1,
        "gen_ai.client.token.usage": 2,
        "gen_ai.execute_tool.duration": 1,
        "holdfast.approval.wait": 1,
        "holdfast.drive.duration": 2,
    }
    labels: list[Any] = [series.labels for series in totals.series.values()]
    assert "ops/api" not in str(labels)
    assert "shell" not in str(labels)


def test_totals_are_bounded() -> None:
    totals = Totals(since=0)
    for number in range(1_500):
        called = msgspec.structs.replace(CALLED, model=f"m{number}")
        totals.add(spans_of((BORN, ACCEPTED, STARTED, called, ANSWERED)))
    assert len(totals.series) <= 1_000
