"""
Checks of the arguments that a program passes to the library, before anything is tried. Errors are
plain sentences with the next step, for callers that do not check types.

Nothing is guessed and nothing is converted: a name is not a source, an id is not an approval, a
number that a channel uses as an id is not text.
"""

import unicodedata
from collections.abc import Mapping
from os import PathLike, fsencode, fspath
from pathlib import Path
from typing import Any

import msgspec

from holdfast.assembly.home_path import folder_identity
from holdfast.errors import Refused, Unusable
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.runtime.jobs.verbs import Viewer
from holdfast.session.authority.context import (
    LostContext,
    MessageSource,
    Principal,
    Workspace,
    context_from_source,
)
from holdfast.session.authority.restore import restore
from holdfast.settings.values import is_name

# Placeholders: the check only asks whether the source could belong to some session.
_SESSION, _INSTANCE = SessionId("local/any"), InstanceId("any")


def check_source(given: MessageSource) -> MessageSource:
    """
    Return the source as it is written and read back. Authority that could not be restored after a
    crash must not exist before it (A3), and the caller's own objects may change later (A1).
    """
    if not isinstance(given, MessageSource):
        raise _no_message_source(given)
    try:
        # Bytes stay bytes: the encoder would turn them into the text of their base64.
        parts = msgspec.to_builtins(given, builtin_types=(bytes,), enc_hook=_own_text)
        given = msgspec.convert(parts, MessageSource)
        context = context_from_source(
            given, session=_SESSION, instance=_INSTANCE, turn=TurnId("t1"), workspace=None
        )
        found = restore(msgspec.json.encode(context), session=_SESSION, instance=_INSTANCE)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as exc:
        raise _no_source(str(exc)) from exc
    if isinstance(found, LostContext):
        raise _no_source(found.reason)
    for what, name in (("person", given.person), ("channel", given.channel)):
        # A channel may use any Unicode form, and keeps to it.
        if name and name.strip() and not is_name(unicodedata.normalize("NFC", name)):
            raise _no_source(f"{name!r:.200} is not a valid name of a {what}")
    return given


def _no_message_source(given: object) -> Unusable:
    named = (
        f"holdfast.MessageSource.local({given!r:.200})"
        if isinstance(given, str)
        else "holdfast.MessageSource.local(NAME)"
    )
    return Unusable(
        f"{given!r:.200} is not a MessageSource",
        code="malformed",
        hint=f"use {named}, or the source that your channel has authenticated",
    )


def require_consenting_person(by: MessageSource) -> str:
    """
    Return the person who answers. The channel must have verified the person, and the person must be
    present. A webhook or a reminder that speaks for somebody is not consent (P3, P6).
    """
    if by.person is None or not by.person.strip():
        raise Refused(
            "nobody is known to give this answer",
            code="wrong_approver",
            hint="answer from a channel that knows the person",
        )
    automatic = by.principal in (Principal.VERIFIED_AUTOMATION, Principal.SYSTEM)
    if automatic or not by.can_prompt or by.provenance.authenticity != "verified":
        raise Refused(
            f"a message of {by.channel} for {by.person} does not count as their consent",
            code="wrong_approver",
            hint="answer from a channel where the person sits and is verified, such as "
            "MessageSource.local(NAME)",
        )
    return by.person


def _no_source(why: str) -> Unusable:
    return Unusable(
        f"this message source can't be taken: {why}",
        code="malformed",
        hint="names are short, without invisible characters or spaces at their ends; every field "
        "is as its type says",
    )


def texts(needed: Mapping[str, object], more: Mapping[str, object]) -> None:
    """Check that each value is text; those in `more` may be None."""
    for name, value in (
        *needed.items(),
        *((name, value) for name, value in more.items() if value is not None),
    ):
        if not isinstance(value, str):
            raise Unusable(
                f"{name}={value!r:.200} is not text",
                code="malformed",
                hint=_HINTS.get(name, f"hand in {name} as text, str(...) perhaps"),
            )


_HINTS = {
    "agent": "name it, as in agent='ops'; hand the agent itself to holdfast.open(agents=[...])",
    "model": "name it, as in model='demo'; hand the model itself to an Agent",
    "at": "a datetime, or text such as '2030-01-01T09:00:00Z'",
    "every": "text such as '2h' or '1d'",
    "for_": "the person's name, as in for_='alice'",
    "id": "its id, as in approval.id or job.id",
}


def check_cursor(after: int | None) -> int | None:
    if after is not None and (not isinstance(after, int) or after < 0):
        raise Unusable(
            f"after={after!r} is not a seq",
            code="malformed",
            hint="use record.seq, or 0 for the whole history",
        )
    return after


def asking(source: MessageSource, *, may_all: bool) -> str:
    """
    Return the caller's name. A caller without a name has no right that depends on one. No
    placeholder is used, since a person could have that name.
    """
    if source.person is None and not may_all:
        raise Refused(
            "it is not known who asks",
            code="no_authority",
            hint="give a source with a person, as authenticated by its channel",
        )
    return source.person or "nobody"


def viewer_from_source(source: MessageSource) -> Viewer:
    source = check_source(source)
    return Viewer(
        person=source.person or "nobody", audience=source.audience, boundary=source.boundary
    )


def check_workspace(path: str | PathLike[str] | None) -> Workspace | None:
    if path is None:
        return None
    folder = str(Path(check_path_text(path, what="workspace")).resolve())
    identity = folder_identity(folder)
    if identity is None:
        raise Unusable(
            f"{folder} is not a folder", code="no_workspace", hint="name an existing folder"
        )
    return Workspace(folder, identity)


def check_path_text(path: str | PathLike[str], *, what: str) -> str:
    try:
        text = fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str) or "\0" in text or not _is_encodable(text):
        raise Unusable(
            f"{what}={path!r:.200} is not a path",
            code="malformed",
            hint="hand in text or a pathlib.Path",
        )
    return text


def _is_encodable(path: str) -> bool:
    try:
        fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def check_flag(value: object, *, what: str) -> bool:
    if not isinstance(value, bool):
        raise Unusable(
            f"{what}={value!r:.200} is neither True nor False",
            code="malformed",
            hint=f"write {what}=True, or leave it out",
        )
    return value


def plain_text(value: Any) -> Any:
    """
    Return text as a `str`, and everything else as it is. JSON does not know a subclass, such as a
    member of an enum.
    """
    return str.__str__(value) if isinstance(value, str) else value


def _own_text(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{value!r:.200} is not a part of a source")


def plain_texts(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain_text(value) for name, value in arguments.items()}
