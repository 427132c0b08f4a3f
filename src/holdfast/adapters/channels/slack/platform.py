"""
Slack as a chat. Over a socket, an envelope is acknowledged after the inbox has returned; Slack
sends it again if that takes longer than 3 s, and the journal knows it then.

A message that may have been sent is looked for by the delivery's id in its metadata.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from holdfast.adapters.channels.chat_sizes import slack_escaped
from holdfast.adapters.channels.slack import events, outgoing
from holdfast.adapters.channels.slack.events import SlackSelf
from holdfast.adapters.channels.slack.missed_messages import MissedMessages
from holdfast.adapters.channels.slack.requests import envelope, is_signed
from holdfast.adapters.channels.slack.web_api import API, SlackApi, quiet_logger
from holdfast.ports.chat.messages import ChatParcel, ChatReceipt, Shown, Taken
from holdfast.ports.chat.platform import ChatInbox
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered

if TYPE_CHECKING:
    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest

SOCKET = "socket of the app token"
SIGNATURE = "signature of the request"
_CHALLENGE_CHARS_MAX = 256
LOOK_SECONDS = 1.0
AGAIN_SECONDS = 2.0
_FOUND_LATE_SECONDS = 2.0  # a message that was posted a moment ago may not be listed yet
_LISTED_MAX = 200
_UPDATED_ALREADY = ("message_not_found", "cant_update_message", "edit_window_closed")


class SlackPlatform:
    def __init__(
        self,
        token: str,
        *,
        app_token: str | None = None,
        signing_secret: str | None = None,
        api: str = API,
        page: str | None = None,
    ) -> None:
        self._signing_secret = signing_secret
        self._whispers: set[asyncio.Task[None]] = set()
        self._api = SlackApi(token, api=api)
        self._app_token = app_token
        self._page = page
        self._up = False
        self._in_order = asyncio.Lock()  # the library handles envelopes side by side
        self.me: SlackSelf | None = None

    @property
    def is_up(self) -> bool:
        return self._up

    # --- out

    async def send(self, parcel: ChatParcel) -> ChatReceipt:
        channel, root = events.address(parcel.to)
        laid = outgoing.laid_out(parcel, self._page)
        sent = await self._api.call(
            "chat.postMessage",
            channel=channel,
            thread_ts=root,
            **outgoing.message(parcel, laid),
        )
        name = events.message_name(sent["channel"], sent["ts"])
        return ChatReceipt(name, None if laid is None else laid.shown)

    async def update(self, parcel: ChatParcel) -> None:
        channel, _, ts = parcel.replaces.partition(":")
        try:
            await self._api.call("chat.update", channel=channel, ts=ts, **outgoing.update(parcel))
        except NotDelivered as exc:
            if not any(text in exc.message for text in _UPDATED_ALREADY):
                raise

    async def find(self, parcel: ChatParcel) -> ChatReceipt | Literal["absent", "unknown"]:
        for wait in (0.0, _FOUND_LATE_SECONDS):
            await asyncio.sleep(wait)
            try:
                channel, messages, is_all = await self._since(parcel)
            except (NotDelivered, DeliveryInDoubt):
                return "unknown"
            for each in messages:
                payload = (each.get("metadata") or {}).get("event_payload") or {}
                if payload.get("delivery") == parcel.delivery:
                    laid = outgoing.laid_out(parcel, self._page)
                    shown: Shown | None = None if laid is None else laid.shown
                    if parcel.kind == "prompt" and laid is None:
                        shown = "head"  # it has closed meanwhile
                    return ChatReceipt(events.message_name(channel, each.get("ts")), shown)
            if not is_all:
                return "unknown"
        return "absent"

    async def _since(self, parcel: ChatParcel) -> tuple[str, list[dict[str, Any]], bool]:
        """Return the messages since the parcel was queued, and whether these are all."""
        channel, root = events.address(parcel.to)
        if root is None:
            opened = await self._api.call("conversations.open", users=channel)
            channel = opened["channel"]["id"]
        listed = await self._api.call(
            "conversations.history" if root is None else "conversations.replies",
            channel=channel,
            ts=root,
            oldest=f"{parcel.queued_at / 1000 - 5:.6f}",  # the two clocks may differ a little
            include_all_metadata=True,
            limit=_LISTED_MAX,
        )
        return channel, listed.get("messages") or [], not listed.get("has_more")

    # --- in

    async def check(self) -> str:
        try:
            me = await self._auth()
        except DeliveryInDoubt as exc:
            raise NotDelivered(str(exc), may_pass=True) from exc
        return f"user {me.user} in workspace {me.team}"

    async def _auth(self) -> SlackSelf:
        answer = await self._api.call("auth.test")
        return SlackSelf(
            str(answer["team_id"]), str(answer["user_id"]), str(answer.get("bot_id", ""))
        )

    async def run(self, inbox: ChatInbox) -> None:
        client = None
        try:
            self.me = await self._until_known(inbox)
            if self._app_token is not None:
                client = await self._connected(self._app_token, inbox)
            while True:
                is_up = client is None or await client.is_connected()
                if is_up and not self._up:
                    self._up = True
                    inbox.came_up()
                    await MissedMessages(self._api, self.me).read(inbox)
                elif not is_up:
                    self._up = False
                    inbox.went_down("the socket is closed")
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._up = False
            if client is not None:
                await client.close()  # type: ignore[no-untyped-call]  # the library's

    async def _until_known(self, inbox: ChatInbox) -> SlackSelf:
        while True:
            try:
                return await self._auth()
            except (NotDelivered, DeliveryInDoubt) as exc:
                inbox.went_down(str(exc))
                await asyncio.sleep(max(AGAIN_SECONDS, getattr(exc, "wait_seconds", 0.0)))

    async def _connected(self, app_token: str, inbox: ChatInbox) -> "SocketModeClient":
        from slack_sdk.socket_mode.aiohttp import SocketModeClient

        client = SocketModeClient(
            app_token, logger=quiet_logger(), web_client=self._api.client, ping_interval=2
        )

        async def listen(_: object, request: "SocketModeRequest") -> None:
            await self._take(client, request, inbox)

        client.socket_mode_request_listeners.append(listen)
        await client.connect()  # type: ignore[no-untyped-call]  # the library's
        return client

    async def _take(
        self, client: "SocketModeClient", request: "SocketModeRequest", inbox: ChatInbox
    ) -> None:
        """An error leaves the envelope without an acknowledgement, so that it comes again."""
        from slack_sdk.socket_mode.response import SocketModeResponse

        async with self._in_order:
            whisper = await self.took(request.type, request.payload, SOCKET, inbox)
            await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))
        await whisper()

    async def took(
        self, kind: str, payload: dict[str, Any], authenticated_by: str, inbox: ChatInbox
    ) -> "Whisper":
        """Hand an envelope to the inbox. Return what says its words to the sender, if any."""
        me = self.me = self.me or await self._auth()
        if kind == "events_api" and (message := events.arrived(payload, me, authenticated_by)):
            taken = await inbox.message(message)
            _, root = events.address(message.thread)
            return Whisper(self._api, message.place, message.identity, root, taken)
        if kind == "interactive" and (button := events.pressed(payload, me, authenticated_by)):
            taken = await inbox.press(button)
            channel = button.message.partition(":")[0]
            root = (payload.get("container") or {}).get("thread_ts")
            return Whisper(self._api, channel, button.identity, root, taken)
        return Whisper(self._api, "", "", None, Taken("ignored"))

    async def receive(
        self,
        header: Callable[[str], str | None],
        body: bytes,
        inbox: ChatInbox,
        *,
        now_seconds: int,
    ) -> str | None:
        """Take one request over HTTP. After an error, Slack sends it again."""
        secret = self._signing_secret
        if secret is None or not is_signed(secret, header, body, now_seconds=now_seconds):
            return None
        if (found := envelope(body)) is None:
            return ""
        kind, payload = found
        if payload.get("type") == "url_verification":
            return str(payload.get("challenge", ""))[:_CHALLENGE_CHARS_MAX]
        async with self._in_order:
            whisper = await self.took(kind, payload, SIGNATURE, inbox)
        # Slack waits 3 s for the answer, and shows the words when they come.
        task = asyncio.ensure_future(whisper())
        self._whispers.add(task)
        task.add_done_callback(self._whispers.discard)
        return ""


class Whisper:
    """Words that only one person sees. Best effort: nothing depends on them."""

    def __init__(
        self, api: SlackApi, channel: str, identity: str, root: str | None, taken: Taken
    ) -> None:
        self._api, self._taken, self._channel, self._root = api, taken, channel, root
        self._user = identity.rpartition("/")[2]

    async def __call__(self) -> None:
        if self._taken.words is None:
            return
        with contextlib.suppress(NotDelivered, DeliveryInDoubt):
            await self._api.call(
                "chat.postEphemeral",
                channel=self._channel,
                user=self._user,
                thread_ts=self._root,
                text=slack_escaped(self._taken.words),
            )
