"""
The home's own history (sessions, seals, keys, grants, tokens) and the state that it folds to.

The home's journal has the same format as a session's. `HomeState` is the fold of it. Stores and the
runtime both read it, and neither keeps a second list.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.errors import BrokenChain, NewerVersion, Unusable
from holdfast.ids import GrantId, InstanceId, SessionId
from holdfast.session.authority.expiry import AHEAD_MAX_MS, Moment


class HomeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A fact about the home."""


class HomeCreated(HomeEvent, frozen=True):
    home: str


class KeyRotated(HomeEvent, frozen=True):
    """From here on new segments are under this generation. Generations never fall."""

    generation: int
    key_id: str
    by: str


class SessionCreated(HomeEvent, frozen=True):
    """A session's instance begins. It does not exist before this record."""

    session: SessionId
    instance: InstanceId
    first_mac: str
    slot: int  # where the store keeps its anchor
    origin: str  # created, unseal, fork, import, restore
    by: str


class SessionSealed(HomeEvent, frozen=True):
    session: SessionId
    instance: InstanceId
    code: str
    detail: str
    at_seq: int | None = None
    segment: str | None = None
    byte: int | None = None


class SessionDeleted(HomeEvent, frozen=True):
    session: SessionId
    instance: InstanceId
    by: str


class GrantProposed(HomeEvent, frozen=True):
    """Written before the answer it belongs to; counts for nothing until it is activated."""

    grant: GrantId
    tool: str
    definition: str  # digest of the tool's definition
    arguments: str  # the covered arguments, as the exact JSON text; free fields are left out
    scope: str  # session, folder, everywhere
    folder: str | None
    requester: str
    boundary: str
    audience: str
    session: SessionId
    instance: InstanceId
    approval: str
    answer: str  # answer id: activation needs exactly this answer in the session's journal
    proposed_at: int
    granted_by: str | None = None  # the person who answered; without one the grant does not count
    expires_at: int = 0
    identities: dict[
        str, tuple[str, ...]
    ] = {}  # the identities by which settings knew the giver and the requester
    path: str | None = None  # for file tools: the resolved path
    offered: str = ""  # the coverage that the option described
    way: str | None = None  # how the answer came; None means from a program


class GrantActivated(HomeEvent, frozen=True):
    grant: GrantId


class GrantDropped(HomeEvent, frozen=True):
    """Proposed, but its answer never came to be."""

    grant: GrantId


class GrantRevoked(HomeEvent, frozen=True):
    grant: GrantId
    by: str
    reason: str | None = None  # restore, clock; None: a person revoked it


class TokenAdded(HomeEvent, frozen=True):
    name: str
    digest: str
    person: str
    scopes: tuple[str, ...]
    audience: str
    expires_at: int | None
    by: str
    way: str | None = (
        # "page": given for a one-time code; "code": such a code, which allows only the exchange
        None
    )


class TokenRevoked(HomeEvent, frozen=True):
    name: str
    by: str
    reason: str | None = None  # restore, clock; None: a person revoked it


class ToolPinned(HomeEvent, frozen=True):
    """
    A person has seen the whole definition of a server's tool and lets models use it. The record
    holds everything that was shown, so that a later change can be shown as a difference.
    """

    server: str  # its name in the settings
    tool: str  # its name at the server
    digest: str  # over the definition, the instructions and the identity
    definition: str  # as received, as JSON text with sorted keys
    instructions: str
    identity: str  # of the server: what runs, or where it answers
    by: str

    @property
    def name(self) -> str:
        return f"{self.server}.{self.tool}"


class ToolWithdrawn(HomeEvent, frozen=True):
    """From here on the tool is neither offered nor called, until a person pins it again."""

    server: str
    tool: str
    reason: str  # changed, removed, unpinned, restore
    by: str
    found: str | None = None  # the digest of the definition that stood in its place

    @property
    def name(self) -> str:
        return f"{self.server}.{self.tool}"


class TimeNoted(HomeEvent, frozen=True):
    """
    The clock of a process that used the home. So the home's journal is never far behind the time it
    was last used.
    """

    clock: int


