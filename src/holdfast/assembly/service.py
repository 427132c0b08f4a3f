"""Open a service on a home, with the adapters that its settings choose."""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.mcp.lazy import LazyServers
from holdfast.adapters.zones import find_zone
from holdfast.assembly.agents import LiveAgents, delegates_of
from holdfast.assembly.channels import configured_chats
from holdfast.assembly.home_path import folder_identity
from holdfast.assembly.hooks import webhook_keys
from holdfast.assembly.lazy_adapters import LazyModels, LazyTools
from holdfast.assembly.store import lists_of, open_store, parts_of
from holdfast.errors import Refused, Unusable
from holdfast.ports.chat.platform import ChatPlatform
from holdfast.ports.delivery import Channel
from holdfast.ports.tool_servers import ServersNow
from holdfast.ports.tools import Tool
from holdfast.runtime.context import AgentSpec, World
from holdfast.secrecy import Secret
from holdfast.session.authority.policy import Policy
from holdfast.settings import Derived, Settings, SettingsSource

if TYPE_CHECKING:
    from holdfast.adapters.tools.user_program import UserProgram
    from holdfast.assembly.store import OpenStore
    from holdfast.runtime.service import Service


@asynccontextmanager
async def open_service(
    home: Path,
    *,
    create: bool = True,
    agents: Sequence[AgentSpec] = (),
    tools: Sequence[Tool] = (),
    models: LazyModels | None = None,
    program: "UserProgram | None" = None,
    platforms: Mapping[str, ChatPlatform] | None = None,
) -> "AsyncGenerator[Service, None]":
    """
    Open a service on the home at `home`. With `create` False a missing home is refused as
    `no_home`; see also `existing_store`. `platforms` are the chats that this process sends to.
    """
    from holdfast.adapters.models.endpoints import EndpointModels
    from holdfast.adapters.models.providers import SECRETS
    from holdfast.runtime.service import Service

    source = SettingsSource(home)
    settings = source.now()
    _refuse_backup(home)
    specs = LiveAgents(source, agents)
    # Errors in delegates are reported before a home is created or opened.
    delegates = delegates_of(specs.values())
    known = settings.secret_values(os.environ, beside=SECRETS)
    store = await _store(home, settings, create=create)
    lists, parts = lists_of(home, store), parts_of(home, store)
    program = program or _named_program(home, settings)
    secrets: tuple[Secret, ...] = (*known, *store.key_bytes())
    servers = LazyServers(str(home), lambda: _servers_now(source), secrets)
    box = LazyTools(
        tools,
        settings,
        lists.memory,
        delegates=delegates,
        servers=servers,
        program=program,
        settings_now=source.now,
    )
    world = World(
        store=store,
        models=EndpointModels(models or LazyModels(), lambda: source.now().models),
        tools=box,
        servers=servers,
        notifier=parts.notifier,
        clock=SystemClock(),
        index=lists.index,
        search=lists.search,
        memory=lists.memory,
        recall_seconds=settings.recall_within_ms / 1000,
        zones=find_zone,
        agents=specs,
        default_agent=agents[0].name if agents else settings.default_agent,
        policy=Derived(source, partial(_policy_of, known=settings)),
        channels=Derived(source, partial(_channels, home=home)),
        chats=Derived(source, partial(configured_chats, platforms=platforms or {})),
        compaction=Derived(source, Settings.compaction),
        folder_identity=folder_identity,
        home=str(home),
        secrets=secrets,
        tool_timeout_seconds=settings.tool_timeout_seconds,
        jobs=parts.jobs,
        node=parts.node,
        shares_machine=parts.shares_machine,
        is_heard_of=parts.is_heard_of,
        code_folders=lambda workspace: _code_within(program, workspace),
    )
    async with Service(world) as service:
        yield service


def _policy_of(now: Settings, *, known: Settings) -> Policy:
    """
    Refuse to decide anything while settings name a secret that this process was opened without: it
    could not keep the value out of a journal.
    """
    new = [name for name in now.secret_variables if name not in known.secret_variables]
    if new:
        raise Unusable(
            f"holdfast.toml names the secret {new[0]}, and this process was started without it",
            code="settings",
            hint="start the process again: then the value is kept out of everything that it writes",
        )
    return now.policy()


def _servers_now(source: SettingsSource) -> ServersNow:
    """The current settings: a server that was taken out is not asked again."""
    now = source.now()
    return ServersNow(now.servers, now.shell_confine)


def _named_program(home: Path, settings: Settings) -> "UserProgram":
    """
    For a program that embeds Holdfast: its modules are on its own path, and settings may name one
    more folder.
    """
    from holdfast.adapters.tools.user_program import UserProgram

    return UserProgram([str(home / settings.tools_folder)] if settings.tools_folder else [])


def _code_within(program: "UserProgram", workspace: str) -> tuple[str, ...]:
    from holdfast.adapters.tools.user_program import is_within

    return tuple(each for each in program.used if is_within(each, workspace))


def _channels(settings: Settings, home: Path) -> Mapping[str, Channel]:
    """The channels that notify people of open prompts."""
    notify = settings.notify
    if notify is None:
        return {}
    channel: Channel
    if notify.webhook is not None:
        from holdfast.adapters.channels.webhook import WebhookChannel

        secret = notify.secret_env
        channel = WebhookChannel(
            notify.webhook,
            key=webhook_keys("approvals.notify", secret)[0] if secret is not None else None,
        )
    else:
        from holdfast.adapters.channels.command import CommandChannel

        channel = CommandChannel(notify.command or (), folder=str(home))
    return {channel.name: channel}


def _refuse_backup(home: Path) -> None:
    """
    Refuse to open a backup. It still holds grants and tokens that were revoked after it was made;
    only `restore` makes a home of it, and drops them.
    """
    from holdfast.adapters.files.home.layout import MANIFEST

    if (home / MANIFEST).exists():
        raise Refused(
            f"{home} is a backup, not a home",
            code="is_backup",
            hint=f"`holdfast --home NEW restore {home}` makes a home of it; `holdfast verify` "
            "checks it as it is",
        )


async def _store(home: Path, settings: Settings, *, create: bool) -> "OpenStore":
    store = await open_store(home, settings, create=create)
    if store is None:
        raise Unusable(
            f"no home at {home}",
            code="no_home",
            hint="`holdfast send SESSION TEXT` makes one",
        )
    return store
