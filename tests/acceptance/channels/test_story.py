"""Two people, a channel and direct messages: the same story on every platform."""

import pytest

from tests.acceptance.channels.conftest import Stage
from tests.acceptance.gateway.conftest import until

pytestmark = pytest.mark.timeout(300)


def test_an_approval_in_a_channel_survives_a_kill_and_is_given_by_the_right_person(
    stage: Stage,
) -> None:
    fake = stage.start().fake
    fake.say(stage.alice, "run: echo once >> ran", place=stage.team)
    in_team = fake.message(stage.team, "Approval needed")
    direct = fake.message(stage.bob, "Approval needed")
    assert "echo once >> ran" in in_team.preformatted
    assert in_team.labels == direct.labels == ["Approve once", "Deny"]
    stage.until_records("delivery_confirmed", 2)

    stage.gateway.kill()
    stage.gateway.start()
    stage.until_up()

    fake.press(stage.alice, in_team, "Approve once")
    assert fake.whispered(stage.alice) == "You may not answer this prompt. It still stands."
    assert not stage.workspace("ran").exists()
    fake.press(stage.mallory, in_team, "Approve once")
    fake.press(stage.bob, direct, "Approve once")
    for message in (in_team, direct):
        fake.wait(lambda each=message: each.edits and not each.buttons, "the prompt's update")
        assert message.text.startswith("Approved by bob, once.")
    until(lambda: stage.workspace("ran").exists(), "the command")
    # The reply is in the thread of the question.
    stage.until_records("turn_ended", 1)
    until(lambda: len(fake.messages) == 3, "the reply")
    assert stage.workspace("ran").read_text() == "once\n"
    [answer] = stage.bodies("approval_answered")
    assert (answer["by"], answer["way"]) == ("bob", "channels")
    [accepted] = stage.bodies("input_accepted")
    assert (accepted["context"]["audience"], accepted["context"]["boundary"]) == (
        "team",
        "team:ops",
    )
    assert [text for who, text in fake.whispers if who == stage.mallory] == []

    # A button of a closed prompt, and the whole past once more: nothing happens twice.
    fake.press(stage.bob, in_team, "", payload=_payload(stage, 0))
    assert "already" in fake.whispered(stage.bob)
    fake.redeliver()
    fake.say(stage.alice, "what time is it?")
    fake.message(stage.alice, "")
    assert len(stage.bodies("input_accepted")) == 2
    assert len(stage.bodies("turn_started")) == 2
    assert len(fake.messages) == 4
    assert stage.workspace("ran").read_text() == "once\n"


@pytest.mark.parametrize("stage", ["slack"], indirect=True)
def test_every_thread_is_answered_where_several_workers_serve(stage: Stage) -> None:
    """One worker holds the connection, so it drives every session, whatever its share would be."""
    fake = stage.start(then="[serve]\nworkers = 2\n").fake
    for number in range(5):
        fake.say(stage.alice, f"what time is it? ({number})", place=stage.team)
    stage.until_records("delivery_confirmed", 5)
    assert len(fake.messages) == 5


def test_a_question_is_answered_by_a_message_once_and_by_nobody_else(stage: Stage) -> None:
    fake = stage.start().fake
    fake.say(stage.alice, "ask me which colour?")
    asked = fake.message(stage.alice, "which colour?")
    assert "Write me your answer in this conversation" in asked.text
    stage.until_records("delivery_confirmed", 1)
    fake.say(stage.bob, "red")  # a conversation of his own
    fake.say(stage.alice, "green")
    stage.until_records("approval_answered", 1)
    until(lambda: len(stage.bodies("turn_ended")) == 2, "both turns")
    stage.gateway.kill()
    stage.gateway.start()
    stage.until_up()
    fake.redeliver()
    fake.say(stage.alice, "what time is it?")
    until(lambda: len(stage.bodies("turn_ended")) == 3, "the next turn")
    [answer] = stage.bodies("approval_answered")
    assert (answer["by"], answer["option"], answer["reason"]) == ("alice", "answer", "green")
    texts = sorted(body["text"] for body in stage.bodies("input_accepted"))
    assert texts == ["ask me which colour?", "red", "what time is it?"]
    fake.wait(lambda: asked.edits and not asked.buttons, "the update")
    assert asked.text.startswith("Answered by alice.")


def _payload(stage: Stage, option: int) -> str:
    [asked] = stage.bodies("approval_requested")
    return f"{asked['approval']}:{option}:{asked['digest'][:16]}"
