"""
Decide when a remembered approval counts for a call.

Two questions are answered for every call, and again right before its start:

- `covers`: is the grant for this very call? It needs the same tool definition, requester and
  boundary, no wider audience, equal arguments, and a call in its scope.
- `flaw_of`: does the current policy still accept the grant? The current rule must let the giver
  answer this requester's call and must allow remembering at the grant's scope. The grant must not
  be over. The way of the giver's answer must still count as consent. The giver and the requester
  must be the same people as when the grant was given.

This module reads no clock: `Terms.now` is the later of the clock and the newest journal time.
"""

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from holdfast.session.authority.context import Audience, TurnContext
from holdfast.session.authority.plan import Binding, ToolDefinition, is_contained
from holdfast.session.home.events import GrantProposed

Remember = Literal["never", "session", "any"]
SCOPES_OF: Mapping[Remember, frozenset[str]] = {
    "never": frozenset(),
    "session": frozenset({"session"}),
    "any": frozenset({"session", "folder", "everywhere"}),
}
"""The scopes of grants that a rule allows."""

LOCAL = "local"  # the channel on which an unlisted person is known by the name itself


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of the current rule for a grant of one requester."""

    givers: tuple[str, ...]  # people whose answer the rule takes
    scopes: frozenset[str]
    seconds: int  # how long an approval is remembered
    people: Mapping[str, Mapping[str, str]]
    now: int
    ways: Collection[str]  # in which an answer counts


def flaw_of(grant: GrantProposed, terms: Terms) -> str | None:
    """Return the reason why the grant does not count at present, or None if it counts."""
    giver = grant.granted_by
    if giver is None:
        return "nobody is recorded as its giver"
    if terms.now >= ends_at(grant, terms.seconds):
        return "its time is over"
    if giver not in terms.givers:
        return f"policy does not let {giver} answer such a call"
    if grant.scope not in terms.scopes:
        return "policy does not allow it to be remembered"
    if (grant.way or "script") not in terms.ways:
        return "the answer came in a way that no longer counts as consent"
    for name in (giver, grant.requester):
        if not _is_same_person(grant, name, terms.people):
            return f"settings know {name} by other identities than when it was given"
    return None


def ends_at(grant: GrantProposed, seconds: int) -> int:
    """
    Return when the grant ends. A shorter current `approvals.remember_for` applies; a longer one
    does not.
    """
    return min(grant.expires_at, grant.proposed_at + seconds * 1000)


def identities_of(name: str, people: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """
    Return the identities by which settings know a person: the listed ones, else the login of the
    same name unless another person has it.

    >>> identities_of("bob", {"bob": {"slack": "T1/U2"}}), identities_of("bob", {})
    (('slack:T1/U2',), ('local:bob',))
    >>> identities_of("bob", {"robert": {"local": "bob"}})
    ()
    """
    if name in people:
        return tuple(sorted(f"{channel}:{identity}" for channel, identity in people[name].items()))
    taken = any(identities.get(LOCAL) == name for identities in people.values())
    return () if taken else (f"{LOCAL}:{name}",)


def _is_same_person(
    grant: GrantProposed, name: str, people: Mapping[str, Mapping[str, str]]
) -> bool:
    """
    Check that the identities known when the grant was given are still there. Further ones may have
    been added since.
    """
    known = grant.identities.get(name)
    return known is not None and set(known) <= set(identities_of(name, people))


def granted_arguments(arguments: str, definition: ToolDefinition, scope: str) -> str:
    """
    Return the arguments that a grant binds: all of them, except the fields that the tool names as
    free and those that the scope frees.

    A tool that writes files has no free fields for a grant: the content is part of the approved
    call.
    """
    if definition.kind == "write_file":
        return arguments
    freed = set(definition.free_fields)
    if scope == "folder" and definition.kind == "read_file":
        return "{}"
    if scope in ("folder", "everywhere") and definition.kind == "shell":
        freed.add("cwd")
    if not freed:
        return arguments
    fields = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    return msgspec.json.encode(
        {name: value for name, value in fields.items() if name not in freed}
    ).decode()


def covers(
    grant: GrantProposed,
    *,
    context: TurnContext,
    definition: ToolDefinition,
    arguments: str,
    binding: Binding,
) -> bool:
    """
    Check whether a grant is for this very call: same tool, same requester and boundary, no wider
    audience, equal arguments, in its scope.
    """
    return (
        grant.tool == definition.name
        and grant.definition == definition.digest()
        and context.requester is not None
        and grant.requester == context.requester
        and grant.boundary == context.boundary
        and context.audience.narrowness >= Audience(grant.audience).narrowness
        and binding.readable
        and is_contained(binding)
        and binding.memorable
        and _in_scope(grant, context, definition, binding)
        and grant.arguments == granted_arguments(arguments, definition, grant.scope)
    )


def _in_scope(
    grant: GrantProposed, context: TurnContext, definition: ToolDefinition, binding: Binding
) -> bool:
    # Equal arguments may lead to another file from another workspace or over a link. So a grant for
    # a file is for the resolved path.
    same_path = definition.kind not in ("read_file", "write_file") or grant.path == binding.path
    match grant.scope:
        case "session":
            here = (grant.session, grant.instance) == (context.session, context.instance)
            return here and grant.folder == binding.cwd and same_path
        case "folder":
            at = binding.path or binding.cwd
            return (
                definition.kind in ("shell", "read_file")
                and grant.folder is not None
                and is_below(at, grant.folder)
            )
        case "everywhere":
            return same_path
        case _:
            return False


def is_below(path: str | None, folder: str) -> bool:
    """Compare as text, on paths that the adapter has already resolved."""
    return path is not None and (path == folder or path.startswith(folder.rstrip("/") + "/"))
