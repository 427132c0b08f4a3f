"""A home's state, kept and read back: the very same, or nothing."""

from typing import Any

import pytest

from holdfast.ids import GrantId, InstanceId, SessionId
from holdfast.session.home import events as home_events
from holdfast.session.home.events import (
    AnyHomeEvent,
    ClockAccepted,
    GrantActivated,
    GrantProposed,
    HomeCreated,
    HomeState,
    KeyRotated,
    SessionCreated,
    SessionDeleted,
    SessionSealed,
    TimeNoted,
    TokenAdded,
    ToolPinned,
    ToolWithdrawn,
)
from holdfast.session.snapshots import home as home_snapshot
from holdfast.session.snapshots.home import decode_home_state, encode_home_state, home_layout


def created(session: str, instance: str, slot: int) -> SessionCreated:
    return SessionCreated(
        session=SessionId(session),
        instance=InstanceId(instance),
        first_mac="0" * 64,
        slot=slot,
        origin="created",
        by="alice",
    )


def proposed(grant: str) -> GrantProposed:
    return GrantProposed(
        grant=GrantId(grant),
        tool="shell",
        definition="d",
        arguments='{"command":"ls"}',
        scope="folder",
        folder="/srv",
        requester="alice",
        boundary="personal:alice",
        audience="personal",
        session=SessionId("ops/a"),
        instance=InstanceId("i1"),
        approval="a-1",
        answer="x-1",
        proposed_at=5,
    )


def pin(tool: str) -> ToolPinned:
    return ToolPinned(
        server="wire",
        tool=tool,
        digest="d",
        definition="{}",
        instructions="",
        identity="stdio",
        by="alice",
    )


def folded() -> HomeState:
    """With something in every field."""
    story: list[AnyHomeEvent] = [
        HomeCreated(home="h-1"),
        KeyRotated(generation=2, key_id="k", by="alice"),
        created("ops/a", "i1", 0),
        created("ops/b", "i1", 1),
        created("ops/c", "i1", 2),
        created("ops/a", "i2", 3),
        SessionSealed(
            session=SessionId("ops/b"),
            instance=InstanceId("i1"),
            code="takeover",
            detail="changed",
            at_seq=7,
        ),
        SessionDeleted(session=SessionId("ops/c"), instance=InstanceId("i1"), by="bob"),
        proposed("g-1"),
        proposed("g-2"),
        GrantActivated(grant=GrantId("g-1")),
        TokenAdded(
            name="ci",
            digest="d",
            person="carol",
            scopes=("read",),
            audience="team",
            expires_at=9,
            by="alice",
        ),
        pin("echo"),
        pin("other"),
        ToolWithdrawn(server="wire", tool="other", reason="changed", by="holdfast", found="d2"),
        TimeNoted(clock=3 * 86_400_000),
        ClockAccepted(clock=86_400_000, by="alice"),
    ]
    state = HomeState()
    for at, event in enumerate(story):
        state.evolve(event, at=at if not isinstance(event, ClockAccepted) else 3 * 86_400_000)
    return state


def test_a_home_snapshot_restores_the_same_state() -> None:
    """Every field comes back, of the same types; one that was forgotten would be empty here."""
    state = folded()
    assert all(vars(state).values())
    again = decode_home_state(encode_home_state(state))
    assert again is not None
    assert vars(again) == vars(state)
    assert again.instances_of(SessionId("ops/a")) == {"i1", "i2"}
    assert again.instances_of(SessionId("ops/c")) == set()


def test_a_home_snapshot_of_another_layout_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_home_state(folded())
    monkeypatch.setattr(home_snapshot, "home_layout", lambda: "0" * 32)
    assert decode_home_state(data) is None


@pytest.mark.parametrize(
    ("where", "name", "other"),
    [
        (home_events, "_VERSION", 2),
        (home_events, "_NAMES", {}),
        (HomeState, "evolve", lambda *_: None),
    ],
)
def test_another_table_or_another_fold_is_another_version(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, other: Any
) -> None:
    known = home_layout()
    monkeypatch.setattr(where, name, other)
    assert home_layout.__wrapped__() != known


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'["x", 1]', b"x" * 100, encode_home_state(folded())[:-1]]
)
def test_a_folder_that_is_not_a_home_is_not_read(data: bytes) -> None:
    assert decode_home_state(data) is None
