"""Objects of Discord's documentation, as the fake sends and reads them. Pure."""

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web

DIRECT = "7"  # the first digit of channels of direct messages
FENCE = re.compile(r"```\n(.*?)\n```", re.DOTALL)


def user_of(ident: str, name: str, *, is_bot: bool = False) -> dict[str, Any]:
    return {
        "id": ident,
        "username": name,
        "global_name": name,
        "discriminator": "0",
        "avatar": None,
        **({"bot": True} if is_bot else {}),
    }


def member_of(user: str) -> dict[str, Any]:
    return {
        "user": user_of(user, "Somebody"),
        "roles": [],
        "joined_at": "2026-01-01T00:00:00.000000+00:00",
        "deaf": False,
        "mute": False,
        "flags": 0,
        "permissions": "0",
    }


def direct_channel(user: str) -> str:
    return f"{DIRECT}{user}"


def buttons_of(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (each["label"], each["custom_id"])
        for row in body.get("components") or ()
        for each in row["components"]
    ]


def seen(content: str) -> str:
    """The text as a reader sees it: code blocks as they are, escapes gone elsewhere."""
    parts = FENCE.split(content)
    shown = [part if at % 2 else re.sub(r"\\(\W|_)", r"\1", part) for at, part in enumerate(parts)]
    return "".join(shown)


def too_many() -> "web.Response":
    from aiohttp import web

    body = {"message": "You are being rate limited.", "retry_after": 1.0, "global": False}
    return web.json_response(body, status=429, headers={"Retry-After": "1"})


def json_answer(value: Any) -> "web.Response":
    """Exactly this content type: the library compares it."""
    from aiohttp import web

    return web.Response(
        body=json.dumps(value).encode(), headers={"Content-Type": "application/json"}
    )


def error(status: int, code: int, message: str) -> "web.Response":
    from aiohttp import web

    return web.Response(
        body=json.dumps({"message": message, "code": code}).encode(),
        status=status,
        headers={"Content-Type": "application/json"},
    )
