"""
Shell completion from the index: session ids, approval ids, grant ids, a prompt's options.

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
Found = list[tuple[str, str]]


def sessions(ctx: typer.Context, incomplete: str) -> Found:
    return _matching(_ask(ctx, _sessions), incomplete)


def approvals(ctx: typer.Context, incomplete: str) -> Found:
    return _matching(_ask(ctx, _approvals), incomplete)


def grants(ctx: typer.Context, incomplete: str) -> Found:
    return _matching(_ask(ctx, _grants), incomplete)


def reminders(ctx: typer.Context, incomplete: str) -> Found:
    return _matching(_ask(ctx, _reminders), incomplete)


def jobs(ctx: typer.Context, incomplete: str) -> Found:
    return _matching(_ask(ctx, _jobs), incomplete)


def options(ctx: typer.Context, incomplete: str) -> Found:
    wanted = ctx.params.get("approval")

    async def offered(service: "Service") -> Found:
        found = next((each for each in await service.approvals() if each.id == wanted), None)
        return (
            [(option, found.covers.get(option, "")) for option in found.options]
            if found is not None
            else []
        )

    return _matching(_ask(ctx, offered), incomplete)


async def _sessions(service: "Service") -> Found:
    return [(each.session, each.phase) for each in await service.sessions()]


async def _approvals(service: "Service") -> Found:
    return [(each.id, f"{each.session} {each.tool}") for each in await service.approvals()]


async def _reminders(service: "Service") -> Found:
    return [(each.id, f"{each.session} {each.when}") for each in await service.reminders()]


async def _grants(service: "Service") -> Found:
    return [(each.id, f"{each.tool} {each.scope}") for each in await service.grants()]


async def _jobs(service: "Service") -> Found:
    return [(job, row.session) for row in service.world.index.rows() for job in row.jobs]


def _matching(found: Found, incomplete: str) -> Found:
    return [each for each in found if each[0].startswith(incomplete)][:_OFFERED_MAX]


def _ask(ctx: typer.Context, question: "Callable[[Service], Coroutine[Any, Any, Found]]") -> Found:
    from holdfast.cli.shared.options import options_of
    from holdfast.cli.shared.service import looking_service

    async def asked() -> Found:
        async with looking_service(options_of(ctx)) as service:
            return await question(service) if service is not None else []

    with contextlib.suppress(Exception):  # a shell is waiting and could not show a message
        return asyncio.run(asked())
    return []
