"""A stop of the server and of a platform: what was missed is read, and `doctor` says who is away."""

import pytest

from tests.acceptance.channels.conftest import Stage
from tests.acceptance.channels.test_rules import contexts
from tests.acceptance.gateway.conftest import until

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("stage", ["slack", "discord"], indirect=True)
def test_first_messages_that_came_while_the_server_was_down_are_answered(stage: Stage) -> None:
    fake = stage.start().fake
    fake.say(stage.alice, "what time is it?")
    stage.until_records("delivery_confirmed", 1)
    stage.gateway.kill()
    fake.say(stage.bob, "what time is it, just for me?", is_missed=True)
    fake.say(stage.mallory, "what time is it for me?", is_missed=True)
    fake.say(stage.alice, "what time is it for us?", place=stage.team, is_missed=True)
    stage.gateway.start()
    stage.until_records("delivery_confirmed", 3)
    assert contexts(stage) == {
        "what time is it?": ("alice", "personal", "personal:alice"),
        "what time is it, just for me?": ("bob", "personal", "personal:bob"),
        "what time is it for us?": ("alice", "team", "team:ops"),
    }
    assert {each.place for each in fake.messages} == {stage.alice, stage.bob, stage.team}


@pytest.mark.parametrize("stage", ["telegram"], indirect=True)
def test_doctor_names_a_chat_that_the_running_server_cannot_reach(stage: Stage) -> None:
    stage.start()

    def chats() -> list[tuple[str, str]]:
        checks = stage.gateway.run("doctor")["checks"]
        return [(each["state"], each["detail"]) for each in checks if each["check"] == "channels"]

    assert chats() == [("ok", "[channels.telegram]: alice, bob")]
    stage.fake.stop()
    until(lambda: chats()[0][0] == "warning", "the server to miss the chat")
    assert "the server that runs now can't reach it" in chats()[0][1]
