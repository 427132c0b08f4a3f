"""
Discord on loopback: the gateway (HELLO, IDENTIFY, READY, RESUME, MESSAGE_CREATE and
INTERACTION_CREATE, compressed as a zlib stream), and the HTTP methods that a channel uses.

Shapes: the payloads that discord.py 2.7.1 reads and writes (API version 10), and Discord's
published structure of an interaction. `enforce_nonce`: Discord's change log of 2024-02-12. They
were not compared field by field with docs.discord.com. A message's nonce is not part of a listed
message. Not imitated: rate limits by themselves, permissions, sharding, the replay of a resumed
connection.
"""

import asyncio
import contextlib
import json
import time
import zlib
from typing import TYPE_CHECKING, Any

from holdfast.adapters.channels.discord.events import snowflake_at
from holdfast.ports.chat.messages import KnownThread, direct_address
from holdfast.testing.fakes.chat import FakeChat, FakeMessage, reset
from holdfast.testing.fakes.discord_payloads import (
    DIRECT,
    FENCE,
    buttons_of,
    direct_channel,
    error,
    json_answer,
    member_of,
    seen,
    too_many,
    user_of,
)

if TYPE_CHECKING:
    from aiohttp import web

_CONTENT_MAX, _CUSTOM_ID_MAX, _LABEL_MAX = 2_000, 100, 80
_OPEN = ("/gateway", "/api/gateway", "/api/interactions/", "/api/webhooks/")
_BOT, _APPLICATION, _GUILD = "9000000000000000001", "9000000000000000002", "9000000000000000003"


