"""
Each text appears once, however its pieces and its record come in; what others did is told.
"""

from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.commands.chat.news import News
from holdfast.cli.commands.chat.screen import Screen
from holdfast.ids import ApprovalId, CallId, InputId, ReminderId, SessionId, TurnId
from holdfast.ports.journal_store import Record
from holdfast.runtime.streams.feed import Delta, Gap
from holdfast.session.codec import encode
from holdfast.session.events import (
    AnswerRefused,
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    CallFinished,
    CallMade,
    InputAccepted,
    ModelAnswered,
    ModelCallFailed,
    ModelCallStarted,
    ReminderCancelled,
    ReminderFired,
    ReminderSet,
    SessionEvent,
    ToolStarted,
    TurnCancelled,
    TurnEnded,
)
from holdfast.session.features.reminders.schedule import Every

SESSION, TURN, CALL, APPROVAL = SessionId("ops/api"), TurnId("t1"), CallId("c-1"), ApprovalId("a-1")
STARTED = ModelCallStarted(turn=TURN, number=1, epoch=1, model="demo")


def told(*steps: SessionEvent | Delta | Gap, own: tuple[str, ...] = ()) -> str:
    """Everything on the screen after these."""
    screen = Screen()
    news = News(screen, "alice")
    news.own.extend(own)
    with screen.console.capture() as captured:
        for seq, step in enumerate(steps, 1):
            if isinstance(step, Delta | Gap):
                news.piece(step)
            else:
                kind, version, body = encode(step)
                news.record(Record(seq, 0, 1, "w", kind, version, body, b""))
    return captured.get()


def piece(text: str) -> Delta:
    return Delta(SESSION, TURN, "text", text)


@given(
    st.lists(st.text("abc ", min_size=1, max_size=5), max_size=6),
    st.integers(0, 6),
    st.sampled_from([None, 0, 1, 2]),
)
def test_an_answer_is_said_once_wherever_its_record_falls_among_its_pieces(
    pieces: list[str], before: int, lost: int | None
) -> None:
    """Records are the truth, pieces are hints: early, late, or lost at the end."""
    text = "".join(pieces)
    heard = [piece(each) for each in pieces]
    early, late = heard[:before], heard[before:]
    if lost is not None:
        late = late[lost:] if late[lost:] == [] else late
    answered = ModelAnswered(turn=TURN, number=1, text=text)
    ended = TurnEnded(turn=TURN, outcome="completed", reply=text)
    shown = told(STARTED, *early, answered, ended, *late)
    assert "".join(line.removeprefix("| ") for line in shown.splitlines()) == text


def test_a_transcript_names_who_speaks_and_what_is_asked_and_runs() -> None:
    asked = ApprovalRequested(
        approval=APPROVAL, turn=TURN, call=CALL, tool="shell", definition="d", binding="b",
        arguments='{"command":"make deploy"}', display="", digest="", options=(),
        may_answer=("bob",), expires_at=0,
    )  # fmt: skip
    started = ToolStarted(
        turn=TURN, call=CALL, tool="shell", arguments='{"command":"make deploy"}', digest="",
        contract="once", allowed_by=APPROVAL, epoch=1,
    )  # fmt: skip
    sent = InputAccepted(
        input=InputId("i1"), turn=TURN, text="deploy it", agent="assistant", model="demo",
        context=msgspec.Raw(b'{"requester":"alice"}'),
    )  # fmt: skip
    answered = ModelAnswered(turn=TURN, number=1, text="done")
    screen = Screen()
    news = News(screen, "")
    news.names_agents = True
    with screen.console.capture() as captured:
        for event in (sent, asked, started, answered):
            kind, version, body = encode(event)
            news.record(Record(1, 0, 1, "w", kind, version, body, b""))
    assert captured.get().splitlines() == [
        "alice:",
        "| deploy it",
        "- asks bob about shell: make deploy (a-1)",
        "- runs shell: make deploy",
        "assistant:",
        "| done",
    ]


def test_text_of_a_call_that_failed_does_not_hide_the_next_answer() -> None:
    """A partial text never becomes history, and the answer that came is told whole."""
    failed = ModelCallFailed(turn=TURN, number=1, kind="server", message="gone", final=False)
    again = ModelCallStarted(turn=TURN, number=2, epoch=1, model="demo")
    shown = told(
        STARTED,
        piece("hel"),
        failed,
        again,
        piece("hello"),
        ModelAnswered(turn=TURN, number=2, text="hello"),
    )
    assert shown.splitlines() == [
        "| hel",
        "- The model did not answer: its server failed (gone). It is asked again.",
        "| hello",
    ]


def test_a_wait_for_the_model_says_when_it_ends_and_how_to_stop_it() -> None:
    at = datetime(2026, 5, 1, 12, 30, 8).astimezone()
    failed = ModelCallFailed(
        turn=TURN,
        number=1,
        kind="server",
        message="gone",
        final=False,
        since=1,
        retry_at=round(at.timestamp() * 1000),
    )
    shown = " ".join(told(STARTED, failed).split())
    assert shown.endswith("(gone). The next try is at 12:30:08. Ctrl-C stops the turn.")


