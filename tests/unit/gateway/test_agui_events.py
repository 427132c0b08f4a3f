"""From records and pieces to the events of a run: whatever is lost or comes twice, it is told once."""

import msgspec
import pytest
from tests.acceptance.gateway.agui.plain_client import check_rules

from holdfast.gateway.agui.protocol import RunEvent, RunInput
from holdfast.gateway.agui.routes import session_of_thread
from holdfast.gateway.agui.run_events import RunEvents
from holdfast.gateway.streams.frames import PieceSent, RecordSent
from holdfast.ids import CallId, InputId, InstanceId, TurnId
from holdfast.session.codec import encode
from holdfast.session.events import (
    CallFinished,
    CallMade,
    InputAccepted,
    InputDropped,
    ModelAnswerDropped,
    ModelAnswered,
    ModelCallFailed,
    ModelCallStarted,
    SessionEvent,
    TurnEnded,
    TurnStarted,
)

T1, T2 = TurnId("t1"), TurnId("t2")
RUN = RunInput(
    thread_id="th",
    run_id="r",
    messages=(
        {"id": "m1", "role": "user", "content": "hello"},
        {"id": "instance.t1.1", "role": "assistant", "content": "half of a st"},
        {"id": "instance.t10.1", "role": "assistant", "content": "of another turn"},
    ),
)


def run(turn: TurnId = T1, *, restates: bool = False) -> RunEvents:
    return RunEvents(RUN, instance=InstanceId("instance-1"), turn=turn, restates=restates)


def record(event: SessionEvent, seq: int = 1) -> RecordSent:
    kind, version, body = encode(event)
    return RecordSent(
        seq=seq,
        at=0,
        epoch=1,
        writer="w",
        type=kind,
        version=version,
        body=msgspec.Raw(body),
        mac="",
    )


def accepted(turn: TurnId = T1) -> RecordSent:
    return record(
        InputAccepted(
            input=InputId(f"i{turn[1:]}"),
            turn=turn,
            text="hello",
            context=msgspec.Raw(b"{}"),
            agent="a",
            model="m",
        )
    )


def begun(number: int = 1, turn: TurnId = T1) -> RecordSent:
    return record(ModelCallStarted(turn=turn, number=number, epoch=1, model="m"))


def answered(text: str, number: int = 1, turn: TurnId = T1) -> RecordSent:
    return record(ModelAnswered(turn=turn, number=number, text=text))


def ended(turn: TurnId = T1) -> RecordSent:
    return record(TurnEnded(turn=turn, outcome="completed", reply="x"))


def piece(text: str, offset: int, turn: TurnId = T1) -> PieceSent:
    return PieceSent(turn, "text", text, None, offset)


def told(events: RunEvents, *sent: RecordSent | PieceSent | str) -> list[RunEvent]:
    return [each for one in sent for each in events.hear(one)]


def text(events: list[RunEvent]) -> str:
    found = [msgspec.to_builtins(each) for each in events]
    return "".join(each["delta"] for each in found if each["type"] == "TEXT_MESSAGE_CONTENT")


