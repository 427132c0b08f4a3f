"""
The one isolated path for approval requests from before contexts existed (imported or older
journals).

It needs a channel and a requester, never widens, and marks the transport unverified. A request that
does not fit is refused: any answer to it is then refused as expired.
"""

from typing import Any

from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.session.authority.context import (
    Audience,
    LostContext,
    Principal,
    Provenance,
    TurnContext,
)


def restore_legacy(
    fields: dict[str, Any], *, call: str, session: SessionId, instance: InstanceId
) -> TurnContext | LostContext:
    """
    Make a context of its own turn, `legacy/<call>`, from the loose fields of an old request event.
    """
    if (fields.get("session") or session) != session or (
        fields.get("instance") or instance
    ) != instance:
        return _lost(
            "the old request belongs to another session, or to another instance of this one",
            "session",
        )
    channel = fields.get("channel")
    if not isinstance(channel, str) or not channel.strip():
        return _lost("the old request names no channel", "channel")
    principal = fields.get("principal") or Principal.UNTRUSTED_EXTERNAL
    if not isinstance(principal, str) or principal not in set(Principal):
        return _lost(f"the old request has an unknown principal: {principal!r}", "principal")
    requester = fields.get("requester")
    nobody = requester is None and principal == Principal.VERIFIED_AUTOMATION
    if not nobody and (not isinstance(requester, str) or not requester.strip()):
        return _lost("the old request names no requester, so nobody may answer it", "requester")
    audience = fields.get("audience")
    if not isinstance(audience, str) or audience not in set(Audience):
        return _lost("the old request names no audience", "audience")
    boundary = fields.get("boundary")
    if not isinstance(boundary, str) or not boundary.strip():
        return _lost("the old request names no boundary", "boundary")
    speakers = fields.get("quoted_speakers") or ()
    if not isinstance(speakers, list | tuple) or not all(
        isinstance(speaker, str) and speaker.strip() for speaker in speakers
    ):
        return _lost("the old request has speakers without names", "quoted_speakers")
    return TurnContext(
        session=session,
        instance=instance,
        turn=TurnId(f"legacy/{call}"),
        audience=Audience(audience),
        boundary=boundary,
        channel=channel,
        requester=requester,
        principal=Principal(principal),
        provenance=Provenance(
            authenticity="unverified", taint="tainted", scope=_scope(fields), kind="message"
        ),
        quoted_speakers=tuple(speakers),
        interactive=fields.get("interactive") is True and requester is not None,
        workspace=None,
    )


def _scope(fields: dict[str, Any]) -> str:
    scope = fields.get("scope")
    return scope if scope in {"direct", "group", "broadcast"} else "broadcast"


def _lost(reason: str, field: str) -> LostContext:
    return LostContext(reason, field, legacy=True)
