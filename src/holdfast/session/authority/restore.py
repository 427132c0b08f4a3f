"""
Restore the authority of a request from its journalled record.

No field has a default. A field that is missing, blank, unknown, incoherent or from another session
or instance is refused with its name. A lost context allows nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.ids import InstanceId, SessionId
from holdfast.session.authority.context import Audience, LostContext, Principal, TurnContext
from holdfast.session.authority.legacy import restore_legacy

_ENUMS: Mapping[str, type[StrEnum]] = {"audience": Audience, "principal": Principal}
_PROVENANCE = {
    "authenticity": ("verified", "unverified"),
    "taint": ("clean", "tainted"),
    "scope": ("direct", "group", "broadcast"),
}
_NEVER_BLANK = ("session", "instance", "turn", "audience", "boundary", "channel", "principal")


def _restore_or_say_why(
    raw: bytes | msgspec.Raw, *, session: SessionId, instance: InstanceId
) -> TurnContext | LostContext:
    """The slow path, which names the flaw."""
    try:
        fields = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        return LostContext("the turn's context is missing or no JSON object")
    if "legacy" in fields:
        return restore_legacy(
            fields, call=str(fields["legacy"]), session=session, instance=instance
        )
    if flaw := _flaw(fields, session=session, instance=instance):
        return flaw
    try:
        return msgspec.convert(fields, TurnContext)
    except msgspec.ValidationError as exc:
        return LostContext(f"the turn's context can't be decoded: {exc}", _field_of(exc))


def _flaw(
    fields: dict[str, Any], *, session: SessionId, instance: InstanceId
) -> LostContext | None:
    for name in TurnContext.__struct_fields__:
        if name not in fields:
            return LostContext(f"the turn's context has no {name}", name)
    for name in _NEVER_BLANK:
        if not isinstance(fields[name], str) or not fields[name].strip():
            return LostContext(f"the turn's context has a blank {name}", name)
    for name, kind in _ENUMS.items():
        if fields[name] not in set(kind):
            return LostContext(f"the turn's context has an unknown {name}: {fields[name]!r}", name)
    if fields["session"] != session:
        return LostContext(f"the turn's context belongs to session {fields['session']}", "session")
    if fields["instance"] != instance:
        return LostContext(
            "the turn's context belongs to another instance of this session", "instance"
        )
    if fields["requester"] is not None and not str(fields["requester"]).strip():
        return LostContext("the turn's context has a blank requester", "requester")
    if flaw := _flaw_inside(fields):
        return flaw
    if fields["interactive"] is True and not fields["requester"]:
        return LostContext("the turn's context is interactive, but names no requester", "requester")
    return None


def _flaw_inside(fields: dict[str, Any]) -> LostContext | None:
    provenance, speakers, workspace = (
        fields["provenance"],
        fields["quoted_speakers"],
        fields["workspace"],
    )
    if isinstance(provenance, dict):
        for name, known in _PROVENANCE.items():
            if provenance.get(name) not in known:
                return LostContext(
                    f"the turn's provenance has an unknown {name}: {provenance.get(name)!r}",
                    "provenance",
                )
        if not str(provenance.get("kind") or "").strip():
            return LostContext("the turn's provenance has a blank kind", "provenance")
    if isinstance(speakers, list) and any(
        not isinstance(each, str) or not each.strip() for each in speakers
    ):
        return LostContext("the turn's context quotes a speaker without a name", "quoted_speakers")
    if isinstance(workspace, dict) and not all(
        str(workspace.get(name) or "").strip() for name in ("path", "identity")
    ):
        return LostContext("the turn's workspace has a blank path or identity", "workspace")
    return None


def _field_of(exc: msgspec.ValidationError) -> str | None:
    _, _, path = str(exc).partition("`$.")
    return path.split("`")[0].split(".")[0].split("[")[0] or None


_decode_context = msgspec.json.Decoder(TurnContext).decode


def restore(
    raw: bytes | msgspec.Raw, *, session: SessionId, instance: InstanceId
) -> TurnContext | LostContext:
    """
    The only way to restore a context: one strict decode for the ordinary case. Any missing, blank,
    unknown or foreign field gives LostContext with the field's name.
    """
    try:
        context = _decode_context(raw)
    except msgspec.DecodeError:
        return _restore_or_say_why(raw, session=session, instance=instance)
    ours = context.session == session and context.instance == instance
    named = context.boundary.strip() and context.channel.strip() and context.turn.strip()
    asked_by = (
        context.requester.strip() if context.requester is not None else not context.interactive
    )
    if ours and named and asked_by and _is_whole(context):
        return context
    return _restore_or_say_why(raw, session=session, instance=instance)


def _is_whole(context: TurnContext) -> bool:
    provenance, workspace = context.provenance, context.workspace
    return (
        provenance.authenticity in _PROVENANCE["authenticity"]
        and provenance.taint in _PROVENANCE["taint"]
        and provenance.scope in _PROVENANCE["scope"]
        and bool(provenance.kind.strip())
        and all(speaker.strip() for speaker in context.quoted_speakers)
        and (workspace is None or bool(workspace.path.strip() and workspace.identity.strip()))
    )
