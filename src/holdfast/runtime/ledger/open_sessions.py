"""
The sessions that this process has open. Its tasks share them; unused ones are closed.

A parked session costs no task. It costs no memory either once it has been idle for a while or
others need the room: the next user opens it again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from holdfast.errors import Fenced, InDoubt, NewerVersion, ReadOnly, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import JournalStore
from holdfast.runtime.ledger.ledger import Also, Ledger, Timekeeper

# Open but unused; enough for the sessions of a busy minute, few enough for any descriptor limit.
IDLE_KEPT = 64


class OpenSessions:
    def __init__(
        self,
        store: JournalStore,
        *,
        on_sealed: Callable[[SessionId, InstanceId], None] | None = None,
        also: Also | None = None,
        time: Timekeeper | None = None,
    ) -> None:
        self._store = store
        self._also = also
        self._time = time
        # Called for every session that is found sealed, or is sealed while in use.
        self._on_sealed = on_sealed
        self._ledgers: OrderedDict[SessionId, Ledger] = OrderedDict()
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
            self._tell_if_sealed(ledger)
            # The handle is spent: the next user opens the session again.
            self._set_aside(session, ledger)
            raise
        finally:
            await self._put_back(session, ledger)

    async def _take(self, session: SessionId) -> Ledger:
        lock = self._opening.setdefault(session, asyncio.Lock())
        async with lock:
            known = self._ledgers.get(session)
            if known is not None and await self._is_spent(known):
                self._set_aside(session, known)
                await self._close_if_unused(session, known)
            # Read again: another task may have closed it to make room.
            ledger = self._ledgers.get(session)
            if ledger is None:
                ledger = await self._opened(session)
                self._ledgers[session] = ledger
                self._tell_if_sealed(ledger)
            self._users[ledger] = self._users.get(ledger, 0) + 1
            self._ledgers.move_to_end(session)
            return ledger

    def _tell_if_sealed(self, ledger: Ledger) -> None:
        if ledger.journal.sealed is not None and self._on_sealed is not None:
            self._on_sealed(ledger.session, ledger.instance)

    async def _opened(self, session: SessionId) -> Ledger:
        try:
            ledger = await Ledger.open(await self._store.open(session))
            ledger.also, ledger.time = self._also, self._time
            return ledger  # noqa: TRY300
        except (NewerVersion, ReadOnly) as why:
            return await Ledger.read_only(await self._store.open(session), why)

    async def _is_spent(self, ledger: Ledger) -> bool:
        """Whether it is sealed, in doubt, or belongs to an ended instance."""
        if (
            ledger.only_read is not None
            or ledger.journal.sealed is not None
            or ledger.attempt.stopped is not None
        ):
            return True
        return (
            ledger not in self._users
            and await self._store.current(ledger.session) != ledger.instance
        )

    def _set_aside(self, session: SessionId, ledger: Ledger) -> None:
        """
        Hand the ledger to no further user. Current users keep it and get the reason why it is spent
        themselves.
        """
        if self._ledgers.get(session) is ledger:
            del self._ledgers[session]

    async def _close_if_unused(self, session: SessionId, ledger: Ledger) -> None:
        if self._ledgers.get(session) is not ledger and ledger not in self._users:
            await ledger.close()

    async def _put_back(self, session: SessionId, ledger: Ledger) -> None:
        self._users[ledger] = self._users.get(ledger, 1) - 1
        if self._users[ledger] == 0:
            del self._users[ledger]
        await self._close_if_unused(session, ledger)
        idle = [(name, each) for name, each in self._ledgers.items() if each not in self._users]
        for name, each in idle[: max(0, len(idle) - IDLE_KEPT)]:
            if each not in self._users:  # no task took it while the previous one was closed
                self._set_aside(name, each)
                await self._close_if_unused(name, each)

    def open_ledgers(self) -> Sequence[Ledger]:
        return tuple(self._ledgers.values())

    def get(self, session: SessionId) -> Ledger | None:
        return self._ledgers.get(session)

    async def close(self) -> None:
        kept = {**dict.fromkeys(self._ledgers.values()), **self._users}
        self._ledgers.clear()
        self._users.clear()
        async with AsyncExitStack() as closing:  # close each, even if closing another fails
            for ledger in kept:
                closing.push_async_callback(ledger.close)
