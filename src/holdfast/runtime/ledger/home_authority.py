"""
Revoke a home's authority at once: after a restore, and when an operator accepts the clock although
the journal is ahead of it.

Each is one commit to the home's journal, so a crash leaves all of it or none.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.reports.types import iso
from holdfast.session.authority.expiry import Moment
from holdfast.session.home.authority import (
    CLOCK,
    RESTORED,
    Authority,
    dropping,
    ended_authority,
    restored_authority,
    withdrawing,
)
from holdfast.session.home.events import (
    AnyHomeEvent,
    ClockAccepted,
    GrantProposed,
    HomeState,
    TokenAdded,
)

Keep = Callable[[TokenAdded | GrantProposed], Awaitable[bool]]
"""Called for each token and grant: whether to keep it."""


class DroppedToken(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    person: str
    scopes: tuple[str, ...]


class DroppedGrant(msgspec.Struct, frozen=True, kw_only=True):
    grant: str
    tool: str
    scope: str
    requester: str


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens and grants that the home no longer honours."""

    tokens: tuple[DroppedToken, ...] = ()
    grants: tuple[DroppedGrant, ...] = ()

    @classmethod
    def of(cls, authority: Authority, keep: set[str]) -> "Dropped":
        return cls(
            tokens=tuple(
                DroppedToken(name=each.name, person=each.person, scopes=each.scopes)
                for each in authority.tokens
                if each.name not in keep
            ),
            grants=tuple(
                DroppedGrant(
                    grant=each.grant, tool=each.tool, scope=each.scope, requester=each.requester
                )
                for each in authority.grants
                if each.grant not in keep
            ),
        )


class ClockReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of accepting the clock."""

    clock: str
    journal: str
    dropped: Dropped


async def drop_restored(home: HomeLedger, *, by: str, keep: Keep | None = None) -> Dropped:
    """
    Drop every token and grant that is not kept by name, after a restore. A backup does not know the
    revocations that came after it.

    No other process has this home open yet, so the set that `keep` sees is the set that is dropped.
    """
    every = restored_authority(await home.refresh())
    kept: set[str] = set()
    if keep is not None:
        kept |= {each.name for each in every.tokens if await keep(each)}
        kept |= {each.grant for each in every.grants if await keep(each)}
    await home.append_decided_at_any_time(
        lambda state: (
            *dropping(state, restored_authority(state), by=by, reason=RESTORED, keep=kept),
            *withdrawing(state, dict.fromkeys(state.pins), by=by, reason=RESTORED),
        )
    )
    return Dropped.of(every, kept)


async def accept_clock(home: HomeLedger, clock_ms: int, *, by: str) -> ClockReport | None:
    """
    Accept the clock as right, at an operator's request. Return None if the clock is not disputed.

    There are two cases:

    1. The clock is far ahead of the journal, because the home was not used for long: note its time.
    2. The journal is ahead of the clock: its times are no longer believed, so all authority with an
       expiry is dropped.
    """
    done: list[ClockReport] = []

    def decide(state: HomeState) -> Sequence[AnyHomeEvent]:
        done.clear()
        moment = Moment(clock_ms, state.time)
        if not moment.is_ahead and not moment.is_disputed:
            return ()
        going = ended_authority(state) if moment.is_disputed else Authority()
        done.append(
            ClockReport(
                clock=iso(clock_ms), journal=iso(state.time), dropped=Dropped.of(going, set())
            )
        )
        drops = dropping(state, going, by=by, reason=CLOCK) if moment.is_disputed else ()
        return (ClockAccepted(clock=clock_ms, by=by), *drops)

    await home.append_decided_at_any_time(decide)
    return done[0] if done else None
