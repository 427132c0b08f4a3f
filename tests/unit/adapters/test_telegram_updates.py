"""From Telegram's updates to facts: who is nobody, and which words are for us."""

from typing import Any

import pytest

from holdfast.adapters.channels.telegram.updates import Me, address, arrived, pressed

ME = Me({"id": 7, "username": "holdfast_bot"})
MESSAGE: dict[str, Any] = {
    "message_id": 5,
    "from": {"id": 1, "is_bot": False},
    "chat": {"id": -100, "type": "supergroup"},
    "date": 1_700_000_000,
    "text": "hi",
}


def read(message: dict[str, Any]) -> Any:
    return arrived({"update_id": 1, "message": MESSAGE | message}, ME)


def test_a_message_is_read_with_its_place_and_its_topic() -> None:
    found = read({})
    assert (found.identity, found.place, found.thread) == ("1", "-100", "in-100")
    assert not found.is_for_us
    topic = read({"message_thread_id": 3, "is_topic_message": True})
    assert address(topic.thread) == {"chat_id": -100, "message_thread_id": 3}
    direct = read({"chat": {"id": 1, "type": "private"}})
    assert (direct.place_kind, direct.thread, direct.is_for_us) == ("direct", "dm-1", True)


def test_words_are_for_us_by_an_entity_or_a_reply_and_never_by_a_look_alike() -> None:
    name = {"type": "mention", "offset": 3, "length": 13}
    assert read({"text": "\N{GRINNING FACE} @Holdfast_bot hi", "entities": [name]}).is_for_us
    assert not read({"text": "\N{GRINNING FACE} @holdfast_bat hi", "entities": [name]}).is_for_us
    assert not read({"text": "@holdfast_bot hi"}).is_for_us
    by_id = {"type": "text_mention", "offset": 0, "length": 2, "user": {"id": 7}}
    assert read({"entities": [by_id]}).is_for_us
    ours = {"from": {"id": 7}, "text": "our own words"}
    assert read({"reply_to_message": ours}).is_for_us
    assert read({"reply_to_message": ours}).quotes == ()
    other = {"from": {"id": 8}, "text": "theirs"}
    [quote] = read({"reply_to_message": other}).quotes
    assert (quote.user, quote.text) == ("8", "theirs")
    assert read({"text": "@holdfast_bot  run: x"}).text == "run: x"
    assert read({"text": "@holdfast_bottle run"}).text == "@holdfast_bottle run"


@pytest.mark.parametrize(
    ("forwarded", "speaker"),
    [
        ({"forward_origin": {"type": "user", "sender_user": {"id": 8}, "date": 1}}, "8"),
        ({"forward_origin": {"type": "hidden_user", "sender_user_name": "alice"}}, None),
        ({"forward_from": {"id": 8}, "forward_date": 1}, "8"),
        ({"forward_sender_name": "alice", "forward_date": 1}, None),
        ({"via_bot": {"id": 9, "is_bot": True}}, "9"),
    ],
)
def test_forwarded_words_are_a_quote_and_not_the_senders_own(
    forwarded: dict[str, Any], speaker: str | None
) -> None:
    found = read({"text": "run: rm x", "chat": {"id": 1, "type": "private"}} | forwarded)
    assert "rm" not in found.text
    [quote] = found.quotes
    assert (found.identity, quote.user, quote.text) == ("1", speaker, "run: rm x")


@pytest.mark.parametrize(
    "message",
    [
        {"from": {"id": 7, "is_bot": True}},
        {"from": None},
        {"from": {"id": "1"}},
        {"sender_chat": {"id": -200}},
        {"chat": {"id": -100, "type": "channel"}},
        {"text": None},
    ],
)
def test_an_event_without_a_person_is_dropped(message: dict[str, Any]) -> None:
    assert read(message) is None
    assert arrived({"update_id": 1, "edited_message": MESSAGE}, ME) is None
    assert pressed({"update_id": 1, "message": MESSAGE}) is None
