"""
Slack on loopback: the Web API methods that a channel uses, Socket Mode, and signed requests.

Shapes, limits and error codes: notes on docs.slack.dev (Web API methods, Events API, Socket Mode,
Block Kit, request verification) of 2026-11. An envelope that is not acknowledged is sent again to
the next connection, or with `resend`. Not imitated: rate limits by themselves, scopes, Enterprise
Grid.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any

from holdfast.testing.fakes.chat import FakeChat, FakeMessage, reset

if TYPE_CHECKING:
    from aiohttp import web

_BLOCK_CHARS_MAX = 13_200
_SECTION_CHARS_MAX = 3_000


class FakeSlack(FakeChat):
    kind = "slack"
    bot_token = "xoxb-fake-token-of-a-test"  # noqa: S105  # a fake's
    app_token = "xapp-fake-token-of-a-test"  # noqa: S105  # a fake's
    signing_secret = "fake-signing-secret-of-a-test"  # noqa: S105  # a fake's
    team = "T0HOLDFAST"
    bot = "U0BOT"
    can_find = True
    has_history = True

    def __init__(self) -> None:
        super().__init__()
        self.shared: set[str] = set()  # channels that another workspace reads
        self.history: list[dict[str, Any]] = []  # messages of people and of the bot
        self.envelopes: dict[str, dict[str, Any]] = {}
        self.sockets: list[web.WebSocketResponse] = []
        self._number = 100

    def settings(self) -> str:
        return (
            '[channels.slack]\nkind = "slack"\nbot_token_env = "FAKE_SLACK_BOT"\n'
            f'app_token_env = "FAKE_SLACK_APP"\napi = "{self.address}/api/"\n'
        )

    def environment(self) -> dict[str, str]:
        return {
            "FAKE_SLACK_BOT": self.bot_token,
            "FAKE_SLACK_APP": self.app_token,
            "FAKE_SLACK_SIGNING": self.signing_secret,
        }

    def identity(self, user: str) -> str:
        return f"{self.team}/{user}"

    # --- people

    def say(
        self, user: str, text: str, *, place: str | None = None, thread: str = "", **more: Any
    ) -> str:
        """
        `mention`, `at`, `name` as elsewhere. `team`: of the envelope. `fields`: of the event. A
        mention comes as two events, as Slack sends it.
        """
        is_mention = place is not None and more.get("mention", True)
        ts = self._ts(more.get("at"))
        event = {
            "type": "message",
            "user": user,
            "team": self.team,
            "channel": place or self._direct(user),
            "channel_type": "channel" if place else "im",
            "text": _escaped(f"<@{self.bot}> " if is_mention else "", text),
            "ts": ts,
            "event_ts": ts,
            "user_profile": {"display_name": more.get("name", "Somebody")},
            **({"thread_ts": thread} if thread else {}),
            **more.get("fields", {}),
        }
        if more.get("team", self.team) == self.team:  # our workspace has no other one's messages
            self._note(lambda: self.history.append(event))
        kinds = ["app_mention", "message"] if is_mention else ["message"]
        for kind in () if more.get("is_missed") else kinds:
            self._push("events_api", self.event_payload({**event, "type": kind}, **more))
        return ts

    def event_payload(self, event: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "type": "event_callback",
            "team_id": more.get("team", self.team),
            "api_app_id": "A0FAKE",
            "event": event,
            "event_id": f"Ev{self._next()}",
            "event_time": int(float(event["ts"])),
            "is_ext_shared_channel": event["channel"] in self.shared or bool(more.get("is_shared")),
        }

    def press(self, user: str, message: FakeMessage, label: str, *, payload: str = "") -> str:
        chosen = payload or message.payload(label)
        body = self.press_payload(user, message, chosen)
        self._push("interactive", body)
        return str(body["trigger_id"])

    def press_payload(self, user: str, message: FakeMessage, chosen: str) -> dict[str, Any]:
        channel, _, ts = message.name.partition(":")
        return {
            "type": "block_actions",
            "team": {"id": self.team, "domain": "fake"},
            "user": {"id": user, "team_id": self.team, "username": "somebody"},
            "api_app_id": "A0FAKE",
            "container": {"type": "message", "channel_id": channel, "message_ts": ts},
            "trigger_id": f"{self._next()}.fake",
            "actions": [{"type": "button", "action_id": "holdfast_x", "value": chosen}],
        }

    def forge(self, user: str, text: str, *, place: str) -> None:
        """An envelope of another workspace, and a guest from there."""
        self.say(user, text, place=place, team="T0EVIL")
        self.say(user, text, place=place, fields={"user_team": "T0EVIL"})

    def redeliver(self) -> None:
        """As after acknowledgements that got lost."""
        for envelope in list(self.envelopes.values()):
            self._send({**envelope, "retry_attempt": 1, "retry_reason": "timeout"})

    def retry(self) -> None:
        for name, envelope in list(self.envelopes.items()):
            if name not in self.acknowledged:
                self._send({**envelope, "retry_attempt": 1, "retry_reason": "timeout"})

    def signed(self, body: bytes, *, at: int | None = None) -> dict[str, str]:
        """The headers of a request over HTTP."""
        stamp = str(int(time.time()) if at is None else at)
        text = b"v0:" + stamp.encode() + b":" + body
        digest = hmac.new(self.signing_secret.encode(), text, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}

    def _next(self) -> int:
        with self._changed:
            self._number += 1
            return self._number

    def _ts(self, at: object = None) -> str:
        seconds = int(at) if isinstance(at, int | float) else int(time.time())
        return f"{seconds}.{self._next():06d}"

    def _direct(self, user: str) -> str:
        return "D" + user[1:]

    def _place(self, channel: str) -> str:
        """A user's id stands for their direct messages."""
        return "U" + channel[1:] if channel.startswith("D") else channel

    def _push(self, kind: str, payload: dict[str, Any]) -> None:
        name = f"envelope-{self._next()}"
        envelope = {
            "type": kind,
            "envelope_id": name,
            "accepts_response_payload": kind == "interactive",
            "payload": payload,
            "retry_attempt": 0,
            "retry_reason": "",
        }
        self._note(lambda: self.envelopes.__setitem__(name, envelope))
        self._send(envelope)

    def _send(self, envelope: dict[str, Any]) -> None:
        def send() -> None:
            for socket in self.sockets[-1:]:
                self._tasks.append(asyncio.ensure_future(_quietly(socket, envelope)))

        self._in_loop(send)

    # --- the API

    def app(self) -> "web.Application":
        from aiohttp import web

        self._tasks: list[asyncio.Future[None]] = []
        app = web.Application()
        app.router.add_get("/link", self._socket)
        app.router.add_route("*", "/api/{method}", self._handle)
        return app

    async def _socket(self, request: "web.Request") -> "web.WebSocketResponse":
        from aiohttp import WSMsgType, web

        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        await socket.send_json({"type": "hello", "num_connections": 1, "connection_info": {}})
        for envelope in list(self.envelopes.values()):
            if envelope["envelope_id"] not in self.acknowledged:
                await socket.send_json({**envelope, "retry_attempt": 1, "retry_reason": "timeout"})
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                name = str(json.loads(message.data)["envelope_id"])
                self._note(lambda name=name: self.acknowledged.append(name))  # type: ignore[misc]  # a bound default
        self.sockets.remove(socket)
        return socket

    async def _handle(self, request: "web.Request") -> "web.StreamResponse":
        method = request.match_info["method"]
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in (self.bot_token, self.app_token):
            return _no("invalid_auth")
        body = dict(request.query)
        if request.content_type == "application/json":
            body |= await request.json()
        else:
            body |= {key: str(value) for key, value in (await request.post()).items()}
        self._note(lambda: self.requests.append(method))
        match method:
            case "auth.test":
                return _ok({"team_id": self.team, "user_id": self.bot, "bot_id": "B0BOT"})
            case "apps.connections.open":
                return _ok({"url": f"ws://127.0.0.1:{self.port}/link"})
            case "conversations.open":
                return _ok({"channel": {"id": self._direct(body["users"])}})
            case "conversations.info":
                shared = body["channel"] in self.shared
                return _ok({"channel": {"id": body["channel"], "is_ext_shared": shared}})
            case "conversations.history" | "conversations.replies":
                return self._list(body)
            case "chat.postMessage":
                return self._post(request, body)
            case "chat.update":
                return self._update(body)
            case "chat.postEphemeral":
                self._note(lambda: self.whispers.append((body["user"], _unescaped(body["text"]))))
                return _ok({"message_ts": self._ts()})
            case _:
                return _no("unknown_method")

    def _list(self, body: dict[str, Any]) -> "web.Response":
        if self._is_busy():
            return _no("ratelimited", status=429, headers={"Retry-After": "1"})
        found = [
            each
            for each in self.history
            if each["channel"] == body["channel"]
            and float(each["ts"]) > float(body.get("oldest", 0))
            and (_root(each) == body["ts"] if "ts" in body else _root(each) == each["ts"])
        ]
        if "ts" not in body:
            found.reverse()  # a history has the newest first, a thread the oldest
        at, limit = int(body.get("cursor", 0)), int(body.get("limit", 100))
        more = str(at + limit) if at + limit < len(found) else ""
        return _ok(
            {
                "messages": found[at : at + limit],
                "has_more": bool(more),
                "response_metadata": {"next_cursor": more},
            }
        )

    def _post(self, request: "web.Request", body: dict[str, Any]) -> "web.StreamResponse":
        fault = self._take_fault()
        if fault == "too_many":
            return _no("ratelimited", status=429, headers={"Retry-After": "1"})
        if fault == "refused":
            return _no("channel_not_found")
        if fault == "server_error":
            return _no("internal_error", status=500)
        blocks = body.get("blocks") or []
        if flaw := _flaw(blocks):
            return _no(flaw)
        channel = body["channel"]
        channel = self._direct(channel) if channel.startswith("U") else channel
        ts = self._ts()
        sent = FakeMessage(
            place=self._place(channel),
            name=f"{channel}:{ts}",
            text=_shown(blocks) or _unescaped(body["text"]),
            thread=body.get("thread_ts") or "",
            buttons=_buttons(blocks),
            preformatted=_preformatted(blocks),
        )
        entry = {
            "type": "message",
            "user": self.bot,
            "bot_id": "B0BOT",
            "channel": channel,
            "ts": ts,
            "text": body["text"],
            "metadata": body.get("metadata"),
            **({"thread_ts": body["thread_ts"]} if body.get("thread_ts") else {}),
        }
        self._note(lambda: self.history.append(entry))
        self._note(lambda: self.messages.append(sent))
        if fault == "reset_after":
            reset(request)
        return _ok({"channel": channel, "ts": ts, "message": entry})

    def _update(self, body: dict[str, Any]) -> "web.Response":
        name = f"{body['channel']}:{body['ts']}"
        message = next((each for each in self.messages if each.name == name), None)
        if message is None:
            return _no("message_not_found")
        blocks = body.get("blocks") or []

        def edit() -> None:
            message.text = _shown(blocks) or _unescaped(body["text"])
            message.buttons, message.edits = _buttons(blocks), message.edits + 1

        self._note(edit)
        return _ok({"channel": body["channel"], "ts": body["ts"]})


