"""Verbs of a process that stays: due times, notices, open sessions, readers."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
)

from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.journal.record import Record
from holdfast.ports.index import IndexRow
from holdfast.ports.journal_store import Heads, Journal
from holdfast.ports.tools import Tool
from holdfast.runtime.drive.bound_call import add_tools
from holdfast.runtime.drive.drivability import MissingPart, why_cannot_drive
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.record_page import page_of_records
from holdfast.runtime.reports import prompt_list, session_list
from holdfast.runtime.reports.types import ApprovalReport, asked_at
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.streams.feed import Feed, Subscription
from holdfast.secrecy import Secret
from holdfast.session.authority.context import Workspace
from holdfast.session.authority.policy import Policy
from holdfast.session.state import CallStatus, Reader, Turn


class LiveVerbs:
    """For a process that stays, and for a screen that shows one session as it moves."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    # --- driving

    def why_cannot_drive(self, session: SessionId) -> MissingPart | None:
        """The part that this process lacks to drive an open session; None if it lacks nothing."""
        ledger = self._runtime.sessions.get(session)
        return why_cannot_drive(self._runtime.world, ledger.state) if ledger is not None else None

    def hurry(self, session: SessionId) -> bool:
        """
        Let a drive check again whether it should stop. Return False if no call of it runs, so
        nothing is lost when it is cancelled.
        """
        ledger = self._runtime.sessions.get(session)
        if ledger is None or not any(
            call.status is CallStatus.STARTED
            for turn in ledger.state.turns.values()
            for call in turn.calls
        ):
            return False
        ledger.wake_watchers()
        return True

    # --- time

    def clock_ms(self) -> int:
        """The clock alone, for the ends of tokens and page codes."""
        return self._runtime.world.clock.now_ms()

    def now_ms(self) -> int:
        """The later of the clock and the home's time."""
        return self._runtime.world.now_ms()

    async def next_expiry(self, *, after: int) -> int | None:
        """When the next prompt expires after an instant."""
        return await self._runtime.world.index.next_expiry(after=after)

    async def next_reminder(self, *, after: int) -> int | None:
        """When the next reminder comes due after an instant."""
        return await self._runtime.world.index.next_reminder(after=after)

    async def reminding(self, *, after: int, until: int) -> Sequence[SessionId]:
        """Sessions whose earliest reminder lies in (after, until], sorted by time."""
        return await self._runtime.world.index.reminding(after=after, until=until)

    async def row(self, session: SessionId) -> IndexRow | None:
        """The session as the index knows it."""
        return await self._runtime.world.index.get(session)

    async def waiting_since(self) -> Sequence[int]:
        """When each open prompt was asked, as the index knows them. Unix milliseconds."""
        rows = self._runtime.world.index.rows(only_waiting=True)
        return [asked_at(prompt) async for row in rows for prompt in row.approvals]

    def store_gauges(self) -> Mapping[str, tuple[str, float]]:
        """Numbers of the store for operators, each with a sentence."""
        return self._runtime.world.store.gauges()

    async def sealed_sessions(self) -> int:
        return len(await self._runtime.world.store.seals())

    # --- sessions

    def notices(self) -> AbstractAsyncContextManager[AsyncIterator[SessionId]]:
        """The sessions that any process appends to from now on."""
        return self._runtime.world.notifier.listen()

    def use(self, session: SessionId) -> AbstractAsyncContextManager[Ledger]:
        """The open session, for a stream that follows its records and its state."""
        return self._runtime.sessions.use(session)

    async def records_after(self, ledger: Ledger, seq: int) -> Sequence[Record]:
        """One page of an open session's verified records. Empty at the head."""
        return await page_of_records(ledger, seq)

    @asynccontextmanager
    async def read_anew(self, session: SessionId) -> AsyncGenerator[Journal, None]:
        """The journal, opened anew: its records are read from the disk and verified."""
        journal = await self._runtime.world.store.open(session)
        try:
            yield journal
        finally:
            await journal.close()

    @property
    def sessions_open(self) -> int:
        return len(self._runtime.sessions.open_ledgers())

    @property
    def feed(self) -> Feed:
        return self._runtime.feed

    def listen(
        self, session: SessionId, wake: asyncio.Event
    ) -> AbstractContextManager[Subscription]:
        """Pieces of text and output as they come, unverified. `wake` is set with each piece."""
        return self._runtime.feed.listen(session, wake)

    async def current(self, session: SessionId) -> InstanceId | None:
        """The session's present instance; None if there is no such session."""
        return await self._runtime.world.store.current(session)

    async def heads(self) -> Heads:
        """Every session with its instance and its last acknowledged record."""
        return await self._runtime.world.store.heads()

    async def heads_of(self, sessions: Collection[SessionId]) -> Heads:
        """Those of these sessions that exist, like `heads`."""
        return await self._runtime.world.store.heads_of(sessions)

    async def recent_heads(self, *, within_seconds: float) -> Heads | None:
        """At least the sessions that moved within this time; None if the store does not know."""
        return await self._runtime.world.store.recent_heads(within_seconds=within_seconds)

    async def session_of(self, approval: ApprovalId) -> SessionId | None:
        """The session of a prompt; only whole ids are known."""
        return await prompt_list.session_of(self._runtime.world, self._runtime.sessions, approval)

    async def known_session_of(self, approval: ApprovalId) -> SessionId | None:
        """Like `session_of`, from the index alone."""
        return await self._runtime.world.index.session_of(approval)

    async def readers_of(self, session: SessionId) -> Collection[Reader]:
        """The participants, up to the head; for a sealed session, as far as it verifies."""
        return await session_list.readers_of(self._runtime.sessions, session)

    async def is_seen(self, session: SessionId, sees: session_list.Sees) -> bool:
        """Whether the session exists for this reader."""
        return await session_list.is_seen(
            self._runtime.world, self._runtime.sessions, session, sees
        )

    async def prompts_below(self, turn: Turn) -> tuple[ApprovalReport, ...]:
        """The open prompts of a turn's delegates, and of their delegates."""
        from holdfast.runtime.delegates.delegation import prompts_below

        return await prompts_below(self._runtime, turn)

    # --- the process

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Known secrets, which no answer to a client may hold."""
        return self._runtime.world.secrets

    @property
    def policy(self) -> Callable[[], Policy]:
        """The current policy; reading it checks the settings."""
        return self._runtime.world.policy

    @property
    def home_folder(self) -> str | None:
        return self._runtime.world.home

    def check_agent(self, agent: str | None, model: str | None) -> None:
        """Raise `Unusable` if this process lacks the agent or the model."""
        self._runtime.world.agent(agent)
        if model is not None:
            self._runtime.world.models.resolve(model)

    def add_tools(self, tools: Sequence[Tool], agent: str | None) -> None:
        """Give an agent further tools, as long as this process runs."""
        add_tools(self._runtime.world, tools, agent)

    def workspace(self, path: str) -> Workspace:
        return self._runtime.world.workspace(path)
