"""Create a home from a backup."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.assembly.service import open_service
from holdfast.assembly.store import lists_of, place_named, place_of
from holdfast.errors import Unusable
from holdfast.settings import SettingsSource, read_settings_file

if TYPE_CHECKING:
    from holdfast.adapters.files import FileStore
    from holdfast.adapters.postgres.store import PostgresStore
    from holdfast.runtime.ledger.home_authority import Dropped, Keep


class Restored(NamedTuple):
    """The restored sessions, and the tokens and grants that the restored home no longer honours."""

    sessions: tuple[str, ...]
    dropped: "Dropped"


async def restore_home(
    source: Path, home: Path, *, by: str, keep: "Keep | None" = None
) -> Restored:
    """
    Create a home from a backup, in new instances: work that was owed when the backup was made does
    not run again.

    A backup does not know the revocations that came after it. So every token and grant in it is
    dropped, except those that `keep` keeps. Settings that somebody else owns or may write are
    refused, because the copy would be the owner's. The home is created beside its place and moved
    there when it is finished. An existing home is never touched.

    If the settings at `home` name a database, the home is restored into its schema, which must be
    empty, and `home` becomes a node's folder.
    """
    import tempfile

    from holdfast.adapters.files.home.backup import (
        copy_backup,
        place,
        read_manifest,
        refuse_taken,
    )

    read_manifest(source)
    settings = read_settings_file(source)
    if place_of(SettingsSource(home).now()) is not None:
        return await _restore_into_database(source, home, settings, by=by, keep=keep)
    refuse_taken(home)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{home.name}.", suffix=".tmp", dir=home.parent
    ) as folder:
        temporary = Path(folder) / home.name
        copy_backup(source, temporary, settings=settings)
        restored = await _restored(temporary, by=by, keep=keep)
        place(temporary, home)
    return restored


async def _restored(home: Path, *, by: str, keep: "Keep | None") -> Restored:
    """Continue the sessions of a copied home in new instances."""
    async with open_service(home, create=False) as service:
        reports, dropped = await service.lifecycle.restore(by=by, keep=keep)
    return Restored(tuple(report.session for report in reports), dropped)


async def _restore_into_database(
    source: Path, home: Path, settings: bytes | None, *, by: str, keep: "Keep | None"
) -> Restored:
    """Restore to files beside the node's folder first, and load what came of it."""
    import asyncio
    import tempfile

    from holdfast.adapters.files import FileStore
    from holdfast.adapters.files.home.backup import copy_backup
    from holdfast.adapters.postgres.home.from_files import LivingSession, load_files, refuse_home
    from holdfast.adapters.postgres.store import PostgresStore

    database = place_named(home)
    await asyncio.to_thread(refuse_home, database)
    with tempfile.TemporaryDirectory(prefix=f".{home.name}.", dir=home.parent) as folder:
        temporary = Path(folder) / home.name
        copy_backup(source, temporary, settings=settings)
        restored = await _restored(temporary, by=by, keep=keep)
        files = await FileStore.open_existing(temporary)
        if files is None:
            raise Unusable(
                f"{source} has no home in it",
                code="no_backup",
                hint="name a folder that `holdfast backup` made",
            )
        try:
            heads = await files.heads()
            living = [LivingSession(session, instance) for session, instance, _ in heads]
            await asyncio.to_thread(load_files, database, home, temporary, living)
            store = await PostgresStore.open_home(database, home)
            try:
                await asyncio.to_thread(_copy_memory, temporary, files, store)
                for session, _ in living:
                    await (await store.open(session)).close()
            finally:
                await store.close()
        finally:
            await files.close()
    return restored


def _copy_memory(source: Path, files: "FileStore", store: "PostgresStore") -> None:
    remembered, memory = lists_of(source, files).memory, lists_of(source, store).memory
    try:
        for row in remembered.rows():
            if row.item is not None:
                memory.add(row.item)
    finally:
        remembered.close()
