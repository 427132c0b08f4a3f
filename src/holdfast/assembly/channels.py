"""From `[channels]` to chats: their addresses for every process, their platforms for the server."""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from holdfast.adapters.channels.chat_sizes import CHAT_SIZES
from holdfast.errors import Unusable, install_hint
from holdfast.ports.chat.platform import ChatPlatform, ConfiguredChat
from holdfast.settings import ChannelSettings, Settings

if TYPE_CHECKING:
    from holdfast.gateway.channels.rules import OpenChat


def configured_chats(
    settings: Settings, platforms: Mapping[str, ChatPlatform]
) -> Mapping[str, ConfiguredChat]:
    """
    The chats of settings. Every process knows them, since every process may commit what owes them a
    message. Only a server has platforms, and sends.
    """
    return {
        name: ConfiguredChat(
            name=name,
            kind=each.kind,
            identities=_identities(settings, each.kind),
            prompts_of_all=each.prompts == "all",
            part_size_max=CHAT_SIZES[each.kind].part_size_max,
            size=CHAT_SIZES[each.kind].size,
            platform=platforms.get(name),
        )
        for name, each in settings.channels.items()
    }


def _identities(settings: Settings, kind: str) -> Mapping[str, str]:
    return {
        person: identities[kind]
        for person, identities in settings.people.items()
        if kind in identities
    }


def open_chats(
    settings_now: Callable[[], Settings], platforms: Mapping[str, ChatPlatform]
) -> "tuple[OpenChat, ...]":
    """The chats of a server, each with the rules for what arrives there."""
    from holdfast.gateway.channels.rules import ChatRules, OpenChat

    return tuple(
        OpenChat(
            ChatRules(
                name=name,
                kind=each.kind,
                person_for=partial(_person_now, settings_now, each.kind),
                identities_now=partial(_identities_now, settings_now, each.kind),
                teams=each.teams,
                answers=each.answers,
                agent=each.agent,
                late_seconds_max=each.late_max,
            ),
            platforms[name],
        )
        for name, each in settings_now().channels.items()
        if name in platforms
    )


def _person_now(settings_now: Callable[[], Settings], kind: str, identity: str) -> str | None:
    return settings_now().person_for(kind, identity)


def _identities_now(settings_now: Callable[[], Settings], kind: str) -> Iterable[str]:
    return _identities(settings_now(), kind).values()


def platforms_of(settings: Settings) -> dict[str, ChatPlatform]:
    """Raise `Unusable` for a channel whose token or library is missing."""
    return {name: platform_of(name, each) for name, each in settings.channels.items()}


def platform_of(name: str, channel: ChannelSettings) -> ChatPlatform:
    token = _secret(name, channel.bot_token_env)
    options = {} if channel.api is None else {"api": channel.api}
    try:
        match channel.kind:
            case "telegram":
                import aiohttp  # noqa: F401  # a missing library is reported before anything starts

                from holdfast.adapters.channels.telegram.platform import TelegramPlatform

                return TelegramPlatform(token, page=channel.page, **options)
            case "slack":
                import slack_sdk  # noqa: F401

                from holdfast.adapters.channels.slack.platform import SlackPlatform

                app, signing = channel.app_token_env, channel.signing_secret_env
                return SlackPlatform(
                    token,
                    app_token=None if app is None else _secret(name, app),
                    signing_secret=None if signing is None else _secret(name, signing),
                    page=channel.page,
                    **options,
                )
            case "discord":
                import discord  # noqa: F401

                from holdfast.adapters.channels.discord.platform import DiscordPlatform

                return DiscordPlatform(token, page=channel.page, **options)
    except ModuleNotFoundError as exc:
        raise Unusable(
            f"[channels.{name}] needs {exc.name}, which is not installed",
            code="missing_part",
            hint=install_hint(channel.kind),
        ) from exc


def _secret(name: str, variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise Unusable(
            f"[channels.{name}]: {variable} is not set",
            code="no_key",
            hint=f"set {variable} to the token that the platform gave you",
        )
    return value
