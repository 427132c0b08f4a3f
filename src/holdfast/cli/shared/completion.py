"""
Shell completion from the home: names of sessions and tokens, ids, and a prompt's options.

Completion is a convenience. On any error it offers nothing, and it never creates or changes
anything.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from holdfast.runtime.service import Service

_OFFERED_MAX = 200
Offers = list[tuple[str, str]]


def sessions(ctx: typer.Context, incomplete: str) -> Offers:
    return _matching(_ask(ctx, _sessions), incomplete)


def approvals(ctx: typer.Context, incomplete: str) -> Offers:
    return _matching(_ask(ctx, _approvals), incomplete)


def grants(ctx: typer.Context, incomplete: str) -> Offers:
    return _matching(_ask(ctx, _grants), incomplete)


def reminders(ctx: typer.Context, incomplete: str) -> Offers:
    return _matching(_ask(ctx, _reminders), incomplete)


def jobs(ctx: typer.Context, incomplete: str) -> Offers:
    return _matching(_ask(ctx, _jobs), incomplete)


def memories(ctx: typer.Context, incomplete: str) -> Offers:
    """Offer the memories that `memory list` would show to this user."""
    from holdfast.cli.shared.identity import who
    from holdfast.cli.shared.options import options_of
    from holdfast.cli.shared.service import home_of

    async def found(service: "Service") -> Offers:
        me = who(home_of(options_of(ctx)), None)
        page = await service.memory.list(
            person=None if me.may_all else me.person, session=None, limit=_OFFERED_MAX, after=None
        )
        return [(each.id, each.text or "") for each in page.memory]

    return _matching(_ask(ctx, found), incomplete)


def tokens(ctx: typer.Context, incomplete: str) -> Offers:
    return _matching(_ask(ctx, _tokens), incomplete)


def servers(ctx: typer.Context, incomplete: str) -> Offers:
    """Offer servers of the settings and pinned tools. No server is asked."""
    return _matching(_ask(ctx, _servers), incomplete)


def options(ctx: typer.Context, incomplete: str) -> Offers:
    wanted = ctx.params.get("approval")

    async def offered(service: "Service") -> Offers:
        found = next((each for each in await service.approvals() if each.id == wanted), None)
        return (
            [(option, found.covers.get(option, "")) for option in found.options]
            if found is not None
            else []
        )

    return _matching(_ask(ctx, offered), incomplete)


async def _sessions(service: "Service") -> Offers:
    return [(each.session, each.phase) for each in await service.sessions()]


async def _approvals(service: "Service") -> Offers:
    return [(each.id, f"{each.session} {each.tool}") for each in await service.approvals()]


async def _reminders(service: "Service") -> Offers:
    return [(each.id, f"{each.session} {each.when}") for each in await service.reminders.list()]


async def _grants(service: "Service") -> Offers:
    return [(each.id, f"{each.tool} {each.scope}") for each in await service.grants()]


async def _tokens(service: "Service") -> Offers:
    from holdfast.gateway.server.tokens import TokenBook

    found = await TokenBook(service.home).reports(now=service.live.clock_ms())
    return [(each.name, each.person) for each in found]


async def _servers(service: "Service") -> Offers:
    known = await service.servers.known()
    return [(name, "pinned" if "." in name else "a server") for name in known]


async def _jobs(service: "Service") -> Offers:
    return list(await service.jobs.running())


def _matching(found: Offers, incomplete: str) -> Offers:
    return [each for each in found if each[0].startswith(incomplete)][:_OFFERED_MAX]


def _ask(
    ctx: typer.Context, question: "Callable[[Service], Coroutine[Any, Any, Offers]]"
) -> Offers:
    from holdfast.cli.shared.options import options_of
    from holdfast.cli.shared.service import looking_service

    async def asked() -> Offers:
        async with looking_service(options_of(ctx)) as service:
            return await question(service) if service is not None else []

    with contextlib.suppress(Exception):  # a shell is waiting and could not show a message
        return asyncio.run(asked())
    return []
