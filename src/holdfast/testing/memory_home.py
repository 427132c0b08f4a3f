"""
A home in memory for your own tests, and crashes on purpose.

    disk = Disk()
    with pytest.raises(Crashed):
        async with open_in_memory(agents=[ops], disk=disk, crash=crash_after(ToolStarted)) as home:
            ...
    async with open_in_memory(agents=[ops], disk=disk) as home:      # the next process, on the same bytes
        await home.resume()
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

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
from holdfast.errors import Unusable
from holdfast.home import Agent, Home, specs_from_agents
from holdfast.ids import SessionId
from holdfast.ports.clock import Clock
from holdfast.ports.journal_store import Appended, Check, Decide, Head
from holdfast.runtime.context import ModelTimes, World
from holdfast.runtime.service import Service
from holdfast.session.authority.policy import Policy
from holdfast.session.events import Event
from holdfast.settings import Settings
from holdfast.testing.clock import ManualClock
from holdfast.wiring import LazyTools, delegates_of, folder_identity

__all__ = ["Crashed", "Disk", "crash_after", "open_in_memory"]

Disk = InMemoryDisk
"""What outlives a process: hand the same one to the next `open_in_memory`."""


class CrashPoint:
    """Crashes, as by kill -9, right after the `times`-th event of a kind is durable."""

    def __init__(self, kind: type[Event], times: int) -> None:
        from holdfast.session.codec import EVENT_TYPES

        known = {each: name for name, each in EVENT_TYPES.items()}
        if kind not in known or times < 1:
            raise Unusable(
                f"there is no {times}. {getattr(kind, '__name__', kind)} to crash after",
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
        journal = await super().open(session)
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
) -> Home:
    """
    Open a home in memory. It has the same verbs and the same promises, except those about the disk.

    >>> import asyncio, holdfast
    >>> async def main():
    ...     async with open_in_memory() as home:
    ...         turn = await home.send("notes", "help", source=holdfast.MessageSource.local("alice"))
    ...         return turn.outcome
    >>> asyncio.run(main())
    'completed'
    """
    specs, tools, models = specs_from_agents(agents)
    settings = Settings()
    if policy is not None and not callable(policy) and not isinstance(policy, Policy):
        raise Unusable(
            f"{policy!r:.200} is no policy",
            hint="hand in a holdfast.session.authority.policy.Policy, or a function that gives one",
        )
    chosen: Any = policy if callable(policy) else (lambda: policy or Policy())
    time = clock or ManualClock()
    bytes_ = disk if disk is not None else InMemoryDisk()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Service, None]:
        memory = InMemoryMemory(bytes_)
        known = {**settings.agents(), **{each.name: each for each in specs}}
        world = World(
            store=InMemoryStore(bytes_, clock=time)
            if crash is None
            else _CrashingStore(bytes_, time, crash),
            models=models,
            tools=LazyTools(
                tools, settings, memory, delegates=delegates_of(known.values()), now_ms=time.now_ms
            ),
            notifier=InMemoryNotifier(bytes_),
            clock=time,
            index=InMemoryIndex(),
            memory=memory,
            # a test's machine may be slow, and its outcome must not depend on that
            recall_seconds=30.0,
            agents=known,
            default_agent=specs[0].name if specs else settings.default_agent,
            policy=chosen,
            folder_identity=folder_identity,
            zones=find_zone,
            model_times=ModelTimes(retry_seconds=0.0),
            jobs=InMemoryJobs(),
        )
        async with Service(world) as service:
            yield service

    return Home(opened)