def test_an_answer_that_differs_from_its_pieces_is_shown_as_it_was_kept() -> None:
    """The journal's text counts, not the live text."""
    shown = told(STARTED, piece("yes"), Gap(SESSION), ModelAnswered(turn=TURN, number=1, text="no"))
    assert shown.splitlines() == ["| yes", "- the answer as it was kept:", "| no"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            ApprovalAnswered(
                approval=APPROVAL,
                turn=TURN,
                call=CALL,
                option="approve_once",
                by="bob",
                answer_id="r",
                digest="d",
            ),
            "- bob approved it once (a-1).",
        ),
        (
            ApprovalClosed(
                approval=APPROVAL,
                turn=TURN,
                call=CALL,
                closed_as="expired",
                reason="nobody answered in time",
            ),
            "- The prompt a-1 is closed. Nobody answered in time, so it was denied. Nothing \n  ran.",
        ),
        (
            AnswerRefused(
                approval=APPROVAL,
                turn=TURN,
                by="mallory",
                option="approve_once",
                code="wrong_approver",
            ),
            "- mallory tried to answer a-1 and may not; it still stands",
        ),
        (
            TurnEnded(turn=TURN, outcome="failed", code="crash_loop", message="three in a row"),
            "- the turn failed (crash_loop: three in a row)",
        ),
        (
            TurnEnded(turn=TURN, outcome="superseded"),
            "- Not run: another message was sent instead.",
        ),
    ],
)
def test_the_chat_reports_each_action_of_others_in_one_line(event: SessionEvent, line: str) -> None:
    """P5: whoever saw a prompt is told what became of it."""
    assert told(event) == line + "\n"


def test_a_stopped_turn_is_said_once_and_a_call_that_was_stopped_alone_too() -> None:
    """A delegate can be stopped without the turn that waits for it."""
    made = CallMade(call=CALL, tool="shell", arguments="{}")
    asked = ModelAnswered(turn=TURN, number=1, text="", calls=(made,))
    ended = CallFinished(turn=TURN, call=CALL, outcome="cancelled", text="Not run: stopped by bob.")
    assert told(asked, ended).endswith("- shell: not run: stopped by bob.\n")
    assert told(TurnCancelled(turn=TURN, by="bob"), asked, ended).count("topped by bob") == 1


def test_the_chat_does_not_repeat_a_message_of_its_own_terminal() -> None:
    """It stands there already; the same words from elsewhere are told."""
    sent = InputAccepted(
        input=InputId("i1"),
        turn=TURN,
        text="hi",
        context=msgspec.Raw(b'{"requester":"alice"}'),
        agent="a",
        model="demo",
    )
    assert told(sent, own=("hi",)) == ""
    assert told(sent, sent, own=("hi",)) == "alice:\n| hi\n"


def test_the_chat_reports_each_change_of_a_reminder() -> None:
    name = ReminderId("r-1")
    made = ReminderSet(
        reminder=name,
        text="look",
        schedule=Every(3600, 0),
        context=msgspec.Raw(b"{}"),
        by="bob",
        agent="ops",
        model="demo",
        next_at=1,
    )
    fired = ReminderFired(reminder=name, turn=TURN, scheduled_at=1, fired_at=2, next_at=3)
    shown = told(
        made, fired, ReminderCancelled(reminder=name, by="holdfast", reason="never fired: why")
    )
    assert "bob set a reminder, every 1h: look (r-1)" in shown
    assert "that was the reminder r-1" in shown
    assert "the reminder r-1 is cancelled by holdfast; never fired: why" in shown


def test_a_result_that_says_its_own_outcome_says_it_once() -> None:
    text = "In doubt: it was stopped while it ran. Check before trying again."
    answered = ModelAnswered(
        turn=TURN, number=1, text="", calls=(CallMade(call=CALL, tool="shell", arguments="{}"),)
    )
    ended = CallFinished(turn=TURN, call=CALL, outcome="in_doubt", text=text)
    assert " ".join(told(STARTED, answered, ended).split()) == (
        "- shell: in doubt: it was stopped while it ran. Check before trying again."
    )


def test_a_running_tool_is_shown_until_it_ends_also_between_pieces_of_its_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the time and the key that stops it, like a model that thinks."""
    screen = Screen()
    news = News(screen, "alice")

    def after(seq: int, step: SessionEvent | Delta) -> str:
        if isinstance(step, Delta):
            news.piece(step)
        else:
            kind, version, body = encode(step)
            news.record(Record(seq, 0, 1, "w", kind, version, body, b""))
        capsys.readouterr()
        screen.tick()
        return capsys.readouterr().out

    started = ToolStarted(
        turn=TURN, call=CALL, tool="shell", arguments="{}", digest="d", contract="once",
        allowed_by="policy", epoch=1,
    )  # fmt: skip
    running = "running shell, 0 s. Ctrl-C stops it."
    assert running in after(1, started)
    assert running in after(2, Delta(SESSION, TURN, "output", "half\n", CALL))
    ended = CallFinished(turn=TURN, call=CALL, outcome="ok", text="half")
    assert after(2, ended) == ""


def test_the_end_of_one_tool_does_not_hide_that_another_one_runs_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen()
    news = News(screen, "alice")

    def line_after(seq: int, event: SessionEvent) -> str:
        kind, version, body = encode(event)
        news.record(Record(seq, 0, 1, "w", kind, version, body, b""))
        capsys.readouterr()
        screen.tick()
        return capsys.readouterr().out

    def started(call: str, tool: str) -> ToolStarted:
        return ToolStarted(
            turn=TURN, call=CallId(call), tool=tool, arguments="{}", digest="d", contract="once",
            allowed_by="policy", epoch=1,
        )  # fmt: skip

    def ended(call: str) -> CallFinished:
        return CallFinished(turn=TURN, call=CallId(call), outcome="ok", text="")

    line_after(1, started("c-1", "shell"))
    line_after(2, started("c-2", "look"))
    assert "running shell, 0 s." in line_after(3, ended("c-2"))
    assert "running shell" in line_after(4, TurnEnded(turn=TurnId("t0"), outcome="cancelled"))
    assert line_after(5, TurnEnded(turn=TURN, outcome="cancelled")) == ""
