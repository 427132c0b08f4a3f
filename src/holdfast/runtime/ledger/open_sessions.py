"""
The sessions that this process has open. Its tasks share them; unused ones are closed.

A parked session costs no task. It costs no memory either once it has been idle for a while or
others need the room: the next user opens it again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from weakref import WeakValueDictionary

from holdfast.errors import (
    Fenced,
    HoldfastError,
    InDoubt,
    NewerVersion,
    ReadOnly,
    Untrusted,
)
from holdfast.ids import InstanceId, SessionId
from holdfast.limits import MIB
from holdfast.ports.journal_store import Journal, JournalStore
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.rules import LedgerRules

# Memory for sessions that are open and unused, by `Ledger.weight`. A thousand conversations fit
# into it. A store with few descriptors gives up those of quiet sessions by itself.
IDLE_BYTES_MAX = 128 * MIB


class OpenSessions:
    def __init__(
        self,
        store: JournalStore,
        *,
        on_sealed: Callable[[SessionId, InstanceId], Awaitable[None]] | None = None,
        rules: LedgerRules | None = None,
        idle_bytes_max: int = IDLE_BYTES_MAX,
    ) -> None:
        self._store = store
        self._rules = rules or LedgerRules()
        self._idle_bytes_max = idle_bytes_max
        # Called for every session that is found sealed, or is sealed while in use.
        self._on_sealed = on_sealed
        self._ledgers: OrderedDict[SessionId, Ledger] = OrderedDict()
        # The unused ones, the longest unused first, each with its weight; and the sum of these.
        self._idle: OrderedDict[Ledger, int] = OrderedDict()
        self._idle_bytes = 0
        # The number of users of each ledger, also of the dropped ones. A dropped ledger is closed
        # when its last user leaves, never earlier.
        self._users: dict[Ledger, int] = {}
        # One lock per session while a task opens it or waits for it to be opened.
        self._opening: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def use(self, session: SessionId) -> AsyncGenerator[Ledger, None]:
        """
        Yield the session's ledger, opened if needed. Raise `Refused` (unknown) if the session does
        not exist.
        """
        ledger = await self._take(session)
        try:
            yield ledger
        except (Untrusted, Fenced, InDoubt):
            await self._report_if_sealed(ledger)
            # The handle is spent: the next user opens the session again.
            self._drop(session, ledger)
            raise
        else:
            if self._rules.announcer is not None and self._users.get(ledger) == 1:
                await self._rules.announcer.put_back(ledger)
        finally:
            await self._put_back(session, ledger)

    async def take_in(self, journal: Journal) -> None:
        """
        Keep the handle of a session that was just created open for its next user. Nothing is lost
        if that fails: the next user opens the session again, and meets the same error.
        """
        session = journal.session
        async with self._opening.setdefault(session, asyncio.Lock()):
            if session in self._ledgers:
                await journal.close()
                return
            with suppress(HoldfastError):
                ledger = await Ledger.open(journal, self._rules)
                self._ledgers[session] = ledger
                self._count_as_idle(ledger)

    async def _take(self, session: SessionId) -> Ledger:
        lock = self._opening.setdefault(session, asyncio.Lock())
        async with lock:
            known = self._ledgers.get(session)
            if known is not None and await self._is_spent(known):
                self._drop(session, known)
                await self._close_if_unused(session, known)
            # Read again: another task may have closed it to make room.
            ledger = self._ledgers.get(session)
            if ledger is None:
                ledger = await self._opened(session)
                self._ledgers[session] = ledger
                await self._report_if_sealed(ledger)
            self._users[ledger] = self._users.get(ledger, 0) + 1
            self._idle_bytes -= self._idle.pop(ledger, 0)
            return ledger

    async def _report_if_sealed(self, ledger: Ledger) -> None:
        if ledger.journal.sealed is not None and self._on_sealed is not None:
            await self._on_sealed(ledger.session, ledger.instance)

    async def _opened(self, session: SessionId) -> Ledger:
        try:
            return await Ledger.open(await self._store.open(session), self._rules)
        except (NewerVersion, ReadOnly) as why:
            return await Ledger.read_only(await self._store.open(session), why)

    async def _is_spent(self, ledger: Ledger) -> bool:
        """Whether it is sealed, in doubt, or belongs to an ended instance."""
        return ledger.is_spent or (
            ledger not in self._users
            and await self._store.current(ledger.session) != ledger.instance
        )

    def _drop(self, session: SessionId, ledger: Ledger) -> None:
        """
        Hand the ledger to no further user. Current users keep it and get the reason why it is spent
        themselves.
        """
        if self._ledgers.get(session) is ledger:
            del self._ledgers[session]
            self._idle_bytes -= self._idle.pop(ledger, 0)

    def _count_as_idle(self, ledger: Ledger) -> None:
        self._idle[ledger] = ledger.weight
        self._idle_bytes += ledger.weight

    async def _close_if_unused(self, session: SessionId, ledger: Ledger) -> None:
        if self._ledgers.get(session) is not ledger and ledger not in self._users:
            await ledger.close()

    async def _put_back(self, session: SessionId, ledger: Ledger) -> None:
        self._users[ledger] = self._users.get(ledger, 1) - 1
        if self._users[ledger] == 0:
            del self._users[ledger]
            if self._ledgers.get(session) is ledger:
                ledger.rest()
                self._count_as_idle(ledger)
        await self._close_if_unused(session, ledger)
        # A task may take or close any of them while one is being closed.
        while self._idle_bytes > self._idle_bytes_max:
            longest = next(iter(self._idle))
            self._drop(longest.session, longest)
            await self._close_if_unused(longest.session, longest)

    def open_ledgers(self) -> Sequence[Ledger]:
        return tuple(self._ledgers.values())

    def get(self, session: SessionId) -> Ledger | None:
        return self._ledgers.get(session)

    async def close(self) -> None:
        kept = {**dict.fromkeys(self._ledgers.values()), **self._users}
        self._ledgers.clear()
        self._users.clear()
        self._idle.clear()
        self._idle_bytes = 0
        async with AsyncExitStack() as closing:  # close each, even if closing another fails
            for ledger in kept:
                closing.push_async_callback(ledger.close)
