"""
Every port of the runtime, with random faults: stores that are slow, busy, in doubt or deadly,
notices that are lost, late or doubled, clocks that jump, channels that lose messages. Models,
tools, jobs and memory have their own files. Equal seeds fail equally.

A port belongs to one simulated process. Once the process is dead, its ports do nothing: the actions
of a dying program while it unwinds have no effect.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.adapters.inmemory import (
    Crashed,
    InMemoryDisk,
    InMemoryJournal,
    InMemoryNotifier,
    InMemoryStore,
)
from holdfast.adapters.inmemory.disk import Fault
from holdfast.errors import Busy
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.clock import Clock
from holdfast.ports.delivery import Channel, DeliveryInDoubt, NotDelivered, Parcel
from holdfast.ports.journal_store import Appended, Check, Decide, Draft, Head

if TYPE_CHECKING:
    from proof.simulation.home import Process

START_MS = 1_700_000_000_000
FAULTS = (
    *Fault,
    Fault.CRASH_PARTLY,
    Fault.IN_DOUBT_PARTLY,
)  # the last two seldom matter: a commit of one record has no middle


class Chaos:
    """The dice of one run, and whether faults have stopped."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.is_over = False
        self.faults = 0

    def strikes(self, chance: float) -> bool:
        struck = not self.is_over and self.dice.random() < chance
        self.faults += struck
        return struck

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes for ids, which a seed repeats."""
        return self.dice.randbytes(count)

    async def dawdle(self, seconds_max: float, chance: float) -> None:
        """Sometimes wait a while."""
        if self.strikes(chance):
            await asyncio.sleep(self.dice.uniform(0, seconds_max))


class SimulatedClock:
    """One process's clock: the loop's time plus the offset that somebody set."""

    def __init__(self) -> None:
        self.skew_ms = 0

    def now_ms(self) -> int:
        return START_MS + round(asyncio.get_running_loop().time() * 1000) + self.skew_ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SimulatedJournal(InMemoryJournal):
    """A journal that is slow before or after a commit, and injects the faults of a commit."""

    _store: "SimulatedStore"

    async def append(
        self, decide: Decide, *, since: Head, epoch: int | None = None, check: Check = Check.SHORT
    ) -> Appended:
        chaos = self._store.chaos
        await chaos.dawdle(0.5, 0.2)
        if chaos.strikes(0.03):
            self._store.disk.fail_next(chaos.dice.choice(FAULTS), session=self.session)
        try:
            appended = await super().append(decide, since=since, epoch=epoch, check=check)
        except Crashed:
            self._store.process.die()
            raise
        await chaos.dawdle(0.5, 0.1)  # it is stored, but the caller does not know yet
        return appended


class SimulatedStore(InMemoryStore):
    def __init__(
        self, process: "Process", disk: InMemoryDisk, chaos: Chaos, clock: Clock, name: str
    ) -> None:
        super().__init__(disk, clock=clock, name=name)
        self.process = process
        self.chaos = chaos

    async def open(self, session: SessionId) -> InMemoryJournal:
        await self.chaos.dawdle(0.5, 0.1)
        if self.chaos.strikes(0.01):
            raise Busy(
                f"{session} is being written by somebody else; try again",
                holder="dice",
                held_seconds=1.0,
            )
        try:
            return _shaky(await super().open(session))
        except Crashed:
            self.process.die()  # it found damage, and the home's journal could not record it
            raise

    async def create(
        self,
        session: SessionId,
        instance: InstanceId,
        first: Sequence[Draft],
        *,
        origin: str,
        by: str,
    ) -> InMemoryJournal:
        await self.chaos.dawdle(0.5, 0.2)
        try:
            return _shaky(await super().create(session, instance, first, origin=origin, by=by))
        except Crashed:
            self.process.die()  # in the middle of a creation
            raise

    async def home(self) -> InMemoryJournal:
        return _shaky(await super().home())


def _shaky(journal: InMemoryJournal) -> InMemoryJournal:
    journal.__class__ = SimulatedJournal
    return journal


class SimulatedNotifier(InMemoryNotifier):
    """Notices are hints: each may be lost, doubled or late."""

    def __init__(self, process: "Process", disk: InMemoryDisk, chaos: Chaos) -> None:
        super().__init__(disk)
        self._process = process
        self._chaos = chaos

    def notify(self, session: SessionId) -> None:
        if not self._process.is_alive or self._chaos.strikes(0.3):
            return
        if self._chaos.strikes(0.2):
            asyncio.get_running_loop().call_later(
                self._chaos.dice.uniform(0, 5), super().notify, session
            )
        if not self._chaos.strikes(0.1):
            super().notify(session)


class Mortal:
    """
    A thing that belongs to a process and would outlive it. For a dead process it raises Crashed.
    """

    def __init__(self, process: "Process", reach: Callable[[], Any]) -> None:
        self._process = process
        self._reach = reach

    def __getattr__(self, name: str) -> Any:
        if not self._process.is_alive:
            raise Crashed
        return getattr(self._reach(), name)


class SimulatedPost:
    """A channel that loses some messages, leaves some in doubt, and remembers the arrived ones."""

    name = "post"

    def __init__(self, chaos: Chaos, arrived: Callable[[Parcel], None]) -> None:
        self._chaos = chaos
        self._arrived = arrived

    def takes(self, kind: str, *, of: str) -> bool:
        return of == "local" and kind in {"reply", "prompt"}

    async def send(self, parcel: Parcel) -> str | None:
        chaos = self._chaos
        await chaos.dawdle(1, 0.3)
        if chaos.strikes(0.1):
            raise NotDelivered("dice", may_pass=chaos.dice.random() < 0.7)
        self._arrived(parcel)
        await chaos.dawdle(1, 0.3)
        if chaos.strikes(0.05):
            raise DeliveryInDoubt("dice")
        return "ok"


def channels_of(post: Channel) -> Callable[[], Mapping[str, Channel]]:
    return lambda: {post.name: post}