class ClockAccepted(HomeEvent, frozen=True):
    """A person says that the clock is right, whatever times the journals hold."""

    clock: int
    by: str


class NodeAccepted(HomeEvent, frozen=True):
    """A person goes on without a node that had not compared its anchors with the database."""

    node: str
    by: str
    reason: str


AnyHomeEvent = (
    HomeCreated
    | KeyRotated
    | SessionCreated
    | SessionSealed
    | SessionDeleted
    | GrantProposed
    | GrantActivated
    | GrantDropped
    | GrantRevoked
    | TokenAdded
    | TokenRevoked
    | ToolPinned
    | ToolWithdrawn
    | TimeNoted
    | ClockAccepted
    | NodeAccepted
)

AuthorityEvent = (
    GrantProposed
    | GrantActivated
    | GrantDropped
    | GrantRevoked
    | TokenAdded
    | TokenRevoked
    | ToolPinned
    | ToolWithdrawn
)

HOME_EVENTS: Mapping[str, type[AnyHomeEvent]] = {
    "home_created": HomeCreated,
    "key_rotated": KeyRotated,
    "session_created": SessionCreated,
    "session_sealed": SessionSealed,
    "session_deleted": SessionDeleted,
    "grant_proposed": GrantProposed,
    "grant_activated": GrantActivated,
    "grant_dropped": GrantDropped,
    "grant_revoked": GrantRevoked,
    "token_added": TokenAdded,
    "token_revoked": TokenRevoked,
    "tool_pinned": ToolPinned,
    "tool_withdrawn": ToolWithdrawn,
    "time_noted": TimeNoted,
    "clock_accepted": ClockAccepted,
    "node_accepted": NodeAccepted,
}
_NAMES = {kind: name for name, kind in HOME_EVENTS.items()}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind) for name, kind in HOME_EVENTS.items()
}
_VERSION = 1


def encode_home_event(event: AnyHomeEvent) -> tuple[str, int, bytes]:
    """
    Return (type, version, body) for a Draft, and only if `decode_home_event` can read the body
    back: otherwise nobody could open the home any more.
    """
    name = _NAMES[type(event)]
    try:
        body = msgspec.json.encode(event)
        _DECODERS[name].decode(body)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as exc:
        raise Unusable(
            f"{name} can't be written down: {exc}",
            code="malformed",
            hint="give values of the annotated types",
        ) from exc
    return name, _VERSION, body


def decode_home_event(type_: str, version: int, body: bytes) -> AnyHomeEvent:
    decoder = _DECODERS.get(type_)
    if decoder is None or version != _VERSION:
        raise NewerVersion(
            f"the home's journal has a {type_!r} record of version {version}, which this Holdfast "
            "does not know",
            hint="upgrade Holdfast; nothing is wrong with the journal",
        )
    try:
        event: AnyHomeEvent = decoder.decode(body)
    except (ValueError, RecursionError) as exc:
        raise BrokenChain(
            f"the home's journal has a {type_!r} record whose body does not fit: {exc}"
        ) from exc
    return event


