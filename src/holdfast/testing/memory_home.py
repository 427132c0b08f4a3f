"""
A home in memory for your own tests, and crashes on purpose.

    disk = Disk()
    with pytest.raises(Crashed):
        async with open_in_memory(agents=[ops], disk=disk, crash=crash_after(ToolStarted)) as home:
            ...
    async with open_in_memory(agents=[ops], disk=disk) as home:  # the next process, same bytes
        await home.resume()
"""

import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.adapters.inmemory import (
    Crashed,
    InMemoryDisk,
    InMemoryIndex,
    InMemoryJournal,
    InMemoryMemory,
    InMemoryNotifier,
    InMemoryStore,
)
from holdfast.adapters.inmemory.jobs import InMemoryJobs
from holdfast.adapters.zones import find_zone
from holdfast.assembly.agents import delegates_of
from holdfast.assembly.home_path import folder_identity
from holdfast.assembly.lazy_adapters import LazyTools
from holdfast.errors import Unusable
from holdfast.home import Agent, Home, specs_from_agents
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import Appended, Check, Decide, Draft, Head
from holdfast.runtime.context import AgentSpec, ModelTimes, World
from holdfast.runtime.service import Service
from holdfast.session.authority.policy import Policy
from holdfast.session.events import Event
from holdfast.settings import Settings
from holdfast.settings.parser import settings_from_toml
from holdfast.testing.clock import ManualClock

__all__ = ["Crashed", "Disk", "crash_after", "open_in_memory"]

Disk = InMemoryDisk
"""It outlives a process: hand the same one to the next `open_in_memory`."""


class CrashPoint:
    """Crashes, as by kill -9, right after the `times`-th event of a kind is durable."""

    def __init__(self, kind: type[Event], times: int) -> None:
        from holdfast.session.codec import EVENT_TYPES

        known = {each: name for name, each in EVENT_TYPES.items()}
        if kind not in known or times < 1:
            raise Unusable(
                f"no {times}. {getattr(kind, '__name__', kind)} to crash after",
                hint="name an event of holdfast.session.events, such as ToolStarted",
            )
        self._type = known[kind]
        self._left = times

    def reached(self, appended: Appended, since: Head, store: InMemoryStore) -> bool:
        mine = [
            record
            for record in appended.suffix
            if record.type == self._type and record.seq > since.seq and record.writer == store.name
        ]
        self._left -= len(mine)
        return bool(mine) and self._left <= 0


def crash_after(kind: type[Event], *, times: int = 1) -> CrashPoint:
    """
    For `open_in_memory(crash=...)`: crash once that event is durable, before anything that it
    allows happens.
    """
    return CrashPoint(kind, times)


class _CrashingJournal(InMemoryJournal):
    point: CrashPoint

    async def append(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        appended = await super().append(decide, since=since, epoch=epoch, check=check)
        if self.point.reached(appended, since, self._store):
            self._store.crash()
            raise Crashed
        return appended


class _CrashingStore(InMemoryStore):
    def __init__(self, disk: InMemoryDisk, clock: Clock, point: CrashPoint) -> None:
        super().__init__(disk, clock=clock)
        self._point = point

    async def open(self, session: SessionId) -> InMemoryJournal:
        return self._crashing(await super().open(session))

    async def create(
        self,
        session: SessionId,
        instance: InstanceId,
        first: Sequence[Draft],
        *,
        origin: str,
        by: str,
    ) -> InMemoryJournal:
        return self._crashing(await super().create(session, instance, first, origin=origin, by=by))

    def _crashing(self, journal: InMemoryJournal) -> InMemoryJournal:
        journal.__class__ = _CrashingJournal
        journal.point = self._point  # type: ignore[attr-defined]
        return journal


def open_in_memory(
    *,
    agents: Sequence[Agent] = (),
    disk: InMemoryDisk | None = None,
    clock: Clock | None = None,
    policy: Policy | Callable[[], Policy] | None = None,
    crash: CrashPoint | None = None,
    settings: str | Path | None = None,
    model: Any = None,
) -> Home:
    """
    Open a home in memory. It has the same verbs and the same promises, except those about the disk.

    `settings` is your holdfast.toml: its path, or its text. Its policy, people and agents hold.
    `model` takes the place of every agent's own model: a `ScriptModel`, or a name such as "demo".

    >>> import asyncio, holdfast
    >>> async def main():
    ...     async with open_in_memory() as home:
    ...         alice = holdfast.MessageSource.local("alice")
    ...         turn = await home.send("notes", "help", source=alice)
    ...         return turn.outcome
    >>> asyncio.run(main())
    'completed'
    """
    found = _settings(settings)
    specs, tools, models = specs_from_agents(_with_model(agents, model))
    chosen = _policy(policy, found)
    time = clock or ManualClock()
    bytes_ = disk if disk is not None else InMemoryDisk()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Service, None]:
        memory = InMemoryMemory(bytes_)
        replaced = model if model is None or isinstance(model, str) else models.register(model)
        known = {
            **{name: _spoken_by(each, replaced) for name, each in found.agents().items()},
            **{each.name: each for each in specs},
        }
        world = World(
            store=(
                InMemoryStore(bytes_, clock=time)
                if crash is None
                else _CrashingStore(bytes_, time, crash)
            ),
            models=models,
            tools=LazyTools(
                tools, found, memory, delegates=delegates_of(known.values()), now_ms=time.now_ms
            ),
            notifier=InMemoryNotifier(bytes_),
            clock=time,
            index=InMemoryIndex(),
            memory=memory,
            # a test's machine may be slow, and its outcome must not depend on that
            recall_seconds=30.0,
            agents=known,
            default_agent=specs[0].name if specs else found.default_agent,
            policy=chosen,
            folder_identity=folder_identity,
            zones=find_zone,
            model_times=ModelTimes(retry_seconds=0.0),
            jobs=InMemoryJobs(),
        )
        async with Service(world) as service:
            yield service

    return Home(opened)


def _policy(given: Policy | Callable[[], Policy] | None, settings: Settings) -> Any:
    """Return the function that gives the present policy: the given one, else the settings'."""
    if given is not None and not callable(given) and not isinstance(given, Policy):
        raise Unusable(
            f"{given!r:.200} is not a policy",
            hint="hand in a holdfast.session.authority.policy.Policy, or a function that gives one",
        )
    return given if callable(given) else (lambda: given or settings.policy())


def _settings(given: str | Path | None) -> Settings:
    """Read a holdfast.toml by its path, or from its text."""
    if given is None:
        return Settings()
    is_text = isinstance(given, str) and ("\n" in given or "[" in given)
    path = Path("holdfast.toml") if is_text else Path(given)
    try:
        data = str(given).encode() if is_text else path.read_bytes()
    except OSError as exc:
        raise Unusable(
            f"{path} cannot be read: {exc.strerror}",
            hint="name your holdfast.toml, or hand in its text",
        ) from exc
    return settings_from_toml(data, name=path.name)


def _with_model(agents: Sequence[Agent], model: Any) -> Sequence[Agent]:
    """Let the given model speak for every agent, delegates included."""
    if model is None or not all(isinstance(each, Agent) for each in agents):
        return agents
    return [
        dataclasses.replace(
            each,
            model=model,
            delegates=[
                below if isinstance(below, str) else _with_model([below], model)[0]
                for below in each.delegates
            ],
        )
        for each in agents
    ]


def _spoken_by(spec: AgentSpec, model: str | None) -> AgentSpec:
    return spec if model is None else msgspec.structs.replace(spec, model=model)
