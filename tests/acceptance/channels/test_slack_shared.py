"""A channel that another workspace reads is public, also for messages that are read late."""

import pytest

from holdfast.testing.fakes.slack import FakeSlack
from tests.acceptance.channels.conftest import Stage
from tests.acceptance.channels.test_rules import contexts

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("stage", ["slack"], indirect=True)
def test_a_message_missed_in_a_shared_channel_is_public(stage: Stage) -> None:
    fake = stage.start().fake
    assert isinstance(fake, FakeSlack)
    fake.say(stage.alice, "what time is it?", place=stage.team)
    stage.until_records("turn_ended", 1)
    stage.gateway.stop()
    fake.say(stage.alice, "what time is it now?", place=stage.team, is_missed=True)
    stage.gateway.start()
    stage.until_records("turn_ended", 2)
    stage.gateway.stop()
    fake.shared.add(stage.team)
    fake.say(stage.alice, "what time is it later?", place=stage.team, is_missed=True)
    stage.gateway.start()
    stage.until_records("turn_ended", 3)
    assert {text: audience for text, (_, audience, _) in contexts(stage).items()} == {
        "what time is it?": "team",
        "what time is it now?": "team",
        "what time is it later?": "public",
    }
