"""
Every decision of people about calls: the prompt, its answer or its end, and the result of the call.
Read from the journals, newest first. Nothing is driven or written.

A session's decisions are never newer than its last record. So the sessions are read from the one
that moved last, and reading stops once no session that is left could have a newer decision.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import ApprovalId, CallId, InstanceId, JobId, SessionId, TurnId, turn_id_of
from holdfast.ports.journal_store import Record
from holdfast.runtime.context import World
from holdfast.runtime.reports.session_list import SessionLine
from holdfast.runtime.reports.types import arguments_of, iso
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.restore import restore
from holdfast.session.codec import decode
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    CallFinished,
    InputAccepted,
    JobEnded,
    JobSubmitted,
)

_READ = frozenset(
    {
        "input_accepted",
        "approval_requested",
        "approval_answered",
        "approval_closed",
        "call_finished",
        "job_submitted",
        "job_ended",
    }
)
_TEXT_CHARS_MAX = 20_000  # of a result; the conversation has all of it


class DecisionReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    One prompt that was answered or closed. `outcome` is the call's own, and None while it runs. A
    call with a `job` runs until the job has ended. `option` and `answered_by` are None for a prompt
    that nobody answered.
    """

    id: ApprovalId
    session: SessionId
    instance: InstanceId
    turn: TurnId
    call: CallId
    tool: str
    kind: str
    arguments: Any
    display: str
    requester: str | None
    audience: str | None
    boundary: str | None
    may_answer: tuple[str, ...]
    requested_at: str
    option: str | None = None
    answered_by: str | None = None
    answered_at: str | None = None  # or the time at which it was closed
    reason: str | None = None
    way: str | None = None
    closed_as: str | None = None
    job: JobId | None = None
    outcome: str | None = None
    code: str | None = None
    text: str | None = None
    ended_at: str | None = None

    @property
    def is_over(self) -> bool:
        return self.option is not None or self.closed_as is not None

    @property
    def place(self) -> str:
        """The place in the order of all decisions: later ones are greater."""
        return f"{self.answered_at or self.requested_at} {self.id}"


async def decisions_of(world: World, session: SessionId) -> list[DecisionReport]:
    """Return every prompt of one session, in the order in which they were asked."""
    found, _ = await _read(world, session)
    return found


async def _read(world: World, session: SessionId) -> tuple[list[DecisionReport], bool]:
    """Return the prompts, and whether all of the journal could be read: a sealed one ends early."""
    journal = await world.store.open(session)
    fold = _Fold(session, journal.instance)
    try:
        await journal.load(fold.take)
        is_whole = journal.sealed is None
    finally:
        await journal.close()
    return list(fold.found.values()), is_whole


class DecisionsPage(NamedTuple):
    """`unreadable` names the sessions that could not be read whole: the list may lack some."""

    decisions: tuple[DecisionReport, ...]
    next: str | None
    unreadable: tuple[SessionId, ...]


async def decisions(
    world: World,
    lines: Sequence[SessionLine],
    *,
    wanted: Callable[[DecisionReport], bool],
    limit: int,
    after: str | None = None,
    since: str | None = None,
) -> DecisionsPage:
    """
    Return one page of the decisions in these sessions, newest first. `after` is the `next` of the
    page before; `since` bounds how far back sessions are read.
    """
    found: list[DecisionReport] = []
    unreadable: list[SessionId] = []
    for line in sorted(lines, key=lambda each: each.updated_at or "~", reverse=True):
        moved = line.updated_at or "~"
        if (since is not None and moved < since) or _is_full(found, limit, moved):
            break
        try:
            every, is_whole = await _read(world, line.session)
        except HoldfastError:
            unreadable.append(line.session)
            continue
        if not is_whole:
            unreadable.append(line.session)
        found += [
            each
            for each in every
            if each.is_over and wanted(each) and (after is None or each.place < after)
        ]
        found.sort(key=lambda each: each.place, reverse=True)
        del found[limit + 1 :]
    page = found[:limit]
    following = page[-1].place if len(found) > limit else None
    return DecisionsPage(tuple(page), following, tuple(unreadable))


def _is_full(found: Sequence[DecisionReport], limit: int, moved: str) -> bool:
    """Whether a session that last moved then can't add to the page."""
    return len(found) > limit and found[limit].place > moved


class _Fold:
    def __init__(self, session: SessionId, instance: InstanceId) -> None:
        self._session, self._instance = session, instance
        self._contexts: dict[TurnId, TurnContext] = {}
        # The last prompt of each call: after an edit the result belongs to the new prompt.
        self._last: dict[CallId, ApprovalId] = {}
        self._jobs: dict[JobId, CallId] = {}
        self._background: set[CallId] = set()  # the calls of these jobs
        self.found: dict[ApprovalId, DecisionReport] = {}

    def take(self, record: Record) -> None:
        if record.type not in _READ:
            return
        event = decode(record.type, record.version, record.body, seq=record.seq)
        match event:
            case InputAccepted():
                context = restore(event.context, session=self._session, instance=self._instance)
                if isinstance(context, TurnContext):
                    self._contexts[turn_id_of(event.input)] = context
            case ApprovalRequested():
                self._requested(event, record.at)
            case ApprovalAnswered():
                self._change(
                    event.approval,
                    option=event.option,
                    answered_by=event.by,
                    answered_at=iso(record.at),
                    reason=event.reason,
                    way=event.way,
                )
            case ApprovalClosed():
                self._change(event.approval, closed_as=event.closed_as, answered_at=iso(record.at))
            case JobSubmitted():
                self._jobs[event.job] = event.call
                self._background.add(event.call)
                unknown = dict.fromkeys(("outcome", "code", "text", "ended_at"))
                self._change(self._last.get(event.call), job=event.job, **unknown)
            case CallFinished() if event.call not in self._background:
                self._finished(event.call, event, record.at)
            case JobEnded() if event.job in self._jobs:
                self._finished(self._jobs[event.job], event, record.at)
            case _:
                pass

    def _finished(self, call: CallId, event: CallFinished | JobEnded, at: int) -> None:
        self._change(
            self._last.get(call),
            outcome=event.outcome,
            code=event.code,
            text=event.text[:_TEXT_CHARS_MAX],
            ended_at=iso(at),
        )

    def _requested(self, event: ApprovalRequested, at: int) -> None:
        context = self._contexts.get(event.turn)
        self._last[event.call] = event.approval
        self.found[event.approval] = DecisionReport(
            id=event.approval,
            session=self._session,
            instance=self._instance,
            turn=event.turn,
            call=event.call,
            tool=event.tool,
            kind=event.kind,
            arguments=arguments_of(event.arguments),
            display=event.display,
            requester=context.requester if context is not None else None,
            audience=context.audience.value if context is not None else None,
            boundary=context.boundary if context is not None else None,
            may_answer=event.may_answer,
            requested_at=iso(at),
        )

    def _change(self, approval: ApprovalId | None, **facts: object) -> None:
        if approval is not None and approval in self.found:
            self.found[approval] = msgspec.structs.replace(self.found[approval], **facts)
