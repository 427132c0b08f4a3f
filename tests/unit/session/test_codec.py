"""Between events and bytes: round trips, the future refused, damage not believed."""

from typing import Any, get_args

import pytest
from proof.scenarios.teller import Teller

from holdfast.errors import BrokenChain, NewerVersion, Refused, Unusable
from holdfast.session import codec
from holdfast.session.codec import EVENT_TYPES, VERSIONS, decode, encode
from holdfast.session.events import SessionEvent, TurnParked
from holdfast.session.home.events import (
    HOME_EVENTS,
    GrantDropped,
    decode_home_event,
    encode_home_event,
)


def test_every_event_type_has_a_stored_name_and_a_version() -> None:
    assert set(EVENT_TYPES.values()) == set(get_args(SessionEvent))
    assert EVENT_TYPES["approval_requested"].__name__ == "ApprovalRequested"
    assert set(VERSIONS) == set(EVENT_TYPES)


_HOSTILE = pytest.mark.parametrize(
    "hostile", [b"\xb9", b'"},"x":' + b"[" * 100_000], ids=["no UTF-8", "nested without end"]
)


@_HOSTILE
def test_a_body_that_can_not_be_read_is_broken_and_not_our_end(hostile: bytes) -> None:
    """
    A home whose key is lost is read unverified, and so is a file to be imported: bytes of anybody's
    get here.
    """
    with pytest.raises(BrokenChain):
        decode("turn_parked", 1, b'{"turn":"' + hostile + b'"}')
    with pytest.raises(BrokenChain):
        decode_home_event("grant_dropped", 1, b'{"grant":"' + hostile + b'"}')


def test_an_event_comes_back_as_it_was() -> None:
    teller = Teller()
    teller.tell(
        [
            "submit x quote=bob:hi",
            "go",
            'calls "delete b=1" "look a=1"',
            "go",
            "answer a1 approve_once",
            "go",
            "says done",
        ]
    )
    for event in teller.pure.events():
        assert decode(*encode(event)) == event


@pytest.mark.parametrize(
    ("type_", "version"), [("turn_parked", 2), ("turn_parked", 0), ("turn_painted", 1), ("", 1)]
)
def test_decode_refuses_a_newer_event_and_never_skips_it(type_: str, version: int) -> None:
    """D8: no tampering, but not for this program."""
    with pytest.raises(NewerVersion) as newer:
        decode(type_, version, b'{"turn":"t1"}')
    assert newer.value.code == "newer_version"
    assert "upgrade" in newer.value.hint


@pytest.mark.parametrize("type_", HOME_EVENTS)
def test_a_known_record_of_the_home_in_another_version_is_refused(type_: str) -> None:
    """D8: its fields may mean something else there, also where they look the same."""
    for version in (0, 2):
        with pytest.raises(NewerVersion):
            decode_home_event(type_, version, b"{}")


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("turn_parked", b"{}"),
        ("turn_parked", b'{"turn":1}'),
        ("turn_parked", b"[]"),
        ("call_finished", b'{"turn":"t1","call":"c","outcome":"maybe","text":""}'),
    ],
    ids=repr,
)
def test_a_body_that_does_not_fit_is_not_believed(type_: str, body: bytes) -> None:
    with pytest.raises(BrokenChain) as broken:
        decode(type_, 1, body, seq=9)
    assert broken.value.at_seq == 9


@pytest.mark.parametrize("body", [b"", b"{", b'{"turn":"t1"', b"\xff"], ids=repr)
def test_a_body_that_is_not_json_is_not_believed(body: bytes) -> None:
    with pytest.raises(BrokenChain):
        decode("turn_parked", 1, body, seq=9)


def test_an_older_version_is_read_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upcasting: version 1 said `of`, version 2 `name`, version 3 says `turn`."""
    monkeypatch.setattr(codec, "VERSIONS", {**VERSIONS, "turn_parked": 3})
    monkeypatch.setattr(codec, "_DECODERS", {})
    steps = {
        ("turn_parked", 1): lambda body: {"name": body["of"]},
        ("turn_parked", 2): lambda body: {"turn": body["name"]},
    }
    monkeypatch.setattr(codec, "UPCASTS", steps)
    assert (
        decode("turn_parked", 1, b'{"of":"t1"}')
        == decode("turn_parked", 2, b'{"name":"t1"}')
        == TurnParked(turn="t1")
    )
    with pytest.raises(NewerVersion):
        decode("turn_parked", 4, b'{"turn":"t1"}')


@pytest.mark.parametrize("turn", [1, None, object(), "t\ud800"])
def test_nothing_is_written_that_could_not_be_read_back(turn: Any) -> None:
    """
    Types are not checked when a program calls us. A record of a wrong one is genuine, and so it
    would make its whole session unreadable, for good.
    """
    for write in (
        lambda: encode(TurnParked(turn=turn)),
        lambda: encode_home_event(GrantDropped(grant=turn)),
    ):
        with pytest.raises((Refused, Unusable)) as refused:
            write()
        assert (refused.value.code, bool(refused.value.hint)) == ("malformed", True)
