"""From Slack's payloads to facts: who is nobody, and what people typed."""

from typing import Any

import pytest

from holdfast.adapters.channels.slack.events import SlackSelf, address, arrived, plain, pressed
from holdfast.adapters.channels.slack.requests import envelope, is_signed

ME = SlackSelf("T1", "U9", "B9")
EVENT: dict[str, Any] = {
    "type": "message",
    "user": "U1",
    "channel": "C1",
    "channel_type": "channel",
    "text": "<@U9> hi",
    "ts": "1700000000.000100",
}


def read(event: dict[str, Any], **outer: Any) -> Any:
    payload = {"team_id": "T1", "event": EVENT | event, **outer}
    return arrived(payload, ME, "tests")


def test_a_message_is_read_with_its_tenant_and_its_thread() -> None:
    found = read({})
    assert (found.identity, found.place, found.message) == ("T1/U1", "C1", "1700000000.000100")
    assert (found.text, found.is_for_us, found.is_shared) == ("hi", True, False)
    assert address(found.thread) == ("C1", "1700000000.000100")
    reply = read({"ts": "1700000009.000200", "thread_ts": "1700000000.000100"})
    assert reply.thread == found.thread
    direct = read({"channel": "D1", "channel_type": "im", "text": "hi"})
    assert (direct.place_kind, direct.is_for_us, direct.thread) == ("direct", True, "dm-t1.u1")
    assert not read({"text": "hi"}).is_for_us
    assert read({"text": "hi", "parent_user_id": "U9"}).is_for_us
    assert read({}, is_ext_shared_channel=True).is_shared
    assert read({"user_team": "T2"}).identity == "T2/U1"


@pytest.mark.parametrize(
    "event",
    [
        {"user": "U9"},  # ourselves
        {"bot_id": "B9"},
        {"bot_id": "B7", "subtype": "bot_message"},
        {"subtype": "message_changed"},
        {"subtype": "message_deleted"},
        {"user": None},
        {"user": "alice"},
        {"channel": "#ops"},
        {"type": "reaction_added"},
        {"ts": "yesterday"},
        {"ts": "nan"},
        {"thread_ts": 1700000000},
        {"thread_ts": "../other"},
    ],
)
def test_an_event_without_a_person_or_a_time_is_dropped(event: dict[str, Any]) -> None:
    assert read(event) is None
    assert arrived({"team_id": "T2", "event": EVENT}, ME, "tests") is None


def test_text_is_as_it_was_typed() -> None:
    assert plain("<@U9> curl <http://a.b/c|a.b/c> &amp;&amp; x &lt; y", ME) == "curl a.b/c && x < y"
    assert plain("ask <@U2> about <https://a.b>", ME) == "ask <@U2> about https://a.b"


def test_a_press_of_another_workspace_is_nothing() -> None:
    payload: dict[str, Any] = {
        "type": "block_actions",
        "team": {"id": "T1"},
        "user": {"id": "U1", "team_id": "T2"},
        "container": {"channel_id": "C1", "message_ts": "1.2"},
        "actions": [{"value": "v"}],
        "trigger_id": "3.4",
    }
    found = pressed(payload, ME, "tests")
    assert found is not None
    assert (found.identity, found.message, found.press) == ("T2/U1", "C1:1.2", "3.4")
    assert pressed(payload | {"team": {"id": "T2"}}, ME, "tests") is None
    assert pressed(payload | {"actions": []}, ME, "tests") is None
    for odd in ({"team": "T1"}, {"user": "U1"}, {"container": "C1"}, {"actions": ["v"]}):
        assert pressed(payload | odd, ME, "tests") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"payload=",
        b"payload=%7B",
        b"\xff",
        b"payload=\xff",
        b"[" * 90_000,
        b"payload=" + b"%5B" * 90_000,
    ],
    ids=range(8),
)
def test_a_body_that_cannot_be_read_is_nothing(body: bytes) -> None:
    assert envelope(body) is None
    headers = {"x-slack-request-timestamp": "1" * 400, "x-slack-signature": "v0=\ud800"}
    assert not is_signed("secret", headers.get, body, now_seconds=1)