class HomeState:
    """
    The fold of the home's journal. Only `evolve` changes it, called by the owner of the fold.

    - `sessions` holds the current instances.
    - `earlier` holds the instances before them, for sessions that had any and were not deleted
      since.
    - `sealed` holds the seal marks by session. A new instance lifts the mark of the one before.
    - `pins` holds the tools of servers that models may use, by `SERVER.TOOL`. `withdrawn` holds
      those that were pinned before, each with its last pin and the reason.
    - `time` is the newest time that is believed. Record times up to `disbelieved_until` are not
      believed: a person confirmed that the clock which made them was ahead.
    """

    def __init__(self) -> None:
        self.home: str | None = None
        self.generation = 1
        self.sessions: dict[SessionId, SessionCreated] = {}
        self.earlier: dict[SessionId, tuple[InstanceId, ...]] = {}
        self.sealed: dict[SessionId, SessionSealed] = {}
        self.slots_used = 0
        self.proposed: dict[GrantId, GrantProposed] = {}
        self.grants: dict[GrantId, GrantProposed] = {}
        self.granted_at: dict[GrantId, int] = {}
        self.tokens: dict[str, TokenAdded] = {}
        self.pins: dict[str, ToolPinned] = {}
        self.withdrawn: dict[str, tuple[ToolPinned, ToolWithdrawn]] = {}
        self.time = 0
        self.disbelieved_until = 0

    def copy(self) -> "HomeState":
        """Copy the state, to try events ahead: changing the copy leaves this one as it is."""
        new = HomeState()
        new.home, new.generation, new.slots_used = self.home, self.generation, self.slots_used
        new.sessions, new.earlier, new.sealed = (
            dict(self.sessions),
            dict(self.earlier),
            dict(self.sealed),
        )
        new.proposed, new.grants, new.granted_at = (
            dict(self.proposed),
            dict(self.grants),
            dict(self.granted_at),
        )
        new.tokens = dict(self.tokens)
        new.pins, new.withdrawn = dict(self.pins), dict(self.withdrawn)
        new.time, new.disbelieved_until = self.time, self.disbelieved_until
        return new

    def believed(self, stamp: int, *, clock: int) -> int:
        """
        Return a journal's newest time if it is believed, else 0. It is not believed if a person
        confirmed that its clock was ahead, or if it is further ahead than any clock is let through.
        """
        return (
            stamp if self.disbelieved_until < stamp <= max(clock, self.time) + AHEAD_MAX_MS else 0
        )

    def instances_of(self, session: SessionId) -> set[InstanceId]:
        """
        Return every instance whose bytes are kept, the current one included. A deleted session has
        none.
        """
        living = self.sessions.get(session)
        return {*self.earlier.get(session, ()), *([living.instance] if living is not None else [])}

    def evolve(self, event: AnyHomeEvent, *, at: int) -> None:
        self._keep_time(event, at)
        match event:
            case HomeCreated(home=home):
                self.home = home
            case KeyRotated(generation=generation):
                self.generation = max(self.generation, generation)
            case SessionCreated(session=session, slot=slot):
                before = self.sessions.get(session)
                if before is not None:
                    self.earlier[session] = (*self.earlier.get(session, ()), before.instance)
                self.sessions[session] = event
                self.sealed.pop(session, None)
                self.slots_used = max(self.slots_used, slot + 1)
            case SessionSealed(session=session, instance=instance):
                living = self.sessions.get(session)
                if living is not None and living.instance == instance:
                    self.sealed.setdefault(session, event)
            case SessionDeleted(session=session):
                self.sessions.pop(session, None)
                self.earlier.pop(session, None)
                self.sealed.pop(session, None)
            case TimeNoted() | ClockAccepted() | NodeAccepted():
                pass
            case _:
                self._evolve_authority(event, at=at)

    def _evolve_authority(self, event: AuthorityEvent, *, at: int) -> None:
        match event:
            case GrantProposed(grant=grant):
                self.proposed[grant] = event
            case GrantActivated(grant=grant):
                if grant in self.proposed:
                    self.grants[grant] = self.proposed.pop(grant)
                    self.granted_at[grant] = at
            case GrantDropped(grant=grant):
                self.proposed.pop(grant, None)
            case GrantRevoked(grant=grant):
                self.proposed.pop(grant, None)
                self.grants.pop(grant, None)
                self.granted_at.pop(grant, None)
            case TokenAdded(name=name):
                self.tokens[name] = event
            case TokenRevoked(name=name):
                self.tokens.pop(name, None)
            case ToolPinned(name=name):
                self.pins[name] = event
                self.withdrawn.pop(name, None)
            case ToolWithdrawn(name=name):
                if (pin := self.pins.pop(name, None)) is not None:
                    self.withdrawn[name] = (pin, event)

    def _keep_time(self, event: AnyHomeEvent, at: int) -> None:
        if isinstance(event, ClockAccepted):
            if Moment(event.clock, at).is_disputed:
                # Sessions hold such times too, at most as far ahead as a clock is let through.
                self.disbelieved_until = max(at, event.clock + AHEAD_MAX_MS)
            self.time = event.clock
        elif isinstance(event, TimeNoted):
            self.time = max(self.time, event.clock)
        elif at > self.disbelieved_until:
            self.time = max(self.time, at)
