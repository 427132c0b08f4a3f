"""
The chats of one server: each listens in a task of its own and is started again when it fails. Their
health is on `/readyz`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from holdfast.gateway.channels.inbox import GatewayInbox
from holdfast.gateway.channels.rules import OpenChat
from holdfast.gateway.http.context import ChatReceiver, Gateway
from holdfast.ports.chat.platform import CallingPlatform

AGAIN_SECONDS_MAX = 60.0
_log = logging.getLogger("holdfast.gateway.channels")


class ChatRunner:
    def __init__(self, gateway: Gateway, chats: Sequence[OpenChat]) -> None:
        self._gateway = gateway
        self._chats = tuple(chats)
        self._inboxes = {
            each.rules.name: GatewayInbox(
                gateway, each.rules, partial(self._health, each.rules.name)
            )
            for each in chats
        }
        self._down: dict[str, str] = {each.rules.name: "not connected yet" for each in chats}

    def down_now(self) -> Mapping[str, str]:
        """Return the chats that do not answer, with the reason."""
        return dict(self._down)

    def receiver(self, name: str) -> ChatReceiver | None:
        """Return what takes the requests of that chat's platform, if it calls us."""
        chat = next((each for each in self._chats if each.rules.name == name), None)
        if chat is None or not isinstance(platform := chat.platform, CallingPlatform):
            return None
        return partial(self._receive, platform, self._inboxes[name])

    async def _receive(
        self,
        platform: CallingPlatform,
        inbox: GatewayInbox,
        header: Callable[[str], str | None],
        body: bytes,
    ) -> str | None:
        now = self._gateway.service.live.clock_ms() // 1000
        return await platform.receive(header, body, inbox, now_seconds=now)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for chat in self._chats:
                group.create_task(self._listen(chat), name=f"chat {chat.rules.name}")

    async def _listen(self, chat: OpenChat) -> None:
        name = chat.rules.name
        inbox = self._inboxes[name]
        wait = 1.0
        while True:
            try:
                await chat.platform.run(inbox)
            except Exception as exc:  # noqa: BLE001  # a library's error must not stop the server
                self._health(name, f"{type(exc).__name__}: {exc}")
                _log.warning("%s stopped listening: %s: %s", name, type(exc).__name__, exc)
            wait = 1.0 if name not in self._down else min(wait * 2, AGAIN_SECONDS_MAX)
            await asyncio.sleep(wait)

    def _health(self, name: str, reason: str | None) -> None:
        if reason is None:
            if self._down.pop(name, None) is not None:
                _log.info("%s answers", name)
                self._gateway.drives.scan_now()
        elif self._down.get(name) != reason:
            self._down[name] = reason
            _log.warning("%s does not answer: %s", name, reason)
