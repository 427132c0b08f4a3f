"""From a payload of Slack to the facts that arrived. Pure; nothing is taken on trust."""

import re
from typing import Any, TypeGuard

import msgspec

from holdfast.ports.chat.messages import Arrived, Pressed, direct_address

_THREAD = re.compile(r"[a-z0-9]{1,20}\.([a-z0-9]{1,20})-([0-9]{1,16}\.[0-9]{1,10})\Z")
_DIRECT = re.compile(r"dm-[a-z0-9]{1,20}\.([a-z0-9]{1,20})\Z")
_ID = re.compile(r"[A-Z0-9]{2,20}\Z")
_TIME = re.compile(r"[0-9]{1,16}\.[0-9]{1,10}\Z")
_LINK = re.compile(r"<((?:https?|mailto|tel):[^<>|]*)(?:\|([^<>]*))?>")
_PLAIN_SUBTYPES = (None, "thread_broadcast")


class SlackSelf(msgspec.Struct, frozen=True):
    """The app in its workspace, from `auth.test`."""

    team: str
    user: str
    bot: str


def arrived(payload: dict[str, Any], me: SlackSelf, authenticated_by: str) -> Arrived | None:
    """
    Return the message of a person. None for anything else: another workspace's envelope, an edit, a
    message of a bot or of ourselves, a payload of another shape than Slack documents.
    """
    event = payload.get("event")
    if payload.get("team_id") != me.team or not isinstance(event, dict):
        return None
    if event.get("type") not in ("message", "app_mention"):
        return None
    if event.get("subtype") not in _PLAIN_SUBTYPES or event.get("bot_id"):
        return None
    user, channel, ts = event.get("user"), event.get("channel"), event.get("ts")
    root = event.get("thread_ts") or ts
    if not (_is_id(user) and _is_id(channel) and _is_time(ts) and _is_time(root)):
        return None
    if user == me.user:
        return None
    # A guest of a shared channel belongs to another workspace.
    tenant = str(event.get("user_team") or event.get("team") or payload["team_id"])
    identity = f"{tenant}/{user}"
    is_direct = event.get("channel_type") == "im"
    text = str(event.get("text") or "")
    return Arrived(
        identity=identity,
        place_kind="direct" if is_direct else "channel",
        place=str(channel),
        thread=direct_address(identity) if is_direct else f"{me.team}.{channel}-{root}".lower(),
        message=ts,
        text=plain(text, me),
        sent_at=int(float(ts) * 1000),
        authenticated_by=authenticated_by,
        is_for_us=is_direct
        or event["type"] == "app_mention"
        or f"<@{me.user}>" in text
        or event.get("parent_user_id") == me.user,
        is_shared=bool(payload.get("is_ext_shared_channel")),
    )


def pressed(payload: dict[str, Any], me: SlackSelf, authenticated_by: str) -> Pressed | None:
    """Return the press of a person in our workspace. None for anything else."""
    match payload:
        case {
            "type": "block_actions",
            "team": {"id": me.team},
            "user": {"id": id_} as user,
            "container": {} as container,
            "actions": [{} as action],
        } if _is_id(id_):
            pass
        case _:
            return None
    return Pressed(
        identity=f"{user.get('team_id') or me.team}/{id_}",
        message=message_name(container.get("channel_id"), container.get("message_ts")),
        payload=str(action.get("value", "")),
        press=str(payload.get("trigger_id", "")),
        authenticated_by=authenticated_by,
    )


def message_name(channel: object, ts: object) -> str:
    return f"{channel}:{ts}"


def address(to: str) -> tuple[str, str | None]:
    """
    Return the channel and the thread's root. A user's id stands for their direct messages.

    >>> address("dm-t024.u7"), address("t024.c0ops-1700000000.000100")
    (('U7', None), ('C0OPS', '1700000000.000100'))
    """
    if (direct := _DIRECT.match(to)) is not None:
        return direct[1].upper(), None
    if (thread := _THREAD.match(to)) is None:
        raise ValueError(f"{to!r} is not an address on Slack")
    return thread[1].upper(), thread[2]


def plain(text: str, me: SlackSelf) -> str:
    """
    Return the text as its writer saw it: links without their brackets, signs without escapes, and
    without our name at the beginning, which says whom it is for.

    >>> plain("<@U1> curl &lt;<http://a.b|a.b>&gt;", SlackSelf("T1", "U1", "B1"))
    'curl <a.b>'
    """
    text = text.removeprefix(f"<@{me.user}>").lstrip()
    text = _LINK.sub(lambda found: found[2] or found[1], text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _ID.match(value) is not None


def _is_time(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _TIME.match(value) is not None