def _root(message: dict[str, Any]) -> str:
    """The first message of its thread. A history lists that one, and not its replies."""
    return str(message.get("thread_ts") or message["ts"])


async def _quietly(socket: "web.WebSocketResponse", envelope: dict[str, Any]) -> None:
    """A server that was killed may leave its connection behind for a moment."""
    with contextlib.suppress(ConnectionResetError):
        await socket.send_json(envelope)


def _flaw(blocks: list[dict[str, Any]]) -> str | None:
    if sum(len(json.dumps(each, ensure_ascii=False)) for each in blocks) > _BLOCK_CHARS_MAX + 900:
        return "msg_blocks_too_long"
    for block in blocks:
        if block["type"] == "section" and not 0 < len(block["text"]["text"]) <= _SECTION_CHARS_MAX:
            return "invalid_blocks"
        for each in block.get("elements", ()) if block["type"] == "actions" else ():
            if len(each["value"]) > 2_000 or len(each["text"]["text"]) > 75:
                return "invalid_blocks"
    return None


def _buttons(blocks: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (each["text"]["text"], each["value"])
        for block in blocks
        if block["type"] == "actions"
        for each in block["elements"]
    ]


def _preformatted(blocks: list[dict[str, Any]]) -> str:
    return "".join(
        part["text"]
        for block in blocks
        if block["type"] == "rich_text"
        for each in block["elements"]
        if each["type"] == "rich_text_preformatted"
        for part in each["elements"]
    )


def _shown(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(
        block["text"]["text"] if block["type"] == "section" else _preformatted([block])
        for block in blocks
        if block["type"] in ("section", "rich_text")
    )


def _escaped(address: str, text: str) -> str:
    return address + text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _ok(fields: dict[str, Any]) -> "web.Response":
    from aiohttp import web

    return web.json_response({"ok": True, **fields})


def _no(error: str, *, status: int = 200, headers: dict[str, str] | None = None) -> "web.Response":
    from aiohttp import web

    return web.json_response({"ok": False, "error": error}, status=status, headers=headers)
