"""
From settings to a running service: the only file that names adapters.

Heavy modules are imported where they are used: listing open prompts needs no model provider, no web
framework and no shell parser.
"""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.files import FileStore
from holdfast.adapters.files.notify import FileNotifier
from holdfast.adapters.sqlite.index import SqliteIndex
from holdfast.adapters.sqlite.memory import NAME as MEMORY
from holdfast.adapters.sqlite.memory import SqliteMemory
from holdfast.adapters.sqlite.search import SqliteSearch
from holdfast.adapters.zones import find_zone
from holdfast.errors import Refused, Unusable
from holdfast.ids import CallId, SessionId
from holdfast.ports.delivery import Channel
from holdfast.ports.memory import Memory
from holdfast.ports.model import Model
from holdfast.ports.tools import CannotBind, ProcessFacts, Tool
from holdfast.runtime.context import AgentSpec, World
from holdfast.session.authority.policy import Policy
from holdfast.settings import Settings, SettingsSource, read_settings_file
from holdfast.settings.settings import did_you_mean
from holdfast.settings.values import DELEGATE_NAME_HINT, is_delegate_name

if TYPE_CHECKING:
    from holdfast.adapters.models.catalogue import Catalogue
    from holdfast.adapters.tools.registry import Toolbox
    from holdfast.adapters.tools.shell.shell import ShellSettings
    from holdfast.adapters.tools.shell.spare import SpareLauncher
    from holdfast.adapters.tools.user_program import Program
    from holdfast.runtime.ledger.home_authority import Dropped, Keep
    from holdfast.runtime.lifecycle.prune import Old
    from holdfast.runtime.service import Service

HOME_VARIABLE = "HOLDFAST_HOME"


def home_path(given: str | os.PathLike[str] | None = None) -> Path:
    """Return `given`, else $HOLDFAST_HOME, else ~/.holdfast; absolute."""
    chosen = os.fspath(given or os.environ.get(HOME_VARIABLE) or "~/.holdfast")
    found = os.path.expanduser(chosen)  # noqa: PTH111  # as below
    whole = os.path.abspath(found)  # noqa: PTH100  # resolves no links: the store does, by descriptor
    refuse_what_is_no_text(whole)
    if (why := _no_home_folder(chosen, found)) is not None:
        raise Unusable(
            f"{chosen}: no home folder is known: {why}",
            hint="name a home with --home or $HOLDFAST_HOME, or set $HOME; a folder whose name "
            "begins with ~ is ./~...",
        )
    return Path(whole)


def _no_home_folder(chosen: str, found: str) -> str | None:
    """
    Return why `~` cannot be expanded, as in many containers; None if it can, or is not used.

    Taken literally, `~` would name another folder in every working directory, or one beside the
    system's own.
    """
    user = chosen.partition("/")[0]
    if user == "~" and not os.environ.get("HOME", "/").startswith("/"):
        return (
            f"$HOME is {os.environ['HOME']!r}, which is no absolute path"
            if os.environ["HOME"]
            else "$HOME is empty"
        )
    if not found.startswith("~"):
        return None
    return (
        f"$HOME is not set, and the system has no user with uid {os.getuid()}"
        if user == "~"
        else f"the system has no user {user[1:]!r}"
    )


