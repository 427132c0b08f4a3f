"""
The authority of a request: who asked, over which channel, in which boundary. It is written once,
when a message is accepted, and read from the journal afterwards.

`MessageSource` holds a channel's facts about a message, and is never stored whole. `TurnContext` is
the durable authority. There is one way from the first to the second (`context_from_source`), one
way back from the journal (`authority/restore.py`), and one way to hand less of it on (`narrowed`).
No default here grants anything. A part that is missing at acceptance is recorded as the least
authority. A part that is missing at restore is refused with its name.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from holdfast.errors import Refused, Unusable
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.session.view.messages import Quote


class Audience(StrEnum):
    """
    The set of people who may see something: PUBLIC < TEAM < PERSONAL, from the widest to the
    narrowest.
    """

    PUBLIC = "public"
    TEAM = "team"
    PERSONAL = "personal"

    @property
    def narrowness(self) -> int:
        return NARROWNESS[self]


NARROWNESS: dict[str, int] = {Audience.PUBLIC: 0, Audience.TEAM: 1, Audience.PERSONAL: 2}


class Principal(StrEnum):
    UNTRUSTED_EXTERNAL = "untrusted_external"
    TRUSTED_INTERNAL = "trusted_internal"
    OPERATOR = "operator"
    VERIFIED_AUTOMATION = "verified_automation"
    SYSTEM = "system"


class Provenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The origin of the text. Taint is permanent: it can be added on the way, never removed."""

    authenticity: str  # verified, unverified
    taint: str  # clean, tainted
    scope: str  # direct, group, broadcast
    # message, webhook, reminder, job, delegate, import, relayed, relayed_same_user, none
    kind: str


PUBLIC_BOUNDARY = "public"
RELAYED = "relayed"  # the kind of a call that another program's agent makes for its person
RELAYED_SAME_USER = "relayed_same_user"  # that program runs as a user who can read the home
NO_PROVENANCE = Provenance(
    authenticity="unverified", taint="tainted", scope="broadcast", kind="none"
)
_DIRECT = Provenance(authenticity="verified", taint="clean", scope="direct", kind="message")


class Workspace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    The folder a turn works in: its path, and its identity (`dev:ino`) when the message was
    accepted. `node` names the node that has it, in a home with several nodes.
    """

    path: str
    identity: str
    node: str = ""


class MessageSource(msgspec.Struct, frozen=True, kw_only=True):
    """
    A channel's facts about one message. The channel authenticates `person`.

    >>> MessageSource.local("alice").boundary
    'personal:alice'
    """

    channel: str
    person: str | None
    principal: Principal
    audience: Audience
    boundary: str
    provenance: Provenance
    can_prompt: bool
    quotes: tuple[Quote, ...] = ()
    message_id: str | None = None
    asserted_by: str | None = None  # who vouched for `person`, if it was not the channel itself

    @classmethod
    def local(
        cls, person: str, *, quotes: tuple[Quote, ...] = (), asserted_by: str | None = None
    ) -> "MessageSource":
        """A person at this machine: PERSONAL, operator, can be asked."""
        return cls(
            channel="local",
            person=person,
            principal=Principal.OPERATOR,
            audience=Audience.PERSONAL,
            boundary=f"personal:{person}",
            provenance=_DIRECT,
            can_prompt=True,
            quotes=quotes,
            asserted_by=asserted_by,
        )

    @classmethod
    def team(
        cls, person: str, team: str, *, channel: str = "team", quotes: tuple[Quote, ...] = ()
    ) -> "MessageSource":
        """A team member who speaks where the whole team reads."""
        return cls(
            channel=channel,
            person=person,
            principal=Principal.TRUSTED_INTERNAL,
            audience=Audience.TEAM,
            boundary=f"team:{team}",
            provenance=Provenance(
                authenticity="verified", taint="clean", scope="group", kind="message"
            ),
            can_prompt=True,
            quotes=quotes,
        )

    @classmethod
    def automation(cls, person: str, *, channel: str) -> "MessageSource":
        """
        A webhook or a reminder of that person: verified, but no person is there to answer prompts.
        """
        return cls(
            channel=channel,
            person=person,
            principal=Principal.VERIFIED_AUTOMATION,
            audience=Audience.PERSONAL,
            boundary=f"personal:{person}",
            provenance=Provenance(
                authenticity="verified", taint="clean", scope="direct", kind=channel
            ),
            can_prompt=False,
        )

    @classmethod
    def none(cls, *, channel: str = "none") -> "MessageSource":
        """No known sender: the least authority there is."""
        return cls(
            channel=channel,
            person=None,
            principal=Principal.UNTRUSTED_EXTERNAL,
            audience=Audience.PUBLIC,
            boundary=PUBLIC_BOUNDARY,
            provenance=NO_PROVENANCE,
            can_prompt=False,
        )


class TurnContext(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The durable authority of a turn. Written once with the accepted message.

    It does not hold reply targets, message ids, times, text, job ids or live handles, on purpose.
    """

    session: SessionId
    instance: InstanceId
    turn: TurnId
    audience: Audience
    boundary: str
    channel: str
    requester: str | None
    principal: Principal
    provenance: Provenance
    quoted_speakers: tuple[str, ...]  # all of them, the requester included
    interactive: bool
    workspace: Workspace | None

    @property
    def has_third_party(self) -> bool:
        return any(speaker != self.requester for speaker in self.quoted_speakers)


