"""
What can be listed without opening journals: which sessions there are, where they stand, what waits
for whom.

A cache: it can be deleted at any time and is rebuilt from the journals. Rows that are shown to
people carry a MAC; a row that does not verify, or that is behind its journal's head, is not
believed: the session is opened instead. So a crash between an append and the index forgets nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.session.state import Reader


class IndexRow(msgspec.Struct, frozen=True, kw_only=True):
    """
    One session, as of `seq`. `approvals` are whole ApprovalReports as JSON, so that a list shows
    exactly what was asked.
    """

    session: SessionId
    instance: InstanceId
    seq: int
    phase: str
    turns: int
    owes: bool  # a driver could do something now
    updated_at: int
    approvals: tuple[msgspec.Raw, ...] = ()
    waiting_for: tuple[str, ...] = ()  # people who may answer any of them
    expires_at: int | None = None  # the earliest of its prompts
    people: tuple[str, ...] = ()  # who sent an accepted input here
    readers: tuple[Reader, ...] = ()  # who takes part, and in which circle
    preview: str = ""
    remind_at: int | None = None  # the earliest of its reminders
    reminders: tuple[msgspec.Raw, ...] = ()  # whole ReminderReports as JSON
    parent: SessionId | None = None  # of a delegate's session: the one it works for
    awaits: tuple[
        tuple[SessionId, InstanceId], ...
    ] = ()  # delegates it waits for, and in which life
    jobs: tuple[str, ...] = ()  # ids of those that run


class Standing(msgspec.Struct, frozen=True, gc=False):
    """
    What a survey of every session says of one: enough to see whether it is known well, what it owes
    and what waits in it.
    """

    session: SessionId
    instance: InstanceId
    seq: int
    owes: bool
    expires_at: int | None
    prompts: bytes  # its ApprovalReports as one JSON array; empty when nothing waits
    remind_at: int | None = None
    awaits: tuple[tuple[SessionId, InstanceId], ...] = ()


class Index(Protocol):
    def put(self, row: IndexRow, approvals: Sequence[ApprovalId] = ()) -> None:
        """
        Replace the session's row, and remember with it where these belong (see `put_approval`).
        Quick; failing is not the caller's problem.
        """
        ...

    def put_approval(self, approval: ApprovalId, session: SessionId) -> None:
        """Remember where a prompt, or a job, belongs, for good."""
        ...

    def forget(self, session: SessionId) -> None: ...

    def get(self, session: SessionId) -> IndexRow | None: ...

    def rows(
        self,
        *,
        after: SessionId | None = None,
        limit: int | None = None,
        only_waiting: bool = False,
    ) -> Iterable[IndexRow]:
        """Sorted by session."""
        ...

    def survey(self) -> Iterable[Sequence[Standing]]:
        """
        Every session whose row verifies, sorted, a page at a time: whoever reads it may let others
        go on between two pages.
        """
        ...

    def session_of(self, approval: ApprovalId) -> SessionId | None: ...

    def stale(self, heads: Sequence[tuple[SessionId, InstanceId, int]]) -> Sequence[SessionId]:
        """
        Of these (session, instance, head seq): the ones whose row is missing, does not verify or is
        behind.
        """
        ...

    def next_reminder(self, *, after: int) -> int | None:
        """
        The earliest `remind_at` past an instant: what one timer for all of them waits for. Costs
        the same however many there are.
        """
        ...

    def reminding(self, *, after: int, until: int) -> Sequence[SessionId]:
        """Sessions whose earliest reminder lies in (after, until], by time."""
        ...

    def next_expiry(self, *, after: int) -> int | None:
        """
        The earliest `expires_at` past an instant: when the first prompt to come runs out. Costs the
        same however many wait.
        """
        ...

    def close(self) -> None: ...
