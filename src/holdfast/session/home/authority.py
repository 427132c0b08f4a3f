"""
What a home lets people do by itself, tokens and grants, and how all of it is taken back at once.

A backup knows nothing of what was revoked after it was made, and a journal whose clock was ahead
can't say what has ended. Both drop what they hold, item by item, in the home's own journal. Whoever
wants one of them back gives it again, or says so for each.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from holdfast.session.home.events import (
    AnyHomeEvent,
    GrantDropped,
    GrantProposed,
    GrantRevoked,
    HomeState,
    TokenAdded,
    TokenRevoked,
)

RESTORED = "restore"
CLOCK = "clock"


class Authority(NamedTuple):
    """Tokens and grants, each in the order of its name or id."""

    tokens: tuple[TokenAdded, ...] = ()
    grants: tuple[GrantProposed, ...] = ()


def restored_authority(state: HomeState) -> Authority:
    """Everything that a home from a backup would let people do."""
    return Authority(
        tuple(state.tokens[name] for name in sorted(state.tokens)),
        tuple(state.grants[each] for each in sorted(state.grants)),
    )


def ended_authority(state: HomeState) -> Authority:
    """
    Everything with an end: where the clock was disputed nobody can say of any of it whether its end
    has come.
    """
    every = restored_authority(state)
    return Authority(
        tuple(each for each in every.tokens if each.expires_at is not None), every.grants
    )


def dropping(
    state: HomeState, authority: Authority, *, by: str, reason: str, keep: Collection[str] = ()
) -> Sequence[AnyHomeEvent]:
    """
    The records that drop it, but for the names and ids in `keep`. What was proposed and never
    activated goes as well.
    """
    return (
        *(
            TokenRevoked(name=each.name, by=by, reason=reason)
            for each in authority.tokens
            if each.name not in keep
        ),
        *(
            GrantRevoked(grant=each.grant, by=by, reason=reason)
            for each in authority.grants
            if each.grant not in keep
        ),
        *(GrantDropped(grant=each) for each in state.proposed),
    )
