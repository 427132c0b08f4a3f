"""
Discord's gateway through discord.py, which connects, beats, resumes and reconnects. Its raw events
are handed on as they came: facts are made from the vendor's payload, not from the library's models.
"""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from holdfast.adapters.channels.discord.rest_api import API

Heard = Callable[[str, dict[str, Any]], Awaitable[None]]
_DISPATCH = 0


class GatewayListener(discord.Client):
    """`heard` gets the name and the data of each event; `left` is called when the socket closes."""

    def __init__(self, heard: Heard, left: Callable[[], None]) -> None:
        # Not privileged: places of servers, messages there that mention us, direct messages.
        intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True)
        super().__init__(
            intents=intents,
            enable_debug_events=True,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
        )
        self._heard, self._left = heard, left

    async def on_socket_raw_receive(self, raw: str | bytes) -> None:
        payload = json.loads(raw)
        if payload.get("op") == _DISPATCH and isinstance(payload.get("d"), dict):
            await self._heard(str(payload.get("t")), payload["d"])

    async def on_disconnect(self) -> None:
        self._left()


def quiet() -> None:
    """The library logs payloads with their texts, and traces of every lost connection."""
    logger = logging.getLogger("discord")
    logger.propagate, logger.handlers = False, [logging.NullHandler()]
    logger.setLevel(logging.CRITICAL)


async def use_api(api: str) -> None:
    """
    Lead the library to another address than Discord's. It keeps both addresses in its classes, so
    they hold for the whole process.
    """
    if api == API:
        return
    async with aiohttp.ClientSession() as session, session.get(f"{api}/gateway") as answer:
        found = await answer.json()
    Route.BASE = api
    DiscordWebSocket.DEFAULT_GATEWAY = URL(str(found["url"]))


LIBRARY_ERRORS = (discord.DiscordException, aiohttp.ClientError, AttributeError)
"""An AttributeError: the library's own, if its first connection fails."""