def refuse_what_is_no_text(path: str) -> None:
    """
    Refuse a path that is not valid text. A path is shown in prompts, bound by their digest and
    journalled, so it must be UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError as exc:
        raise Unusable(
            f"{path!a} is no path in UTF-8",
            code="malformed",
            hint="rename the folder; if its name looks right, this process has another locale: "
            "LANG=C.UTF-8, and no PYTHONUTF8=0",
        ) from exc


def folder_identity(path: str) -> str | None:
    """Identify the folder that a path names, by device and inode."""
    refuse_what_is_no_text(path)
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return f"{found.st_dev}:{found.st_ino}" if stat.S_ISDIR(found.st_mode) else None


class LazyModels:
    """The model catalogue, created at first use."""

    def __init__(self) -> None:
        self._catalogue: Catalogue | None = None

    def _made(self) -> "Catalogue":
        if self._catalogue is None:
            from holdfast.adapters.models.catalogue import Catalogue

            self._catalogue = Catalogue()
        return self._catalogue

    def resolve(self, name: str) -> Model:
        return self._made().resolve(name)

    def register(self, model: Any) -> str:
        """Register a model object; return the name it is journalled under."""
        return self._made().register(model).name


class LiveAgents(Mapping[str, AgentSpec]):
    """The agents of settings as they are now, and on top of them those of the program."""

    def __init__(self, settings_now: Callable[[], Settings], given: Iterable[AgentSpec]) -> None:
        self._settings_now = settings_now
        self._given = {each.name: each for each in given}
        self._seen: tuple[Settings, Mapping[str, AgentSpec]] | None = None

    def _now(self) -> Mapping[str, AgentSpec]:
        settings = self._settings_now()
        if self._seen is None or self._seen[0] is not settings:
            self._seen = settings, {**settings.agents(), **self._given}
        return self._seen[1]

    def __getitem__(self, name: str) -> AgentSpec:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


class LazyTools:
    """
    The toolbox, filled at first use: listing open prompts loads no user tools and no shell parser.
    """

    def __init__(
        self,
        given: Sequence[Tool],
        settings: Settings,
        memory: Memory | None = None,
        *,
        delegates: Sequence[str] = (),
        now_ms: Callable[[], int] | None = None,
        lasting: bool = False,
        program: "Program | None" = None,
        settings_now: Callable[[], Settings] | None = None,
    ) -> None:
        # Tools that settings name as module:attribute are loaded from here; None allows installed
        # modules only.
        self._program = program
        self._given = given
        self._lasting = lasting  # keep a launcher ready, from the first command on
        self._spare: SpareLauncher | None = None
        self._memory = memory
        self._delegates = delegates  # agents that others hand tasks to
        self._now_ms = now_ms
        self._settings_now = settings_now or (lambda: settings)
        self._box: Toolbox | None = None
        self._builtins: Sequence[Tool] = ()
        # Tools that settings name as module:attribute, by that name.
        self._loaded: dict[str, Tool] = {}

    def _filled(self) -> "Toolbox":
        if self._box is None:
            from holdfast.adapters.tools.builtin.delegates import delegate_tool
            from holdfast.adapters.tools.registry import Toolbox, builtin_tools
            from holdfast.adapters.tools.shell.shell import Shell
            from holdfast.adapters.tools.shell.spare import SpareLauncher

            own = {tool.definition.name for tool in self._given}
            clock = {"now_ms": self._now_ms} if self._now_ms is not None else {}
            self._spare = SpareLauncher() if self._lasting else None
            shell = Shell(settings=self._shell_settings, spare=self._spare)
            builtins = builtin_tools(shell=shell, memory=self._memory, **clock)
            self._builtins = [tool for tool in builtins if tool.definition.name not in own]
            self._box = Toolbox(
                [*self._builtins, *self._given, *map(delegate_tool, self._delegates)]
            )
        return self._box

    def _shell_settings(self) -> "ShellSettings":
        """Of now: what was tightened applies to the next look, also in a process that runs on."""
        from holdfast.adapters.tools.shell.shell import ShellSettings

        try:
            now = self._settings_now()
        except Unusable as exc:
            raise CannotBind(str(exc), code=exc.code) from exc
        return ShellSettings(now.shell_confine, now.shell_network, now.shell_read)

    def get(self, name: str) -> Tool | None:
        box = self._box or self._filled()
        if ":" not in name:
            return box.get(name)
        if name not in self._loaded:
            from holdfast.adapters.tools.registry import load_tool
            from holdfast.adapters.tools.user_program import Program

            self._loaded[name] = load_tool(name, self._builtins, self._program or Program())
        return self._loaded[name]

    def names(self) -> Sequence[str]:
        return (*self._filled().names(), *self._loaded)

    def end_survivors(self, call: CallId, facts: ProcessFacts | None) -> int:
        return self._filled().end_survivors(call, facts)

    def close(self) -> None:
        if self._spare is not None:
            self._spare.close()


def delegates_of(agents: Iterable[AgentSpec]) -> tuple[str, ...]:
    """
    Return every agent that another agent delegates to. Each must exist, and have a name that a
    model can call.
    """
    known = {agent.name: agent for agent in agents}
    named = {(agent.name, name) for agent in known.values() for name in agent.delegates}
    for agent, name in sorted(named):
        if name not in known:
            raise Unusable(
                f"the agent {agent!r} delegates to {name!r}, and there is no such "
                f"agent{did_you_mean(name, known)}",
                code="unknown_agent",
                hint="hand it to agents= too, or name it in [agents]",
            )
        if name == agent:
            raise Unusable(
                f"{name!r} can't be its own delegate", code="malformed", hint="name another agent"
            )
        if not is_delegate_name(name):
            raise Unusable(
                f"{name!r} can't be a delegate: a model could not call it",
                code="malformed",
                hint=DELEGATE_NAME_HINT,
            )
    return tuple(sorted({name for _, name in named}))


@asynccontextmanager
async def open_service(
    home: Path,
    *,
    create: bool = True,
    agents: Sequence[AgentSpec] = (),
    tools: Sequence[Tool] = (),
    models: LazyModels | None = None,
    lasting: bool = False,
    program: "Program | None" = None,
) -> "AsyncGenerator[Service, None]":
    """
    Open a service on the home at `home`. With `create` False a missing home is refused as
    `no_home`; see also `existing_store`.

    `lasting` is for a process that stays, and may keep things ready for the next call.
    """
    from holdfast.adapters.models.providers import SECRETS
    from holdfast.adapters.tools.jobs.files import JobFiles
    from holdfast.runtime.service import Service

    source = SettingsSource(home)
    settings = source.now()
    _refuse_backup(home)
    specs = LiveAgents(source.now, agents)
    # Errors in delegates are reported before a home is created or opened.
    delegates = delegates_of(specs.values())
    known = settings.secret_values(os.environ, beside=SECRETS)
    store = await _store(home, settings, create=create)
    memory = SqliteMemory(home / MEMORY, store.memory_key)
    program = program or _named_program(home, settings)
    box = LazyTools(
        tools,
        settings,
        memory,
        delegates=delegates,
        lasting=lasting,
        program=program,
        settings_now=source.now,
    )
    world = World(
        store=store,
        models=models or LazyModels(),
        tools=box,
        notifier=FileNotifier(home),
        clock=SystemClock(),
        index=SqliteIndex(home / "index.db", store.index_keys),
        search=SqliteSearch(home / "search.db", store.index_keys),
        memory=memory,
        recall_seconds=settings.recall_within_ms / 1000,
        zones=find_zone,
        agents=specs,
        default_agent=agents[0].name if agents else settings.default_agent,
        policy=lambda: _policy_of(source.now(), known=settings),
        channels=lambda: _channels(source.now(), home),
        compaction=lambda: source.now().compaction(),
        folder_identity=folder_identity,
        home=str(home),
        secrets=(*known, *store.key_bytes()),
        tool_timeout_seconds=settings.tool_timeout_seconds,
        jobs=JobFiles(home, store.job_key),
        code_folders=lambda workspace: _code_within(program, workspace),
    )
    try:
        async with Service(world) as service:
            yield service
    finally:
        box.close()


def _policy_of(now: Settings, *, known: Settings) -> Policy:
    """
    Nothing is decided while settings name a secret that this process was opened without: it could
    not keep the value out of a journal.
    """
    new = [name for name in now.secret_names if name not in known.secret_names]
    if new:
        raise Unusable(
            f"secrets.env names {new[0]}, and this process was started without it",
            code="settings",
            hint="start the process again: then the value is kept out of everything that it writes",
        )
    return now.policy()


def _named_program(home: Path, settings: Settings) -> "Program":
    """
    For a program that embeds Holdfast: its modules are on its own path, and settings may name one
    more folder.
    """
    from holdfast.adapters.tools.user_program import Program

    return Program([str(home / settings.tools_folder)] if settings.tools_folder else [])


def _code_within(program: "Program", workspace: str) -> tuple[str, ...]:
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

        channel = WebhookChannel(notify.webhook)
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


async def _store(home: Path, settings: Settings, *, create: bool) -> FileStore:
    if create:
        return await FileStore.open(
            home, allow_network_filesystem=settings.allow_network_filesystem
        )
    store = await existing_store(home, settings)
    if store is None:
        raise Unusable(
            f"there is no home at {home}",
            code="no_home",
            hint="`holdfast send SESSION TEXT` makes one",
        )
    return store


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
    """
    import tempfile

    from holdfast.adapters.files.home.backup import (
        copy_backup,
        place,
        read_manifest,
        refuse_taken,
    )
    from holdfast.runtime.ledger.home_authority import drop_restored
    from holdfast.runtime.lifecycle.instances import restore_all

    read_manifest(source)
    refuse_taken(home)
    settings = read_settings_file(source)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{home.name}.", suffix=".tmp", dir=home.parent
    ) as folder:
        temporary = Path(folder) / home.name
        copy_backup(source, temporary, settings=settings)
        async with open_service(temporary, create=False) as service:
            dropped = await drop_restored(service.home, by=by, keep=keep)
            reports = await restore_all(service, by=by)
        place(temporary, home)
    return Restored(tuple(report.session for report in reports), dropped)


