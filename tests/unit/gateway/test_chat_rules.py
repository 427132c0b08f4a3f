"""The audience of a message in a chat comes from settings and the place, never from its text."""

import msgspec
import pytest

from holdfast.gateway.channels.rules import ChatRules, is_wanted, source_of
from holdfast.ports.chat.messages import Arrived, PlaceKind, QuotedText

PEOPLE = {"T1/U1": "alice"}
RULES = ChatRules(name="slack", kind="slack", person_for=PEOPLE.get, teams={"C0OPS": "ops"})


def arrived(place_kind: PlaceKind = "channel", place: str = "C0OPS", **fields: object) -> Arrived:
    given = Arrived(
        identity="T1/U1",
        place_kind=place_kind,
        place=place,
        thread="t1.c0ops-1.2",
        message="1.2",
        text="hi",
        sent_at=1,
        authenticated_by="tests",
        is_for_us=True,
    )
    return msgspec.structs.replace(given, **fields)


@pytest.mark.parametrize(
    ("message", "audience", "boundary"),
    [
        (arrived("direct", "D1"), "personal", "personal:alice"),
        (arrived(), "team", "team:ops"),
        (arrived(place="C0ALL"), "public", "public"),
        (arrived(is_shared=True), "public", "public"),
    ],
)
def test_the_place_decides_the_audience(message: Arrived, audience: str, boundary: str) -> None:
    source = source_of(RULES, message, "alice")
    assert (source.audience, source.boundary, source.channel) == (audience, boundary, "slack")


def test_a_quote_keeps_its_speaker_and_only_a_mention_is_wanted() -> None:
    quotes = (QuotedText("T1/U1", "mine"), QuotedText("T1/U2", "theirs"), QuotedText(None, "?"))
    source = source_of(RULES, arrived(quotes=quotes), "alice")
    assert [each.speaker for each in source.quotes] == ["alice", "slack user T1/U2", "slack user"]
    assert not is_wanted(RULES, arrived(is_for_us=False))
    assert is_wanted(RULES, arrived("direct", is_for_us=False))
