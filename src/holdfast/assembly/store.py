"""
The store that settings choose: files in the home's folder, or a schema of a PostgreSQL database.

Nothing falls back from one to the other. A folder that belongs to the other kind is refused, with
the way from one to the other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.files import FileStore
from holdfast.errors import Unusable
from holdfast.ports.index import Index
from holdfast.ports.jobs import JobPlace
from holdfast.ports.memory import Memory
from holdfast.ports.notifier import Notifier
from holdfast.ports.search import Search
from holdfast.settings import Settings, SettingsSource

if TYPE_CHECKING:
    from holdfast.adapters.postgres.server import DatabaseAddress
    from holdfast.adapters.postgres.store import PostgresStore

    OpenStore = FileStore | PostgresStore

# The node's own file beside a home in PostgreSQL.
NODE_FILE = "server.json"


def place_of(settings: Settings) -> "DatabaseAddress | None":
    """Where settings say that the home is; None for files."""
    if settings.storage_url is None:
        return None
    from holdfast.adapters.postgres.server import DatabaseAddress

    return DatabaseAddress(
        settings.storage_url,
        settings.storage_schema,
        allow_plaintext=settings.storage_allow_plaintext,
        listen_url=settings.storage_listen_url,
    )


def place_at(home: Path) -> "DatabaseAddress | None":
    """The database of this home; None if it is kept in files, or is not there."""
    settings = SettingsSource(home).now()
    refuse_other_kind(home, settings)
    return place_of(settings)


def place_named(home: Path) -> "DatabaseAddress":
    """The database of this home. Refuse a home of files."""
    settings = SettingsSource(home).now()
    place = place_of(settings)
    if place is None:
        raise Unusable(
            "[storage] names no database, so this home is kept in files",
            code="storage",
            hint='write url = "postgresql:///holdfast?host=/run/postgresql" under [storage] in '
            f"{home / 'holdfast.toml'}",
        )
    refuse_other_kind(home, settings)
    return place


async def open_store(home: Path, settings: Settings, *, create: bool) -> "OpenStore | None":
    """Open the store. Return None if there is no home yet and `create` is False."""
    place = place_of(settings)
    refuse_other_kind(home, settings)
    if place is not None:
        from holdfast.adapters.postgres.store import PostgresStore

        return await PostgresStore.open_home(place, home)
    network = settings.allow_network_filesystem
    if create:
        return await FileStore.open_home(home, allow_network_filesystem=network)
    return await FileStore.open_existing(home, allow_network_filesystem=network)


@dataclass(frozen=True)
class Lists:
    """The rows of a home beside its journals."""

    index: Index
    search: Search
    memory: Memory


@dataclass(frozen=True)
class NodeParts:
    """The parts of a running service that depend on whether a home has nodes."""

    notifier: Notifier
    jobs: JobPlace
    node: str = ""
    shares_machine: Callable[[str], bool] = lambda _node: False
    is_heard_of: Callable[[str], bool] = lambda _node: False


def parts_of(home: Path, store: "OpenStore") -> NodeParts:
    from holdfast.adapters.tools.jobs.files import JobFiles

    jobs = JobFiles(home, store.job_key)
    if isinstance(store, FileStore):
        from holdfast.adapters.files.notify import FileNotifier

        return NodeParts(FileNotifier(home), jobs)
    from holdfast.adapters.postgres.node_jobs import NodeJobs

    return NodeParts(
        store.notices,
        NodeJobs(jobs, store.node, store.nodes.silent_seconds, lease_seconds=store.lease_seconds),
        store.node,
        store.shares_machine,
        store.is_heard_of,
    )


def is_file_store(store: "OpenStore") -> bool:
    return isinstance(store, FileStore)


def lists_of(home: Path, store: "OpenStore") -> Lists:
    """Index, search and memory of an open store: files in the home's folder, or its database."""
    if isinstance(store, FileStore):
        from holdfast.adapters.sqlite.index import SqliteIndex
        from holdfast.adapters.sqlite.memory import NAME, SqliteMemory
        from holdfast.adapters.sqlite.search import SqliteSearch

        return Lists(
            SqliteIndex(home / "index.db", store.index_keys),
            SqliteSearch(home / "search.db", store.index_keys),
            SqliteMemory(home / NAME, store.memory_key),
        )
    from holdfast.adapters.postgres.lists.index import PostgresIndex
    from holdfast.adapters.postgres.lists.memory import PostgresMemory
    from holdfast.adapters.postgres.lists.search import PostgresSearch

    return Lists(PostgresIndex(store), PostgresSearch(store), PostgresMemory(store))


def refuse_other_kind(home: Path, settings: Settings) -> None:
    """Refuse a folder of the other kind: never a silent fallback to files, nor away from them."""
    if settings.storage_url is None and (home / NODE_FILE).exists():
        raise Unusable(
            f"{home} belongs to a home in PostgreSQL, and [storage] url is missing",
            code="storage",
            hint="put the url back into holdfast.toml",
        )
    if settings.storage_url is not None and (home / "home").exists():
        raise Unusable(
            f"{home} holds a home of files, and [storage] url names a database",
            code="storage",
            hint="choose another folder for the node with --home, or take the url out",
        )


async def existing_store(home: Path, settings: Settings | None = None) -> "OpenStore | None":
    """Return the home's store, or None if there is no home yet. Creates nothing."""
    return await open_store(home, settings or SettingsSource(home).now(), create=False)
