"""
Discord as a chat. A pressed button is acknowledged at once, since Discord waits 3 s for that, and
decided afterwards; the acknowledgement changes nothing that people see.

Discord does not wait for an acknowledgement of a message, and sends none again. So a message is
kept here until the inbox has taken it, and a start reads what came after the last durable one.

A message has a nonce made from its delivery. Discord answers a repeat within minutes with the first
message. Later it is looked for in the channel.
"""

import asyncio
import contextlib
from functools import partial
from typing import Any, Literal

from holdfast.adapters.channels.discord import events, outgoing
from holdfast.adapters.channels.discord.events import DiscordSelf, Place
from holdfast.adapters.channels.discord.rest_api import API, DiscordApi
from holdfast.adapters.channels.history import (
    OVERLAP_SECONDS,
    UNREADABLE,
    log,
    read_patiently,
)
from holdfast.errors import HoldfastError
from holdfast.ports.chat.messages import ChatParcel, ChatReceipt, Shown, Taken, direct_address
from holdfast.ports.chat.platform import ChatInbox
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered

AGAIN_SECONDS = 2.0
_KEPT_TRIES = 150  # five minutes; a later start reads the message again
_LISTED_MAX, _PAGES_MAX = 100, 40
_CLOCKS_APART_MS = 5_000  # Discord's clock and ours
_PLACES_MAX = 10_000  # known channels; beyond, they are asked for again
_UNKNOWN_MESSAGE = "(10008)"
_DEFERRED_UPDATE = {"type": 6}