class FakeDiscord(FakeChat):
    kind = "discord"
    bot_token = "fake.discord.token-of-a-test"  # noqa: S105  # a fake's
    acknowledges = False
    has_whispers = False
    can_find = True
    has_history = True

    def __init__(self) -> None:
        super().__init__()
        self.history: list[dict[str, Any]] = []
        self.dispatched: list[tuple[str, dict[str, Any]]] = []
        self.sockets: list[_Socket] = []
        self._presses: dict[str, str] = {}  # user, by the token of the interaction
        self._number = 0
        self._tasks: list[asyncio.Future[None]] = []

    def settings(self) -> str:
        return (
            '[channels.discord]\nkind = "discord"\nbot_token_env = "FAKE_DISCORD_TOKEN"\n'
            f'api = "{self.address}/api"\n'
        )

    def environment(self) -> dict[str, str]:
        return {"FAKE_DISCORD_TOKEN": self.bot_token}

    # --- people

    def say(
        self, user: str, text: str, *, place: str | None = None, thread: str = "", **more: Any
    ) -> str:
        """`mention`: whether it names the bot. `at`: Unix seconds. `fields`: of the message."""
        is_mention = place is not None and more.get("mention", True)
        message = self._message(
            user_of(user, str(more.get("name", "Somebody"))),
            thread or place or direct_channel(user),
            f"<@{_BOT}> {text}" if is_mention else text,
            at=more.get("at"),
        )
        message["mentions"] = [user_of(_BOT, "holdfast", is_bot=True)] if is_mention else []
        message |= more.get("fields", {})
        self._note(lambda: self.history.append(message))
        if not more.get("is_missed"):
            self._dispatch("MESSAGE_CREATE", self._with_guild(message))
        return str(message["id"])

    def press(self, user: str, message: FakeMessage, label: str, *, payload: str = "") -> str:
        chosen = payload or message.payload(label)
        channel, _, name = message.name.partition(":")
        ident = self._next()
        shown = next((each for each in self.history if each["id"] == name), None)
        interaction = {
            "id": ident,
            "application_id": _APPLICATION,
            "type": 3,
            "version": 1,
            "token": f"token-{ident}",
            "channel_id": channel,
            "channel": self._channel(channel),
            "attachment_size_limit": 1,
            "entitlements": [],
            "data": {"custom_id": chosen, "component_type": 2},
            "message": shown or self._message(user_of(_BOT, "holdfast", is_bot=True), channel, ""),
        }
        if channel.startswith(DIRECT):
            interaction["user"] = user_of(user, "Somebody")
        else:
            interaction |= {"guild_id": _GUILD, "member": member_of(user)}
        self._presses[str(interaction["token"])] = user
        self._dispatch("INTERACTION_CREATE", interaction)
        return ident

    def forge(self, user: str, text: str, *, place: str) -> None:
        """Another account takes the user's name, a webhook the user's id, and a bot both."""
        self.say("1666", text, place=place, name=user)
        self.say(user, text, place=place, fields={"webhook_id": "123"})
        self.say(user, text, place=place, fields={"author": user_of(user, user, is_bot=True)})

    def redeliver(self) -> None:
        """As after a connection that was resumed."""
        for kind, data in list(self.dispatched):
            self._push(kind, data)

    def drop(self) -> None:
        """Close every connection of the gateway, as Discord does now and then."""

        def close() -> None:
            for socket in self.sockets:
                self._tasks.append(asyncio.ensure_future(socket.close()))

        self._in_loop(close)

    def missed_since(self, user: str) -> tuple[KnownThread, ...]:
        return (KnownThread(direct_address(user), direct_channel(user), "0"),)

    def _next(self, at: object = None) -> str:
        """An id, which begins with its time."""
        seconds = float(at) if isinstance(at, int | float) else time.time()
        with self._changed:
            self._number += 1
            return str(snowflake_at(int(seconds * 1000)) + self._number)

    def _message(
        self, author: dict[str, Any], channel: str, text: str, *, at: object = None
    ) -> dict[str, Any]:
        return {
            "id": self._next(at),
            "channel_id": channel,
            "author": author,
            "content": text,
            "type": 0,
            "timestamp": "2026-11-17T00:00:00.000000+00:00",
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "components": [],
        }

    def _with_guild(self, message: dict[str, Any]) -> dict[str, Any]:
        if str(message["channel_id"]).startswith(DIRECT):
            return message
        member = {key: value for key, value in member_of("0").items() if key != "user"}
        return {**message, "guild_id": _GUILD, "member": member}

    def _channel(self, channel: str) -> dict[str, Any]:
        if channel.startswith(DIRECT):
            recipient = user_of(channel[1:], "Somebody")
            return {"id": channel, "type": 1, "last_message_id": None, "recipients": [recipient]}
        return {
            "id": channel,
            "type": 0,
            "guild_id": _GUILD,
            "name": "ops",
            "position": 0,
            "permission_overwrites": [],
            "parent_id": None,
            "nsfw": False,
        }

    # --- the gateway

    def _dispatch(self, kind: str, data: dict[str, Any]) -> None:
        self._note(lambda: self.dispatched.append((kind, data)))
        self._push(kind, data)

    def _push(self, kind: str, data: dict[str, Any]) -> None:
        def push() -> None:
            for socket in self.sockets[-1:]:
                self._tasks.append(asyncio.ensure_future(socket.dispatch(kind, data)))

        self._in_loop(push)

    async def _gateway(self, request: "web.Request") -> "web.WebSocketResponse":
        from aiohttp import WSMsgType, web

        response = web.WebSocketResponse()
        await response.prepare(request)
        socket = _Socket(response)
        await socket.send({"op": 10, "d": {"heartbeat_interval": 41_250}})
        async for message in response:
            if message.type is not WSMsgType.TEXT:
                continue
            payload = json.loads(message.data)
            if payload["op"] == 1:
                await socket.send({"op": 11})
            elif payload["op"] in (2, 6):
                if payload["d"]["token"] != self.bot_token:
                    await response.close(code=4004)
                elif payload["op"] == 2:
                    self.sockets.append(socket)
                    await socket.dispatch("READY", self._ready())
                else:
                    await socket.send({"op": 9, "d": False})
        if socket in self.sockets:
            self.sockets.remove(socket)
        return response

    def _ready(self) -> dict[str, Any]:
        return {
            "v": 10,
            "user": user_of(_BOT, "holdfast", is_bot=True),
            "guilds": [],
            "session_id": "fake-session",
            "resume_gateway_url": f"ws://127.0.0.1:{self.port}/gateway",
            "application": {"id": _APPLICATION, "flags": 0},
        }

    # --- the API

    def app(self) -> "web.Application":
        from aiohttp import web

        @web.middleware
        async def check_token(request: web.Request, handler: Any) -> web.StreamResponse:
            """A press and its answers have a token of their own in the path."""
            self._note(lambda: self.requests.append(f"{request.method} {request.path}"))
            is_open = request.path.startswith(_OPEN)
            if not is_open and request.headers.get("Authorization") != f"Bot {self.bot_token}":
                return error(401, 0, "401: Unauthorized")
            answer: web.StreamResponse = await handler(request)
            return answer

        app = web.Application(middlewares=[check_token])
        add = app.router.add_route
        add("GET", "/gateway/", self._gateway)
        add("GET", "/gateway", self._gateway)
        add("GET", "/api/gateway", self._where)
        add("GET", "/api/users/@me", self._me)
        add("GET", "/api/oauth2/applications/@me", self._application)
        add("POST", "/api/users/@me/channels", self._open)
        add("GET", "/api/channels/{channel}", self._show)
        add("GET", "/api/channels/{channel}/messages", self._list)
        add("POST", "/api/channels/{channel}/messages", self._post)
        add("PATCH", "/api/channels/{channel}/messages/{message}", self._edit)
        add("POST", "/api/interactions/{id}/{token}/callback", self._acknowledge)
        add("POST", "/api/webhooks/{application}/{token}", self._whisper)
        return app

    async def _where(self, _: "web.Request") -> "web.Response":
        return json_answer({"url": f"ws://127.0.0.1:{self.port}/gateway"})

    async def _me(self, _: "web.Request") -> "web.Response":
        return json_answer(user_of(_BOT, "holdfast", is_bot=True))

    async def _application(self, _: "web.Request") -> "web.Response":
        return json_answer(
            {
                "id": _APPLICATION,
                "name": "holdfast",
                "description": "",
                "icon": None,
                "bot_public": False,
                "bot_require_code_grant": False,
                "owner": user_of("42", "owner"),
                "verify_key": "0" * 64,
                "flags": 0,
            }
        )

    async def _open(self, request: "web.Request") -> "web.Response":
        return json_answer(
            self._channel(direct_channel(str((await request.json())["recipient_id"])))
        )

    async def _show(self, request: "web.Request") -> "web.Response":
        return json_answer(self._channel(request.match_info["channel"]))

    async def _list(self, request: "web.Request") -> "web.Response":
        if self._is_busy():
            return too_many()
        after, limit = int(request.query.get("after", 0)), int(request.query.get("limit", 50))
        found = [
            {key: value for key, value in each.items() if key != "nonce"}
            for each in self.history
            if each["channel_id"] == request.match_info["channel"] and int(each["id"]) > after
        ]
        return json_answer(found[:limit][::-1])

    async def _post(self, request: "web.Request") -> "web.StreamResponse":
        body, channel = await request.json(), request.match_info["channel"]
        fault = self._take_fault()
        if fault == "too_many":
            return too_many()
        if fault == "refused":
            return error(403, 50007, "Cannot send messages to this user")
        if fault == "server_error":
            return error(500, 0, "500: Internal Server Error")
        buttons = buttons_of(body)
        if not 0 < len(body["content"]) <= _CONTENT_MAX or any(
            len(label) > _LABEL_MAX or len(payload) > _CUSTOM_ID_MAX for label, payload in buttons
        ):
            return error(400, 50035, "Invalid Form Body")
        nonce = body.get("nonce")
        known = next((e for e in self.history if nonce and e.get("nonce") == nonce), None)
        if known is not None and body.get("enforce_nonce"):
            return json_answer(known)
        entry = self._message(user_of(_BOT, "holdfast", is_bot=True), channel, body["content"])
        entry |= {"nonce": nonce, "components": body.get("components", [])}
        sent = FakeMessage(
            place=channel[1:] if channel.startswith(DIRECT) else channel,
            name=f"{channel}:{entry['id']}",
            text=seen(body["content"]),
            buttons=buttons,
            preformatted="".join(FENCE.findall(body["content"])),
        )
        self._note(lambda: self.history.append(entry))
        self._note(lambda: self.messages.append(sent))
        if fault == "reset_after":
            reset(request)
        return json_answer(entry)

    async def _edit(self, request: "web.Request") -> "web.Response":
        body = await request.json()
        name = f"{request.match_info['channel']}:{request.match_info['message']}"
        message = next((each for each in self.messages if each.name == name), None)
        if message is None:
            return error(404, 10008, "Unknown Message")
        if len(body["content"]) > _CONTENT_MAX:
            return error(400, 50035, "Invalid Form Body")

        def edit() -> None:
            message.text, message.buttons = seen(body["content"]), buttons_of(body)
            message.edits += 1

        self._note(edit)
        return json_answer({"id": request.match_info["message"]})

    async def _acknowledge(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        body, ident = await request.json(), request.match_info["id"]
        if body != {"type": 6}:
            return error(400, 50035, "Invalid Form Body")
        if ident in self.acknowledged:
            return error(400, 40060, "Interaction has already been acknowledged.")
        self._note(lambda: self.acknowledged.append(ident))
        return web.Response(status=204)

    async def _whisper(self, request: "web.Request") -> "web.Response":
        body = await request.json()
        user = self._presses.get(request.match_info["token"])
        if user is None or body.get("flags") != 64:
            return error(404, 10015, "Unknown Webhook")
        self._note(lambda: self.whispers.append((user, seen(body["content"]))))
        return json_answer({"id": self._next()})


class _Socket:
    """One connection of the gateway, compressed as one zlib stream."""

    def __init__(self, response: "web.WebSocketResponse") -> None:
        self._response = response
        self._zlib = zlib.compressobj()
        self._seq = 0

    async def dispatch(self, kind: str, data: dict[str, Any]) -> None:
        self._seq += 1
        await self.send({"op": 0, "t": kind, "s": self._seq, "d": data})

    async def close(self) -> None:
        await self._response.close(code=4000)

    async def send(self, payload: dict[str, Any]) -> None:
        """A server that was killed may leave its connection behind for a moment."""
        with contextlib.suppress(ConnectionResetError):
            raw = self._zlib.compress(json.dumps(payload).encode())
            await self._response.send_bytes(raw + self._zlib.flush(zlib.Z_SYNC_FLUSH))
