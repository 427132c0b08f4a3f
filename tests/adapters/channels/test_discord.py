"""What is particular to Discord: payloads, Markdown, the acknowledgement, and lost connections."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from holdfast.adapters.channels.discord import events, outgoing
from holdfast.adapters.channels.discord.events import DiscordSelf, Place, place_of
from holdfast.adapters.channels.discord.platform import DiscordPlatform
from holdfast.ports.chat.messages import ChatParcel, KnownThread, Pressed, Taken
from holdfast.ports.delivery import NotDelivered
from holdfast.testing.conformance.chats import PROMPT, RecordingInbox, listening, until
from holdfast.testing.fakes.discord import FakeDiscord
from holdfast.testing.loop import in_loop

ME = DiscordSelf("9", "holdfast")
CHANNEL = Place("500", is_direct=False)
# From the documentation of the message object, with other ids.
MESSAGE: dict[str, Any] = {
    "id": "175928847299117063",
    "channel_id": "500",
    "author": {"id": "53908232506183680", "username": "mason", "discriminator": "0"},
    "content": "<@9>  restart the api",
    "mentions": [{"id": "9", "username": "holdfast", "bot": True}],
    "type": 0,
    "guild_id": "290926798626357999",
}


@pytest.fixture
def fake() -> Iterator[FakeDiscord]:
    with FakeDiscord() as fake:
        yield fake


def platform(fake: FakeDiscord) -> DiscordPlatform:
    return DiscordPlatform(fake.bot_token, api=f"{fake.address}/api")


def parcel(**fields: Any) -> ChatParcel:
    given = {"delivery": "d-1", "to": "in500", "kind": "reply", "text": "hi", "queued_at": 0}
    return msgspec.convert({**given, **fields}, ChatParcel)


def test_a_message_has_its_ids_its_time_and_no_name() -> None:
    found = events.arrived(MESSAGE, CHANNEL, ME)
    assert found is not None
    assert (found.identity, found.place, found.thread) == ("53908232506183680", "500", "in500")
    assert (found.text, found.is_for_us) == ("restart the api", True)
    assert found.sent_at == 1462015105796  # from the id, as the documentation computes it
    assert "mason" not in str(found)


@pytest.mark.parametrize(
    "fields",
    [
        {"author": {"id": "1", "bot": True}},
        {"author": {"id": "1", "system": True}},
        {"author": {"id": "9"}},
        {"author": {"id": "one"}},
        {"author": None},
        {"webhook_id": "5"},
        {"type": 7},  # somebody joined
        {"content": None},
        {"id": "../1"},
    ],
    ids=str,
)
def test_only_a_person_is_heard(fields: dict[str, Any]) -> None:
    assert events.arrived({**MESSAGE, **fields}, CHANNEL, ME) is None


def test_a_reply_to_us_is_for_us_and_a_reply_to_others_is_a_quote() -> None:
    plain = {**MESSAGE, "content": "and now?", "mentions": [], "type": 19}
    to_us = {**plain, "referenced_message": {"author": {"id": "9"}, "content": "done"}}
    found = events.arrived(to_us, CHANNEL, ME)
    assert found is not None
    assert (found.is_for_us, found.quotes) == (True, ())
    to_bob = {**plain, "referenced_message": {"author": {"id": "7"}, "content": "it burns"}}
    found = events.arrived(to_bob, CHANNEL, ME)
    assert found is not None
    assert (found.is_for_us, found.quotes[0].user, found.quotes[0].text) == (False, "7", "it burns")


def test_a_thread_has_the_place_of_its_channel_and_an_address_of_its_own() -> None:
    """A category is not a place: its channels have readers of their own."""
    thread = place_of({"id": "77", "type": 11, "guild_id": "1", "parent_id": "500"})
    assert thread == Place("500", is_direct=False)
    assert place_of({"id": "500", "type": 0, "guild_id": "1", "parent_id": "3"}).id == "500"
    assert place_of({"id": "71", "type": 1}).is_direct
    found = events.arrived({**MESSAGE, "channel_id": "77"}, thread, ME)
    assert found is not None
    assert (found.place, found.thread) == ("500", "in77")
    assert events.channel_of(found.thread) == "77"


@pytest.mark.parametrize(
    "display", ["```\nout of the block", "`" * 50, "a ``` b `` c", "*_~|<@1>[x](https://e.org)"]
)
def test_nothing_in_a_prompt_ends_its_block(display: str) -> None:
    shown = msgspec.structs.replace(PROMPT, display=display)
    asked = parcel(kind="prompt", prompt=shown)
    content = outgoing.message(asked, outgoing.laid_out(asked, None))["content"]
    before, *inside, after = content.split("```")
    assert len(inside) == 1
    assert inside[0].strip("\n").replace("\u200b", "") == display.strip("\n")
    assert "shell" in before
    assert "bob" in after


def test_words_outside_the_block_do_not_act_and_nobody_is_called() -> None:
    shown = msgspec.structs.replace(PROMPT, tool="**rm**", may_answer=("@everyone", "<@1>"))
    asked = parcel(kind="prompt", prompt=shown)
    body = outgoing.message(asked, outgoing.laid_out(asked, "https://h.example/a_b_c"))
    assert "**" not in body["content"]
    assert "<@1>" not in body["content"]
    assert body["allowed_mentions"] == {"parse": []}
    assert len(body["nonce"]) <= 25
    assert body["enforce_nonce"] is True


def test_an_update_that_is_too_long_is_cut_and_keeps_its_block() -> None:
    body = outgoing.update(parcel(kind="update", text="`" * 3_000, replaces="1:2"))
    assert len(body["content"]) <= outgoing.CONTENT_CHARS_MAX
    assert body["content"].startswith("```\n")
    assert body["content"].endswith("\n```")
    assert body["components"] == []


class SlowInbox(RecordingInbox):
    """Decides a press only after the vendor has heard of it."""

    def __init__(self, fake: FakeDiscord) -> None:
        super().__init__()
        self._fake = fake

    async def press(self, pressed: Pressed) -> Taken:
        await until(lambda: pressed.press in self._fake.acknowledged, "the acknowledgement")
        return await super().press(pressed)


@in_loop
async def test_a_press_is_acknowledged_before_it_is_decided_and_nothing_changes_by_that(
    fake: FakeDiscord,
) -> None:
    chat, inbox = platform(fake), SlowInbox(fake)
    async with listening(chat, inbox):
        await chat.send(parcel(kind="prompt", to="dm-1001", prompt=PROMPT))
        [message] = fake.messages
        fake.press("1001", message, "Approve once")
        await until(lambda: inbox.presses, "the press")
    assert message.labels == ["Approve once", "Deny"]
    assert message.edits == 0


@in_loop
async def test_a_connection_that_closes_is_made_again_and_misses_nothing(
    fake: FakeDiscord,
) -> None:
    chat, inbox = platform(fake), RecordingInbox()
    async with listening(chat, inbox):
        fake.say("1001", "first")
        await until(lambda: inbox.messages, "the first message")
        inbox.known = (KnownThread("dm-1001", "71001", inbox.messages[0].message),)
        fake.say("1001", "while nobody listens", is_missed=True)
        fake.drop()
        await until(lambda: len(inbox.messages) > 1, "the missed message")
        await until(lambda: chat.is_up, "the connection")
        fake.say("1001", "after")
        await until(lambda: inbox.messages[-1].text == "after", "the next message")
    texts = [each.text for each in inbox.messages]
    assert texts[:2] == ["first", "while nobody listens"]


class ForgetfulInbox(RecordingInbox):
    """Can't read its journals at first."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    async def threads(self) -> Sequence[KnownThread]:
        self.looks += 1
        if self.looks == 1:
            raise OSError("the disk is away")
        return await super().threads()