def kinds(events: list[RunEvent]) -> list[str]:
    return [msgspec.to_builtins(each)["type"] for each in events]


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [("a story ", 0), ("of two", 8), (" halves", 14)],
        [("a story ", 0), (" halves", 14)],  # the middle was lost
        [("of two", 8), (" halves", 14)],  # the beginning was lost
        [("a story ", 0), ("a story of", 0), ("of two", 8)],  # told again from the beginning
    ],
)
def test_a_reply_is_shown_once_for_any_pieces(pieces: list[tuple[str, int]]) -> None:
    events = run()
    heard = told(
        events,
        accepted(),
        begun(),
        *(piece(*each) for each in pieces),
        answered("a story of two halves"),
        ended(),
    )
    assert text(heard) == "a story of two halves"
    assert kinds(heard).count("TEXT_MESSAGE_START") == 1
    assert kinds(heard)[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert "MESSAGES_SNAPSHOT" not in kinds(heard)
    assert events.is_over


@pytest.mark.parametrize(
    "ending",
    [
        answered("other words"),
        record(ModelCallFailed(turn=T1, number=1, kind="server", message="away", final=False)),
        record(ModelAnswerDropped(turn=T1, number=1, reason="cancelled", text="")),
    ],
    ids=["other", "failed", "dropped"],
)
def test_words_that_do_not_count_are_taken_back(ending: RecordSent) -> None:
    """The open message is closed, and a snapshot has the turn as the journal has it."""
    events = run()
    heard = told(events, accepted(), begun(), piece("some words", 0), ending)
    assert kinds(heard)[-2:] == ["TEXT_MESSAGE_END", "MESSAGES_SNAPSHOT"]
    (snapshot,) = [msgspec.to_builtins(each) for each in heard[-1:]]
    shown = {each["id"]: each.get("content") for each in snapshot["messages"]}
    assert shown["m1"] == "hello"
    assert shown["instance.t10.1"] == "of another turn"
    assert shown.get("instance.t1.1") in (None, "other words")


def test_a_repeat_restates_the_past_and_goes_on_with_the_open_reply() -> None:
    events = run(restates=True)
    call = CallMade(call=CallId("c-1"), tool="now", arguments="{}")
    past = told(
        events,
        accepted(),
        begun(),
        record(ModelAnswered(turn=T1, number=1, text="let me see", calls=(call,))),
        record(CallFinished(turn=T1, call=CallId("c-1"), outcome="ok", text="noon")),
        begun(2),
        piece("it is ", 0),
    )
    assert past == []
    heard = [*events.caught_up(), *told(events, piece("noon", 6), answered("it is noon", 2))]
    heard += told(events, ended())
    (snapshot, *rest) = [msgspec.to_builtins(each) for each in heard]
    ours = [each for each in snapshot["messages"] if each["id"].startswith("instance.t1.")]
    assert [each["role"] for each in ours] == ["assistant", "tool"]
    assert ours[0]["content"] == "let me see"
    assert ours[0]["toolCalls"][0]["id"] == ours[1]["toolCallId"] == "c-1"
    assert text(heard) == "it is noon"
    check_rules([{"type": "RUN_STARTED", "threadId": "th", "runId": "r"}, *rest], "th", "r")
    assert events.caught_up() == []


def test_a_message_that_another_turn_takes_along_is_followed_there() -> None:
    events = run(T2)
    heard = told(
        events,
        accepted(T2),
        record(TurnStarted(turn=T1, inputs=(InputId("i1"), InputId("i2")), epoch=1)),
        begun(1, T1),
        answered("to both", 1, T1),
        ended(T1),
    )
    assert text(heard) == "to both"
    assert events.is_over


def test_other_turns_are_not_shown() -> None:
    events = run(T2)
    heard = told(events, begun(1, T1), answered("of the turn before", 1, T1), ended(T1))
    heard += told(events, accepted(T2), begun(1, T1), piece("not ours", 0, T1), ended(T1))
    assert heard == []
    assert not events.is_over


@pytest.mark.parametrize(
    ("sent", "kind", "has"),
    [
        (record(TurnEnded(turn=T1, outcome="cancelled")), "RUN_FINISHED", "cancelled"),
        (record(TurnEnded(turn=T1, outcome="superseded")), "RUN_FINISHED", "cancelled"),
        (record(InputDropped(input=InputId("i1"), reason="x")), "RUN_FINISHED", "cancelled"),
        (
            record(TurnEnded(turn=T1, outcome="failed", code="model", message="no", hint="wait")),
            "RUN_ERROR",
            "no; wait",
        ),
        ("sealed", "RUN_ERROR", "sealed"),
    ],
    ids=["cancelled", "superseded", "dropped", "failed", "sealed"],
)
def test_each_end_of_a_turn_is_the_end_of_the_run(
    sent: RecordSent | str, kind: str, has: str
) -> None:
    """An open message is closed before it, and a stopped turn is never a success."""
    events = run()
    heard = told(events, accepted(), begun(), piece("half", 0), sent)
    assert kinds(heard)[-2:] == ["TEXT_MESSAGE_END", kind]
    assert has in str(msgspec.to_builtins(heard[-1]))
    assert "success" not in str(msgspec.to_builtins(heard[-1]))


def test_a_gap_in_the_stream_is_not_an_end() -> None:
    events = run()
    assert told(events, accepted(), "gap", "standing") == []
    assert not events.is_over


def test_every_thread_has_a_session_of_its_own() -> None:
    threads = ["a", "A", "ops/api", "ops/API", "a/b/c", "ä", " ", "x" * 200, "delegate", "../.."]
    sessions = {session_of_thread(each) for each in threads}
    assert len(sessions) == len(threads)
    assert {each for each in sessions if not each.startswith("agui/")} == {"ops/api"}