class Prunable(NamedTuple):
    """The items that `[retention]` no longer keeps."""

    sessions: "Sequence[Old]"
    outputs: Sequence[Path]
    quarantine: Sequence[Path]


async def prunable(service: "Service", home: Path, *, most: int | None = None) -> Prunable:
    """
    Find prunable items by the current settings, at most `most` of each kind. Without a
    `[retention]` section there are none.
    """
    from holdfast.adapters.files.home.retention import old_outputs, old_quarantine
    from holdfast.runtime.lifecycle.prune import old_sessions

    settings, now = SettingsSource(home).now(), service.world.clock.now_ms() / 1000
    sessions, outputs, quarantine = (
        settings.retain_sessions_seconds,
        settings.retain_outputs_seconds,
        settings.retain_quarantine_seconds,
    )
    return Prunable(
        []
        if sessions is None
        else await old_sessions(service, before_ms=int((now - sessions) * 1000), most=most),
        []
        if outputs is None
        else (await asyncio.to_thread(old_outputs, home, before_seconds=now - outputs))[:most],
        []
        if quarantine is None
        else (await asyncio.to_thread(old_quarantine, home, before_seconds=now - quarantine))[
            :most
        ],
    )


async def prune(service: "Service", found: Prunable, *, by: str) -> Sequence[SessionId]:
    """Remove the items. Return the deleted sessions: one that was written to meanwhile stays."""
    from holdfast.adapters.files.home.retention import remove
    from holdfast.runtime.lifecycle.prune import let_go

    gone = await let_go(service, found.sessions, by=by)
    await asyncio.to_thread(remove, [*found.outputs, *found.quarantine])
    return gone


async def existing_store(home: Path, settings: Settings | None = None) -> FileStore | None:
    """Return the home's store, or None if there is no home yet. Creates nothing."""
    settings = settings or SettingsSource(home).now()
    return await FileStore.open_existing(
        home, allow_network_filesystem=settings.allow_network_filesystem
    )
