"""
The authority that a home itself grants, tokens and grants, and how all of it is revoked at once.

A backup does not know later revocations. A journal whose clock was ahead cannot tell which items
have ended. In both cases the home drops its items one by one in its own journal. The operator
grants an item again, or names each item to keep.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdfast.session.home.events import (
    AnyHomeEvent,
    GrantDropped,
    GrantProposed,
    GrantRevoked,
    HomeState,
    TokenAdded,
    TokenRevoked,
    ToolWithdrawn,
)

RESTORED = "restore"
CLOCK = "clock"


class Authority(NamedTuple):
    """Tokens and grants, each sorted by name or id."""

    tokens: tuple[TokenAdded, ...] = ()
    grants: tuple[GrantProposed, ...] = ()


def restored_authority(state: HomeState) -> Authority:
    """Return all tokens and grants that a home from a backup would hold."""
    return Authority(
        tuple(state.tokens[name] for name in sorted(state.tokens)),
        tuple(state.grants[each] for each in sorted(state.grants)),
    )


def ended_authority(state: HomeState) -> Authority:
    """
    Return all tokens and grants with an end. If the clock was disputed, nobody can tell whether
    their end has come.
    """
    every = restored_authority(state)
    return Authority(
        tuple(each for each in every.tokens if each.expires_at is not None), every.grants
    )


def dropping(
    state: HomeState, authority: Authority, *, by: str, reason: str, keep: Collection[str] = ()
) -> Sequence[AnyHomeEvent]:
    """
    Return the records that drop this authority, except the names and ids in `keep`. Grants that
    were proposed and never activated are dropped as well.
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


def withdrawing(
    state: HomeState, tools: Mapping[str, str | None], *, by: str, reason: str
) -> Sequence[AnyHomeEvent]:
    """
    Return the records that withdraw these pinned tools and end their grants. Each tool comes with
    the digest of the definition that stands in its place, if there is one.
    """
    pins = [state.pins[name] for name in tools if name in state.pins]
    names = {pin.name for pin in pins}
    return (
        *(
            ToolWithdrawn(
                server=pin.server, tool=pin.tool, reason=reason, by=by, found=tools[pin.name]
            )
            for pin in pins
        ),
        *(
            GrantRevoked(grant=grant.grant, by=by, reason=reason)
            for grant in (*state.grants.values(), *state.proposed.values())
            if grant.tool in names
        ),
    )