class LostContext(msgspec.Struct, frozen=True):
    """A context that could not be restored, with the reason. It allows nothing."""

    reason: str
    field: str | None = None
    legacy: bool = False  # from before contexts existed: an answer is refused as expired

    @property
    def requester(self) -> None:
        """The requester is unknown."""
        return


def context_from_source(
    source: MessageSource | None,
    *,
    session: SessionId,
    instance: InstanceId,
    turn: TurnId,
    workspace: Workspace | None,
) -> TurnContext:
    """
    The only way to make a context for a new message. Without a source, or with one that names
    nobody, the least authority is recorded.
    """
    source = source or MessageSource.none()
    if not source.channel.strip() or not source.boundary.strip():
        raise Unusable(
            "a message source needs a channel and a boundary",
            code="malformed",
            hint="use MessageSource.local(NAME)",
        )
    if not (source.person or "").strip() and source.principal not in (
        Principal.VERIFIED_AUTOMATION,
        Principal.SYSTEM,
    ):
        source = msgspec.structs.replace(
            MessageSource.none(channel=source.channel), quotes=source.quotes
        )
    return TurnContext(
        session=session,
        instance=instance,
        turn=turn,
        audience=source.audience,
        boundary=source.boundary,
        channel=source.channel,
        requester=source.person if (source.person or "").strip() else None,
        principal=source.principal,
        provenance=source.provenance,
        quoted_speakers=tuple(quote.speaker for quote in source.quotes),
        interactive=source.can_prompt and bool((source.person or "").strip()),
        workspace=workspace,
    )


def same_authority(one: TurnContext, other: TurnContext) -> bool:
    """
    Check whether two queued messages may become one turn: all fields but the turn id must be equal,
    the quoted speakers included.
    """
    return (
        one.requester is not None
        and one.requester == other.requester
        and (
            one.session,
            one.instance,
            one.audience,
            one.boundary,
            one.channel,
            one.principal,
            one.provenance,
            one.interactive,
        )
        == (
            other.session,
            other.instance,
            other.audience,
            other.boundary,
            other.channel,
            other.principal,
            other.provenance,
            other.interactive,
        )
        and (one.workspace, one.quoted_speakers) == (other.workspace, other.quoted_speakers)
    )


def may_supersede(message: TurnContext, parked: TurnContext) -> bool:
    """
    Check whether a later message may replace a parked request: the same person must send it,
    interactively, with the same audience and boundary.
    """
    return (
        message.interactive
        and message.provenance.kind == "message"
        and message.requester is not None
        and (message.requester, message.audience, message.boundary)
        == (parked.requester, parked.audience, parked.boundary)
    )


_MAY_BECOME: Mapping[Principal, frozenset[Principal]] = {
    Principal.UNTRUSTED_EXTERNAL: frozenset({Principal.UNTRUSTED_EXTERNAL}),
    Principal.VERIFIED_AUTOMATION: frozenset(
        {Principal.VERIFIED_AUTOMATION, Principal.UNTRUSTED_EXTERNAL}
    ),
    Principal.TRUSTED_INTERNAL: frozenset(
        {Principal.TRUSTED_INTERNAL, Principal.VERIFIED_AUTOMATION, Principal.UNTRUSTED_EXTERNAL}
    ),
    Principal.OPERATOR: frozenset(Principal) - {Principal.SYSTEM},
    Principal.SYSTEM: frozenset(Principal),
}


def narrowed(
    parent: TurnContext,
    *,
    session: SessionId,
    instance: InstanceId,
    turn: TurnId,
    kind: str,
    audience: Audience | None = None,
    principal: Principal | None = None,
    interactive: bool | None = None,
    channel: str | None = None,
) -> TurnContext:
    """
    Return a child's context: the parent's, or less. A request for more is refused with the name of
    the field.
    """
    audience = audience or parent.audience
    principal = principal or parent.principal
    interactive = parent.interactive if interactive is None else interactive
    if audience not in (parent.audience, Audience.PUBLIC):
        raise Refused(
            f"a {kind} of a {parent.audience} turn can't have the audience {audience}",
            code="no_authority",
        )
    if principal not in _MAY_BECOME[parent.principal]:
        raise Refused(
            f"a {kind} asked for by {parent.principal} can't act as {principal}",
            code="no_authority",
        )
    if interactive and not parent.interactive:
        raise Refused(
            f"nobody can be asked in the turn that started this {kind}, so nobody can be asked in "
            "it",
            code="no_authority",
        )
    taint = "tainted" if parent.has_third_party else parent.provenance.taint
    return msgspec.structs.replace(
        parent,
        session=session,
        instance=instance,
        turn=turn,
        audience=audience,
        boundary=parent.boundary if audience is parent.audience else PUBLIC_BOUNDARY,
        channel=channel or parent.channel,
        principal=principal,
        provenance=msgspec.structs.replace(parent.provenance, kind=kind, taint=taint),
        interactive=interactive,
    )
