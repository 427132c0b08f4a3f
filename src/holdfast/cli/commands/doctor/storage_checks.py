"""The server of a home in PostgreSQL: whether it can be used, and what an operator should know."""

import asyncio
from typing import TYPE_CHECKING

from holdfast.cli.commands.doctor.finding import Finding
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.settings import Settings


async def check_storage(settings: "Settings") -> list[Finding]:
    """Nothing for a home of files."""
    from holdfast.assembly.store import place_of

    place = place_of(settings)
    if place is None:
        return []
    from holdfast.adapters.postgres.status import database_facts, storage_warnings

    try:
        found = await asyncio.to_thread(database_facts, place)
    except HoldfastError as exc:
        return [Finding("storage", "problem", exc.message, exc.hint)]
    said = f"{found['server']}, {place.name}, schema version {found['schema_version']}"
    return [
        Finding("storage", "ok", said),
        *(Finding("storage", "warning", *each) for each in storage_warnings(found)),
    ]
