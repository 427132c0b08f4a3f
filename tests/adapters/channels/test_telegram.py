"""What is particular to Telegram: an update is asked for again until it is confirmed."""

from collections.abc import Iterator

import pytest

from holdfast.adapters.channels.telegram.platform import TelegramPlatform
from holdfast.testing.conformance.chats import RecordingInbox, listening, until
from holdfast.testing.fakes.telegram import FakeTelegram
from holdfast.testing.loop import in_loop


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


@in_loop
async def test_an_update_that_cannot_be_read_is_left_out_and_the_next_one_is_heard(
    fake: FakeTelegram,
) -> None:
    """It would come again with each poll, and nobody would be heard any more."""
    inbox = RecordingInbox()
    async with listening(TelegramPlatform(fake.bot_token, api=fake.address), inbox):
        for fields in ({"entities": 5}, {"chat": {"type": "group"}}, {"date": "yesterday"}):
            fake.say("1", "unreadable", place="-100", fields=fields)
        fake.say("1", "readable")
        await until(lambda: inbox.messages, "the message that can be read")
        assert [each.text for each in inbox.messages] == ["readable"]
        await until(lambda: fake.confirmed == 4, "a poll that confirms all of them")
