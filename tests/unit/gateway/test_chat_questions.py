"""Which message answers a question of the agent, and which is a message like any other."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.gateway.channels.questions import (
    is_reply,
    open_question,
    option_and_words,
    was_reply,
)
from holdfast.ports.chat.messages import Arrived, QuotedText


def question(name: str = "a-1", *, kind: str = "question", may_answer: str = "alice") -> Any:
    options = [SimpleNamespace(option=each) for each in ("red", "answer", "deny")]
    asked = SimpleNamespace(approval=name, kind=kind, may_answer=(may_answer,), options=options)
    return SimpleNamespace(asked=asked, answer=None)


def state(*prompts: Any, shown: str = "D1:5", to: str = "dm-7", **more: Any) -> Any:
    message = SimpleNamespace(approval="a-1", channel="slack", to=to, message=shown)
    turn = SimpleNamespace(open_approvals=prompts, calls=(), past=())
    return SimpleNamespace(turns={"t1": turn}, shown={"": message}, settled={}, **more)


def message(number: str, **more: Any) -> Arrived:
    given: dict[str, Any] = {"place_kind": "direct", "place": "D1", "thread": "dm-7"}
    return Arrived(
        **{**given, **more},
        identity="7",
        message=number,
        text="green",
        sent_at=0,
        authenticated_by="test",
        is_for_us=True,
    )


def test_only_a_question_that_waits_for_this_person_alone_is_answered_by_a_message() -> None:
    assert open_question(state(question(), question(kind="approval")), "alice") is not None
    assert open_question(state(question()), "bob") is None
    assert open_question(state(question(kind="approval")), "alice") is None
    assert open_question(state(question(), question("a-2")), "alice") is None  # which one?


@pytest.mark.parametrize(
    ("shown", "number", "answers"),
    [
        ("D1:1700000000.000200", "1700000000.000300", True),
        ("D1:1700000000.000200", "1700000000.000100", False),  # it was on its way already
        ("71001:1572570651422621701", "1572570651422621702", True),
        ("42:9", "10", True),  # numbers, and not texts
        ("42:9", "not a number", False),
    ],
)
def test_a_message_answers_only_after_it_could_be_read(
    shown: str, number: str, answers: bool
) -> None:
    assert is_reply(state(shown=shown), question(), "slack", message(number)) is answers


def test_another_conversation_another_chat_and_words_of_others_answer_nothing() -> None:
    assert is_reply(state(), question(), "slack", message("6"))
    assert not is_reply(state(to="dm-8"), question(), "slack", message("6"))
    assert not is_reply(state(), question(), "telegram", message("6"))
    assert not is_reply(state(), question("a-2"), "slack", message("6"))
    quoted = message("6", quotes=(QuotedText("9", "green"),))
    assert not is_reply(state(), question(), "slack", quoted)


def test_the_redelivery_of_an_answer_is_found_while_its_turn_runs_and_later() -> None:
    fresh = state(question())
    assert not was_reply(fresh, "slack:D1:6")
    answered = SimpleNamespace(approval=SimpleNamespace(answer=SimpleNamespace(answer_id="k")))
    running = SimpleNamespace(calls=(SimpleNamespace(approval=None),), past=(answered,))
    assert was_reply(SimpleNamespace(turns={"t1": running}, settled={}), "k")  # type: ignore[arg-type]  # its two fields
    settled = {"a-1": SimpleNamespace(answer_id="k")}
    assert was_reply(SimpleNamespace(turns={}, settled=settled), "k")  # type: ignore[arg-type]  # as above


def test_a_choice_is_taken_by_its_name_and_declining_needs_its_button() -> None:
    assert option_and_words(question(), " red ") == ("red", None)
    assert option_and_words(question(), "green") == ("answer", "green")
    assert option_and_words(question(), "deny") == ("answer", "deny")
