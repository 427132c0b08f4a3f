"""
Encode a home's state as bytes and decode it, exactly: a cache of a fold, never a source.

As with a session's state (`snapshots/session.py`), a state of another program's layout gives None,
and the home's journal is folded instead. The store that keeps the bytes checks who wrote them and
which record they stand for.
"""

from functools import cache

import msgspec

from holdfast.ids import GrantId, InstanceId, SessionId
from holdfast.session.home import events as home_events
from holdfast.session.home.events import (
    HOME_EVENTS,
    GrantProposed,
    HomeState,
    SessionCreated,
    SessionSealed,
    TokenAdded,
    ToolPinned,
    ToolWithdrawn,
)
from holdfast.session.snapshots.layout import constants_of, functions_of, layout_of


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """
    Every field of a HomeState. Entries that are keyed by their own name are kept without the key.
    """

    layout: str
    home: str | None
    generation: int
    slots_used: int
    sessions: tuple[SessionCreated, ...]
    earlier: dict[SessionId, tuple[InstanceId, ...]]
    sealed: tuple[SessionSealed, ...]
    proposed: tuple[GrantProposed, ...]
    grants: tuple[GrantProposed, ...]
    granted_at: dict[GrantId, int]
    tokens: tuple[TokenAdded, ...]
    pins: tuple[ToolPinned, ...]
    withdrawn: tuple[tuple[ToolPinned, ToolWithdrawn], ...]
    time: int
    disbelieved_until: int


_decode = msgspec.json.Decoder(_Kept).decode


@cache
def home_layout() -> str:
    """
    The layout digest. It changes with every field and default of every home event, with the set of
    events, and with the code that folds them.
    """
    return layout_of(functions_of(home_events), HOME_EVENTS, constants_of(home_events))


def encode_home_state(state: HomeState) -> bytes:
    return msgspec.json.encode(
        _Kept(
            layout=home_layout(),
            home=state.home,
            generation=state.generation,
            slots_used=state.slots_used,
            sessions=tuple(state.sessions.values()),
            earlier=state.earlier,
            sealed=tuple(state.sealed.values()),
            proposed=tuple(state.proposed.values()),
            grants=tuple(state.grants.values()),
            granted_at=state.granted_at,
            tokens=tuple(state.tokens.values()),
            pins=tuple(state.pins.values()),
            withdrawn=tuple(state.withdrawn.values()),
            time=state.time,
            disbelieved_until=state.disbelieved_until,
        )
    )


def decode_home_state(data: bytes) -> HomeState | None:
    """Return the exact state, or None if the bytes have another layout."""
    try:
        kept: _Kept = _decode(data)
    except msgspec.MsgspecError:
        return None
    if kept.layout != home_layout():
        return None
    state = HomeState()
    state.home, state.generation, state.slots_used = kept.home, kept.generation, kept.slots_used
    state.sessions = {each.session: each for each in kept.sessions}
    state.earlier = kept.earlier
    state.sealed = {each.session: each for each in kept.sealed}
    state.proposed = {each.grant: each for each in kept.proposed}
    state.grants = {each.grant: each for each in kept.grants}
    state.granted_at = kept.granted_at
    state.tokens = {each.name: each for each in kept.tokens}
    state.pins = {each.name: each for each in kept.pins}
    state.withdrawn = {each[0].name: each for each in kept.withdrawn}
    state.time, state.disbelieved_until = kept.time, kept.disbelieved_until
    return state