@in_loop
async def test_missed_messages_are_read_once_the_journals_can_be_read(
    fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.channels.discord.platform.AGAIN_SECONDS", 0.01)
    fake.say("1001", "while nobody listens", is_missed=True)
    inbox = ForgetfulInbox()
    inbox.known = (KnownThread("dm-1001", "71001", "0"),)
    async with listening(platform(fake), inbox):
        await until(lambda: inbox.messages, "the missed message")
    assert inbox.looks == 2


@in_loop
async def test_a_wrong_token_is_reported_and_nothing_is_sent(fake: FakeDiscord) -> None:
    chat = DiscordPlatform("another.token", api=f"{fake.address}/api")
    with pytest.raises(NotDelivered) as refused:
        await chat.check()
    assert not refused.value.may_pass
    assert "401" in str(refused.value)
    assert "another.token" not in str(refused.value)


@in_loop
async def test_a_missed_message_that_cannot_be_read_is_left_out_and_the_next_one_is_heard(
    fake: FakeDiscord,
) -> None:
    inbox = RecordingInbox()
    inbox.known = fake.missed_since("1001")
    odd = {"referenced_message": {"content": "before", "author": "somebody"}}
    fake.say("1001", "unreadable", is_missed=True, fields=odd)
    fake.say("1001", "readable", is_missed=True)
    async with listening(platform(fake), inbox):
        await until(lambda: inbox.messages, "the message that can be read")
        assert [each.text for each in inbox.messages] == ["readable"]
