"""
From settings to a running service: the only file that names adapters.

Everything heavy is imported where it is used: listing what waits needs no model provider, no web framework and no shell parser.
"""

import os
import stat
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.files import FileStore
from holdfast.adapters.files.clock import SystemClock
from holdfast.adapters.files.index import SqliteIndex
from holdfast.adapters.files.notifier import SocketNotifier
from holdfast.errors import Unusable
from holdfast.ids import CallId
from holdfast.ports.model import Model
from holdfast.ports.tools import ProcessFacts, Tool
from holdfast.runtime.service import Service
from holdfast.runtime.world import AgentSpec, World
from holdfast.settings import Settings, SettingsSource

if TYPE_CHECKING:
    from holdfast.adapters.models.catalogue import Catalogue
    from holdfast.adapters.tools import Toolbox

HOME_VARIABLE = "HOLDFAST_HOME"


def home_path(given: str | os.PathLike[str] | None = None) -> Path:
    """`given`, else $HOLDFAST_HOME, else ~/.holdfast; absolute."""
    chosen = given or os.environ.get(HOME_VARIABLE) or "~/.holdfast"
    return Path(os.path.abspath(os.path.expanduser(chosen)))  # noqa: PTH100, PTH111  # resolves no links: the store does, by descriptor


def folder_identity(path: str) -> str | None:
    """Which folder a path names: device and inode."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return f"{found.st_dev}:{found.st_ino}" if stat.S_ISDIR(found.st_mode) else None


class LazyModels:
    """The catalogue, made at the first question."""

    def __init__(self, objects: Sequence[object] = ()) -> None:
        self._objects = objects
        self._catalogue: Catalogue | None = None

    def catalogue(self) -> "Catalogue":
        if self._catalogue is None:
            from holdfast.adapters.models.catalogue import Catalogue

            self._catalogue = Catalogue()
            for each in self._objects:
                self._catalogue.register(each)
        return self._catalogue

    def resolve(self, name: str) -> Model:
        return self.catalogue().resolve(name)


class LazyTools:
    """The box, filled at the first question: the shell's parser is loaded only when a command is looked at."""

    def __init__(self, names: Iterable[str], given: Sequence[Tool], settings: Settings) -> None:
        self._names = tuple(dict.fromkeys(names))
        self._given = given
        self._settings = settings
        self._box: Toolbox | None = None

    def _filled(self) -> "Toolbox":
        if self._box is None:
            from holdfast.adapters.tools import Toolbox, builtin_tools, load_tool

            named = [load_tool(name) for name in self._names if ":" in name]
            builtin = builtin_tools(confine=self._settings.shell_confine)
            self._box = Toolbox([*builtin, *named, *self._given])
        return self._box

    def get(self, name: str) -> Tool | None:
        return self._filled().get(name)

    def names(self) -> Sequence[str]:
        return self._filled().names()

    def end_survivors(self, call: CallId, facts: ProcessFacts | None) -> int:
        return self._filled().end_survivors(call, facts)


@asynccontextmanager
async def open_service(
    home: Path,
    *,
    create: bool = True,
    agents: Sequence[AgentSpec] = (),
    tools: Sequence[Tool] = (),
    models: Sequence[object] = (),
) -> AsyncGenerator[Service, None]:
    """A service on the home at `home`. With `create` False a home that is not there is refused as `no_home`; see also `existing_store`."""
    source = SettingsSource(home)
    settings = source.now()
    store = await _store(home, settings, create=create)
    specs = {**settings.agents(), **{each.name: each for each in agents}}
    world = World(
        store=store,
        models=LazyModels(models),
        tools=LazyTools((name for spec in specs.values() for name in spec.tools), tools, settings),
        notifier=SocketNotifier(home),
        clock=SystemClock(),
        index=SqliteIndex(home / "index.db", store.index_key()),
        agents=specs,
        default_agent=agents[0].name if agents else settings.default_agent,
        policy=lambda: source.now().policy(),
        folder_identity=folder_identity,
        home=str(home),
        secrets=settings.secret_values(os.environ),
        tool_timeout_seconds=settings.tool_timeout_seconds,
    )
    async with Service(world) as service:
        yield service


async def _store(home: Path, settings: Settings, *, create: bool) -> FileStore:
    if create:
        return await FileStore.open(home, allow_network_filesystem=settings.allow_network_filesystem)
    store = await existing_store(home, settings)
    if store is None:
        raise Unusable(f"there is no home at {home}", code="no_home", hint="`holdfast send SESSION TEXT` makes one")
    return store


async def existing_store(home: Path, settings: Settings | None = None) -> FileStore | None:
    """The home's store, or None when there is no home yet. Creates nothing."""
    settings = settings or SettingsSource(home).now()
    return await FileStore.open_existing(home, allow_network_filesystem=settings.allow_network_filesystem)
