"""
The index lists sessions without opening journals: their phases, their open prompts and the people
who may answer.

The index is a cache. It can be deleted at any time and is rebuilt from the journals. Rows that are
shown to people carry a MAC. A row that does not verify, or that is behind its journal's head, is
not believed: the session is opened instead. So a crash between an append and the index loses
nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.ports.journal_store import Heads
from holdfast.session.state import Reader


class IndexRow(msgspec.Struct, frozen=True, kw_only=True):
    """
    One session, as of `seq`. `approvals` are whole ApprovalReports as JSON, so that a list shows
    exactly the prompt that was asked.
    """

    session: SessionId
    instance: InstanceId
    seq: int
    phase: str
    turns: int
    owes: bool  # a driver could do something now
    updated_at: int
    approvals: tuple[msgspec.Raw, ...] = ()
    waiting_for: tuple[str, ...] = ()  # people who may answer any of the prompts
    expires_at: int | None = None  # the earliest expiry of its prompts
    people: tuple[str, ...] = ()  # people who sent an accepted input here
    readers: tuple[Reader, ...] = ()  # participants, each with audience and boundary
    preview: str = ""
    title: str = ""
    remind_at: int | None = None  # the earliest of its reminders
    reminders: tuple[msgspec.Raw, ...] = ()  # whole ReminderReports as JSON
    parent: SessionId | None = None  # the session that a delegate works for
    # Delegates that it waits for, each with its instance.
    awaits: tuple[tuple[SessionId, InstanceId], ...] = ()
    jobs: tuple[str, ...] = ()  # ids of running jobs


class Standing(msgspec.Struct, frozen=True, gc=False):
    """
    One session in a survey of many: enough to see whether its row is current, whether it owes work
    and which prompts are open.
    """

    session: SessionId
    instance: InstanceId
    seq: int
    owes: bool
    expires_at: int | None
    prompts: bytes  # its ApprovalReports as one JSON array; empty without open prompts
    remind_at: int | None = None
    awaits: tuple[tuple[SessionId, InstanceId], ...] = ()


class Index(Protocol):
    async def put(self, row: IndexRow, approvals: Sequence[ApprovalId] = ()) -> None:
        """
        Replace the session's row, and store with it the session of these prompts (see
        `put_approval`). Quick; the caller ignores failures.
        """
        ...

    async def put_approval(self, approval: ApprovalId, session: SessionId) -> None:
        """Store permanently the session that a prompt or a job belongs to."""
        ...

    async def forget(self, session: SessionId) -> None: ...

    async def get(self, session: SessionId) -> IndexRow | None: ...

    async def get_many(self, sessions: Sequence[SessionId]) -> Mapping[SessionId, IndexRow]:
        """The rows of these sessions that verify, in one look: for a page of a list."""
        ...

    def rows(
        self,
        *,
        after: SessionId | None = None,
        limit: int | None = None,
        only_waiting: bool = False,
    ) -> AsyncIterator[IndexRow]:
        """Sorted by session."""
        ...

    def prompting(self) -> AsyncIterator[Sequence[Standing]]:
        """
        Sessions with open prompts whose row verifies, sorted, one page at a time, so that the
        reader can let other tasks run between two pages. The cost does not depend on the number of
        other sessions.
        """
        ...

    def due(self, *, until: int) -> AsyncIterator[Sequence[Standing]]:
        """
        Sessions that owe work, that wait for a delegate, or whose earliest expiry or reminder is
        not after an instant; like `prompting`.
        """
        ...

    def with_jobs(self) -> AsyncIterator[IndexRow]:
        """Rows of sessions with running jobs, sorted. The cost does not depend on the others."""
        ...

    async def session_of(self, approval: ApprovalId) -> SessionId | None: ...

    async def stale(self, heads: Heads) -> Sequence[SessionId]:
        """
        Return the sessions whose row is missing, does not verify or is behind the given (session,
        instance, head seq).
        """
        ...

    async def behind(self, heads: Callable[[], Awaitable[Heads]]) -> Sequence[SessionId]:
        """
        Like `stale`, for the heads that `heads` reads. An index that shares a database with the
        journals may know the sessions that moved, and then compares all of them only from time to
        time: a row that somebody else changed or removed is found that late.
        """
        ...

    async def next_reminder(self, *, after: int) -> int | None:
        """
        The earliest `remind_at` after an instant, for the one timer that serves all reminders. The
        cost does not depend on their number.
        """
        ...

    async def reminding(self, *, after: int, until: int) -> Sequence[SessionId]:
        """Sessions whose earliest reminder lies in (after, until], sorted by time."""
        ...

    async def next_expiry(self, *, after: int) -> int | None:
        """
        The earliest `expires_at` after an instant. The cost does not depend on the number of
        prompts.
        """
        ...

    def close(self) -> None: ...
