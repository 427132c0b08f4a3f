"""A call with a known risk is never approved by a button."""

import pytest

from tests.acceptance.channels.conftest import Stage
from tests.acceptance.gateway.conftest import until

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("stage", ["telegram"], indirect=True)
def test_a_risky_call_says_why_and_is_denied_or_answered_elsewhere(stage: Stage) -> None:
    """The page and the terminal ask for the tool's name; a press asks for nothing (P1)."""
    fake = stage.start().fake
    fake.say(stage.alice, "run: rm -rf precious && touch ran", place=stage.team)
    message = fake.message(stage.bob, "Approval needed")
    assert message.labels == ["Deny"]
    assert "alice asked; the agent assistant wrote this call" in message.text
    assert "name is typed" in message.text
    [asked] = stage.until_records("approval_requested", 1)
    assert asked["risks"][0]["text"] in message.text
    stage.until_records("delivery_confirmed", 2)
    approve = [each["option"] for each in asked["options"]].index("approve_once")
    payload = f"{asked['approval']}:{approve}:{asked['digest'][:16]}"
    fake.press(stage.bob, message, "", payload=payload)
    assert fake.whispered(stage.bob).startswith("A call with a known risk is not approved")
    fake.press(stage.bob, message, "Deny")
    stage.until_records("turn_ended", 1)
    [answer] = stage.bodies("approval_answered")
    assert (answer["by"], answer["option"]) == ("bob", "deny")
    until(lambda: "Denied by bob" in message.text, "the update")
    assert not stage.workspace("ran").exists()
