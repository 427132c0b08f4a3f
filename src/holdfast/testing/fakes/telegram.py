"""
Telegram's Bot API on loopback: getMe, getUpdates with its offset, sendMessage, editMessageText and
answerCallbackQuery.

Shapes, limits and error texts: notes on core.telegram.org/bots/api, Bot API 10.3, of 2026-11. Not
imitated: rate limits by themselves, entities that Telegram detects, users who blocked the bot.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Any

from holdfast.adapters.channels.chat_sizes import utf16_units
from holdfast.testing.fakes.chat import FakeChat, FakeMessage, reset

if TYPE_CHECKING:
    from aiohttp import web

_TEXT_MAX = 4_096
_CALLBACK_BYTES_MAX = 64
_BOT = 7_000_000_001


class FakeTelegram(FakeChat):
    kind = "telegram"
    bot_token = "7000000001:AAfake-token-of-a-test"  # noqa: S105  # a fake's
    username = "holdfast_bot"
    has_whispers = False

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[dict[str, Any]] = []
        self.confirmed = 0  # every update below was confirmed by a poll
        self._number = 100
        self._is_repeating = False
        self._came = asyncio.Event()
        self._pressed: dict[str, str] = {}  # user, by the id of the press

    def settings(self) -> str:
        return (
            '[channels.telegram]\nkind = "telegram"\nbot_token_env = "FAKE_TELEGRAM_TOKEN"\n'
            f'api = "{self.address}"\n'
        )

    def environment(self) -> dict[str, str]:
        return {"FAKE_TELEGRAM_TOKEN": self.bot_token}

    # --- people

    def say(
        self, user: str, text: str, *, place: str | None = None, thread: str = "", **more: Any
    ) -> str:
        """`mention`: whether it names the bot. `at`: Unix seconds. `fields`: of the message."""
        mention = f"@{self.username}"
        entities = []
        if place is not None and more.get("mention", True):
            text = f"{mention} {text}"
            entities = [{"type": "mention", "offset": 0, "length": len(mention)}]
        chat = {"id": int(place), "type": "supergroup"} if place else _private(user)
        message = {
            "message_id": self._next(),
            "from": {"id": int(user), "is_bot": False, "first_name": more.get("name", "Somebody")},
            "chat": chat,
            "date": int(more.get("at", time.time())),
            "text": text,
            "entities": entities,
            **({"message_thread_id": int(thread), "is_topic_message": True} if thread else {}),
            **more.get("fields", {}),
        }
        self._update({"message": message})
        return str(message["message_id"])

    def press(self, user: str, message: FakeMessage, label: str, *, payload: str = "") -> str:
        chosen = payload or message.payload(label)
        chat, _, number = message.name.partition(":")
        query = {
            "id": str(self._next() * 1_000_003),
            "from": {"id": int(user), "is_bot": False, "first_name": "Somebody"},
            "message": {"message_id": int(number), "chat": {"id": int(chat)}, "date": 1},
            "chat_instance": "1",
            "data": chosen,
        }
        self._pressed[str(query["id"])] = user
        self._update({"callback_query": query})
        return str(query["id"])

    def forge(self, user: str, text: str, *, place: str) -> None:
        """Another account takes the user's name, and a channel writes in the user's name."""
        self.say("1666", text, place=place, name=user)
        self.say(user, text, place=place, fields={"sender_chat": {"id": -100777}})

    def redeliver(self) -> None:
        """The next poll gets everything again, as if no poll had confirmed it."""
        with self._changed:
            self._is_repeating = True
        self._in_loop(self._came.set)

    def _next(self) -> int:
        with self._changed:
            self._number += 1
            return self._number

    def _update(self, fields: dict[str, Any]) -> None:
        self._note(lambda: self.updates.append({"update_id": len(self.updates) + 1, **fields}))
        self._in_loop(self._came.set)

    # --- the API

    def app(self) -> "web.Application":
        from aiohttp import web

        app = web.Application()
        app.router.add_post("/bot{token}/{method}", self._handle)
        return app

    async def _handle(self, request: "web.Request") -> "web.StreamResponse":
        method = request.match_info["method"]
        if request.match_info["token"] != self.bot_token:
            return _error(401, "Unauthorized")
        body = await request.json()
        self._note(lambda: self.requests.append(method))
        match method:
            case "getMe":
                return _ok({"id": _BOT, "is_bot": True, "username": self.username})
            case "getUpdates":
                return await self._get_updates(body)
            case "sendMessage":
                return self._send_message(request, body)
            case "editMessageText":
                return self._edit(body)
            case "answerCallbackQuery":
                return self._answer_press(body)
            case _:
                return _error(404, "Not Found: method not found")

    async def _get_updates(self, body: dict[str, Any]) -> "web.Response":
        offset, ends = int(body.get("offset") or 0), time.monotonic() + float(body["timeout"])
        if offset:
            self._note(lambda: self._confirm(offset))
        while True:
            self._came.clear()
            with self._changed:
                known = 0 if self._is_repeating else self.confirmed
                self._is_repeating = False
                waiting = [each for each in self.updates if each["update_id"] > known]
            if waiting or time.monotonic() >= ends:
                return _ok(waiting)
            try:
                await asyncio.wait_for(self._came.wait(), max(0.01, ends - time.monotonic()))
            except TimeoutError:
                return _ok([])

    def _confirm(self, offset: int) -> None:
        self.confirmed = offset - 1
        self.acknowledged = [str(each["update_id"]) for each in self.updates[: offset - 1]]

    def _send_message(self, request: "web.Request", body: dict[str, Any]) -> "web.StreamResponse":
        fault = self._take_fault()
        if fault == "too_many":
            return _error(429, "Too Many Requests: retry after 1", {"retry_after": 1})
        if fault == "refused":
            return _error(403, "Forbidden: bot was blocked by the user")
        if fault == "server_error":
            return _error(500, "Internal Server Error")
        keyboard = (body.get("reply_markup") or {}).get("inline_keyboard") or []
        buttons = [(each["text"], each["callback_data"]) for row in keyboard for each in row]
        if not body["text"] or utf16_units(body["text"]) > _TEXT_MAX:
            return _error(400, "Bad Request: message is too long")
        if any(len(payload.encode()) > _CALLBACK_BYTES_MAX for _, payload in buttons):
            return _error(400, "Bad Request: BUTTON_DATA_INVALID")
        number, chat = self._next(), int(body["chat_id"])
        sent = FakeMessage(
            place=str(chat),
            name=f"{chat}:{number}",
            text=body["text"],
            thread=str(body.get("message_thread_id", "")),
            buttons=buttons,
            preformatted=_preformatted(body),
        )
        self._note(lambda: self.messages.append(sent))
        if fault == "reset_after":
            reset(request)
        return _ok({"message_id": number, "chat": {"id": chat}, "date": 1, "text": body["text"]})

    def _edit(self, body: dict[str, Any]) -> "web.Response":
        name = f"{body['chat_id']}:{body['message_id']}"
        message = next((each for each in self.messages if each.name == name), None)
        if message is None:
            return _error(400, "Bad Request: message to edit not found")
        if message.text == body["text"] and not message.buttons:
            return _error(400, "Bad Request: message is not modified")

        def edit() -> None:
            message.text, message.buttons, message.edits = body["text"], [], message.edits + 1

        self._note(edit)
        return _ok({"message_id": body["message_id"], "chat": {"id": body["chat_id"]}})

    def _answer_press(self, body: dict[str, Any]) -> "web.Response":
        user = self._pressed.get(body["callback_query_id"], "")
        words = body.get("text") or ""
        if utf16_units(words) > 200:
            return _error(400, "Bad Request: MESSAGE_TOO_LONG")
        if words:
            self._note(lambda: self.whispers.append((user, words)))
        return _ok(True)  # noqa: FBT003  # the API's answer


def _private(user: str) -> dict[str, Any]:
    return {"id": int(user), "type": "private"}


def _preformatted(body: dict[str, Any]) -> str:
    units = body["text"].encode("utf-16-le")
    return "".join(
        units[2 * each["offset"] : 2 * (each["offset"] + each["length"])].decode("utf-16-le")
        for each in body.get("entities") or ()
        if each["type"] == "pre"
    )


def _ok(result: Any) -> "web.Response":
    from aiohttp import web

    return web.json_response({"ok": True, "result": result})


def _error(
    status: int, description: str, parameters: dict[str, Any] | None = None
) -> "web.Response":
    from aiohttp import web

    return web.json_response(
        {
            "ok": False,
            "error_code": status,
            "description": description,
            **({"parameters": parameters} if parameters else {}),
        },
        status=status,
    )
