"""
Telegram as a chat. Updates come by long polling: an update is forgotten by Telegram when the next
poll names a higher one, and that poll is made after the inbox has returned.

A message that may have been sent cannot be looked for: the Bot API has no way to read a chat. So it
stays in doubt.
"""

import asyncio
import contextlib
from typing import Any, Literal

from holdfast.adapters.channels.chat_sizes import CHAT_SIZES
from holdfast.adapters.channels.history import UNREADABLE, log
from holdfast.adapters.channels.prompt_text import PromptText, prompt_text
from holdfast.adapters.channels.telegram.bot_api import API, BotApi
from holdfast.adapters.channels.telegram.updates import (
    Me,
    address,
    arrived,
    message_name,
    pressed,
)
from holdfast.ports.chat.messages import ChatParcel, ChatReceipt, Taken
from holdfast.ports.chat.platform import ChatInbox
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered

POLL_SECONDS = 25
AGAIN_SECONDS = 2.0
_ALERT_CHARS_MAX = 200  # of the answer to a press
_ROOM, _SIZE = CHAT_SIZES["telegram"]
_UPDATED_ALREADY = ("message is not modified", "message to edit not found", "can't be edited")


class TelegramPlatform:
    def __init__(self, token: str, *, api: str = API, page: str | None = None) -> None:
        self._api = BotApi(token, api=api)
        self._page = page
        self._offset: int | None = None  # of the next update; every lower one is durable here
        self._up = False

    @property
    def is_up(self) -> bool:
        return self._up

    # --- out

    async def send(self, parcel: ChatParcel) -> ChatReceipt:
        laid = self._laid(parcel)
        fields = _prompt_fields(laid) if laid is not None else {"text": parcel.text}
        sent = await self._api.call(
            "sendMessage",
            **address(parcel.to),
            **fields,
            link_preview_options={"is_disabled": True},
        )
        message = message_name(sent["chat"]["id"], sent["message_id"])
        return ChatReceipt(message, None if laid is None else laid.shown)

    async def update(self, parcel: ChatParcel) -> None:
        chat, _, message = parcel.replaces.partition(":")
        try:
            await self._api.call(
                "editMessageText",
                chat_id=int(chat),
                message_id=int(message),
                text=parcel.text,
                entities=[_preformatted(parcel.text, "")],
                link_preview_options={"is_disabled": True},
            )
        except NotDelivered as exc:
            if not any(text in exc.message for text in _UPDATED_ALREADY):
                raise

    async def find(
        self,
        parcel: ChatParcel,  # noqa: ARG002  # nothing on the platform can be asked for it
    ) -> ChatReceipt | Literal["absent", "unknown"]:
        return "unknown"

    def _laid(self, parcel: ChatParcel) -> PromptText | None:
        if parcel.prompt is None:
            return None
        return prompt_text(parcel.prompt, room=_ROOM, size=_SIZE, page=self._page)

    # --- in

    async def check(self) -> str:
        try:
            me = Me(await self._api.call("getMe"))
        except DeliveryInDoubt as exc:
            raise NotDelivered(str(exc), may_pass=True) from exc
        return f"@{me.username} (bot {me.id})"

    async def run(self, inbox: ChatInbox) -> None:
        me: Me | None = None
        try:
            while True:
                try:
                    if me is None:
                        me = Me(await self._api.call("getMe"))
                    updates = await self._poll()
                    self._up = True
                    inbox.came_up()
                    for update in updates:
                        await self._take(update, me, inbox)
                        self._offset = int(update["update_id"]) + 1
                except (NotDelivered, DeliveryInDoubt) as exc:
                    self._up = False
                    inbox.went_down(str(exc))
                    await asyncio.sleep(max(AGAIN_SECONDS, getattr(exc, "wait_seconds", 0.0)))
        finally:
            self._up = False

    async def _poll(self) -> list[dict[str, Any]]:
        """The first poll does not wait, so that the platform is known to answer at once."""
        wait = POLL_SECONDS if self._up else 0
        updates: list[dict[str, Any]] = await self._api.call(
            "getUpdates",
            seconds=wait + 15.0,
            offset=self._offset,
            timeout=wait,
            allowed_updates=["message", "callback_query"],
        )
        return updates

    async def _take(self, update: dict[str, Any], me: Me, inbox: ChatInbox) -> None:
        """
        Return when the update is durable, or does not concern us. After an error it comes again. An
        update that can't be read is left out: it would come for ever, before all others.
        """
        try:
            message, button = arrived(update, me), pressed(update)
        except UNREADABLE as exc:
            log.warning("Telegram: an update can't be read: %s", type(exc).__name__)
            return
        if message is not None:
            taken = await inbox.message(message)
            if taken.words is not None:
                await self._whisper(message.thread, taken.words)
        elif button is not None:
            await self._answer(button.press, await inbox.press(button))

    async def _whisper(self, thread: str, words: str) -> None:
        """Best effort: the words explain, and nothing depends on them."""
        with contextlib.suppress(NotDelivered, DeliveryInDoubt):
            await self._api.call("sendMessage", **address(thread), text=words[:_ROOM])

    async def _answer(self, press: str, taken: Taken) -> None:
        """Only the person who pressed sees these words. Best effort: the journal decides."""
        with contextlib.suppress(NotDelivered, DeliveryInDoubt):
            await self._api.call(
                "answerCallbackQuery",
                callback_query_id=press,
                text=None if taken.words is None else taken.words[:_ALERT_CHARS_MAX],
                show_alert=taken.words is not None,
            )


def _prompt_fields(laid: PromptText) -> dict[str, Any]:
    keyboard = [[{"text": each.label, "callback_data": each.payload} for each in laid.buttons]]
    return {
        "text": laid.before + laid.display + laid.after,
        "entities": [_preformatted(laid.display, laid.before)],
        "reply_markup": {"inline_keyboard": keyboard} if laid.buttons else None,
    }


def _preformatted(text: str, before: str) -> dict[str, Any]:
    """By offsets, never by markup in the text: then nothing in the text can act."""
    return {"type": "pre", "offset": _SIZE(before), "length": _SIZE(text)}