class DiscordPlatform:
    def __init__(self, token: str, *, api: str = API, page: str | None = None) -> None:
        self._token, self._address = token, api.rstrip("/")
        self._api = DiscordApi(token, api=api)
        self._page = page
        self._up = False
        self._in_order = asyncio.Lock()  # the library hands on each event in a task of its own
        self._me: DiscordSelf | None = None
        self._places: dict[str, Place] = {}
        self._direct: dict[str, str] = {}  # channels of direct messages, by user
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_up(self) -> bool:
        return self._up

    # --- out

    async def send(self, parcel: ChatParcel) -> ChatReceipt:
        channel = await self._channel(parcel.to)
        laid = outgoing.laid_out(parcel, self._page)
        path, body = f"/channels/{channel}/messages", outgoing.message(parcel, laid)
        try:
            sent = await self._api.call("POST", path, body)
        except DeliveryInDoubt as exc:
            if "gave no answer" not in str(exc):
                raise
            sent = await self._api.call("POST", path, body)  # the nonce finds the first one
        name = events.message_name(sent["channel_id"], sent["id"])
        if laid is None:
            return ChatReceipt(name)
        # The nonce may have found a message of an earlier try, which showed something else.
        is_this = outgoing.same_text(sent.get("content"), body["content"])
        return ChatReceipt(name, laid.shown if is_this else "head")

    async def update(self, parcel: ChatParcel) -> None:
        channel, _, message = parcel.replaces.partition(":")
        path = f"/channels/{channel}/messages/{message}"
        try:
            await self._api.call("PATCH", path, outgoing.update(parcel))
        except NotDelivered as exc:
            if _UNKNOWN_MESSAGE not in str(exc):
                raise

    async def find(self, parcel: ChatParcel) -> ChatReceipt | Literal["absent", "unknown"]:
        """
        Look for our own message with this text. One with equal text may belong to another delivery,
        so it proves nothing; without any, the message is certainly absent.
        """
        laid = outgoing.laid_out(parcel, self._page)
        wanted = outgoing.message(parcel, laid)
        try:
            channel = await self._channel(parcel.to)
            since = events.snowflake_at(parcel.queued_at - _CLOCKS_APART_MS)
            listed = await self._listed(channel, str(since))
        except (NotDelivered, DeliveryInDoubt):
            return "unknown"
        ours = [each for each in listed if (each.get("author") or {}).get("bot")]
        for each in ours:
            if each.get("nonce") == wanted["nonce"]:
                shown: Shown | None = None if laid is None else laid.shown
                return ChatReceipt(events.message_name(channel, each["id"]), shown)
        if len(listed) >= _LISTED_MAX or any(
            each.get("content") == wanted["content"] for each in ours
        ):
            return "unknown"
        return "absent"

    async def _channel(self, to: str) -> str:
        """Return the channel of an address. Opening one for direct messages posts nothing."""
        user = events.direct_user(to)
        if user is None:
            return events.channel_of(to)
        if user not in self._direct:
            try:
                opened = await self._api.call("POST", "/users/@me/channels", {"recipient_id": user})
            except DeliveryInDoubt as exc:
                raise NotDelivered(str(exc), may_pass=True) from exc
            self._direct[user] = str(opened["id"])
        return self._direct[user]

    async def _listed(self, channel: str, after: str) -> list[dict[str, Any]]:
        path = f"/channels/{channel}/messages?limit={_LISTED_MAX}&after={after}"
        listed: list[dict[str, Any]] = await self._api.call("GET", path) or []
        return sorted(listed, key=lambda each: int(each["id"]))

    # --- in

    async def check(self) -> str:
        try:
            me = await self._api.call("GET", "/users/@me")
        except DeliveryInDoubt as exc:
            raise NotDelivered(str(exc), may_pass=True) from exc
        return f"{me.get('username')} (bot {me.get('id')})"

    async def run(self, inbox: ChatInbox) -> None:
        from holdfast.adapters.channels.discord import listener

        listener.quiet()

        async def heard(kind: str, data: dict[str, Any]) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await self._take(kind, data, inbox)

        def left() -> None:
            self._up = False
            inbox.went_down("the gateway's connection is closed")

        try:
            while True:
                try:
                    await listener.use_api(self._address)
                    async with listener.GatewayListener(heard, left) as client:
                        await client.start(self._token)
                except (*listener.LIBRARY_ERRORS, OSError) as exc:
                    self._up = False
                    inbox.went_down(f"{type(exc).__name__}: {exc}")
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._up = False
            for task in tuple(self._tasks):
                task.cancel()

    async def _take(self, kind: str, data: dict[str, Any], inbox: ChatInbox) -> None:
        if kind == "INTERACTION_CREATE":
            await self._pressed(data, inbox)
            return
        async with self._in_order:
            if kind == "READY":
                user = data["user"]
                self._me = DiscordSelf(str(user["id"]), str(user.get("username", "")))
                await self._came_up(inbox)
            elif kind == "RESUMED":
                await self._came_up(inbox)
            elif kind == "MESSAGE_CREATE":
                await self._kept(data, inbox)

    async def _came_up(self, inbox: ChatInbox) -> None:
        self._up = True
        inbox.came_up()
        unread = await self._unread(inbox)
        while unread is None:
            await asyncio.sleep(AGAIN_SECONDS)
            unread = await self._unread(inbox)
        missed: list[dict[str, Any]] = []
        for to, since in unread.items():
            missed += await read_patiently(partial(self._since, to, since), f"Discord, {to}") or []
        for message in sorted(missed, key=lambda each: int(each["id"])):
            await self._kept(message, inbox)

    async def _unread(self, inbox: ChatInbox) -> dict[str, str] | None:
        """
        By address: the last message that is known there. People and channels of settings without a
        session are read too; before the first message ever, nothing counts as missed. None if the
        journals can't be read now.
        """
        try:
            found = {each.thread: each.message for each in await inbox.threads()}
        except (HoldfastError, OSError):
            return None
        if not found:
            return {}
        newest = events.sent_at(max(found.values(), key=int))
        since = str(events.snowflake_at(newest - int(OVERLAP_SECONDS * 1000)))
        named = inbox.places()
        first = [*map(direct_address, named.identities), *map(events.thread_of, named.channels)]
        return dict.fromkeys(first, since) | found

    async def _since(self, to: str, after: str) -> list[dict[str, Any]]:
        channel, found = await self._channel(to), []
        for _ in range(_PAGES_MAX):
            page = await self._listed(channel, after)
            found += [{**each, "channel_id": channel} for each in page]
            if len(page) < _LISTED_MAX:
                return found
            after = str(page[-1]["id"])
        log.warning("Discord, %s: more messages were missed than are read", to)
        return found

    async def _kept(self, message: dict[str, Any], inbox: ChatInbox) -> None:
        """Return when the message is durable, or does not concern us. It is not sent again."""
        for _ in range(_KEPT_TRIES):
            try:
                await self._message(message, inbox)
            except NotDelivered as exc:
                if not exc.may_pass:
                    return  # a channel that we may not see
            except (DeliveryInDoubt, HoldfastError, OSError):
                pass
            else:
                return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _message(self, message: dict[str, Any], inbox: ChatInbox) -> None:
        me = self._me
        if me is None:
            return
        place = await self._place(str(message.get("channel_id")))
        try:
            fact = events.arrived(message, place, me)
        except UNREADABLE as exc:
            log.warning("Discord: a message can't be read: %s", type(exc).__name__)
            return
        if fact is None:
            return
        taken = await inbox.message(fact)
        if taken.words is not None:
            await self._say(str(message["channel_id"]), taken.words)

    async def _place(self, channel: str) -> Place:
        if channel not in self._places:
            if len(self._places) >= _PLACES_MAX:
                self._places.clear()
            self._places[channel] = events.place_of(
                await self._api.call("GET", f"/channels/{channel}")
            )
        return self._places[channel]

    async def _say(self, channel: str, words: str) -> None:
        """Best effort: the words explain, and nothing depends on them."""
        with contextlib.suppress(NotDelivered, DeliveryInDoubt):
            await self._api.call("POST", f"/channels/{channel}/messages", outgoing.plain(words))

    async def _pressed(self, interaction: dict[str, Any], inbox: ChatInbox) -> None:
        """Acknowledge first. A press that is lost between the two is one that nobody saw act."""
        if (button := events.pressed(interaction)) is None:
            return
        ident, token = str(interaction["id"]), str(interaction.get("token"))
        with contextlib.suppress(NotDelivered, DeliveryInDoubt):
            path = f"/interactions/{ident}/{token}/callback"
            await self._api.call("POST", path, _DEFERRED_UPDATE)
        try:
            taken = await inbox.press(button)
        except (HoldfastError, OSError):
            taken = Taken("refused", "This could not be recorded. Press again.")
        if taken.words is not None:
            with contextlib.suppress(NotDelivered, DeliveryInDoubt):
                path = f"/webhooks/{interaction.get('application_id')}/{token}"
                await self._api.call("POST", path, outgoing.whisper(taken.words))
