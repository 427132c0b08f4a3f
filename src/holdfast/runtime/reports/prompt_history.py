"""
Every prompt that a session ever made, with its outcome. Read from its journal, since the state
knows only open and recently settled prompts.

Nothing is driven or written. One pass folds only the records about prompts.
"""

import msgspec

from holdfast.ids import ApprovalId, CallId, InstanceId, SessionId, TurnId, turn_id_of
from holdfast.ports.journal_store import Record
from holdfast.runtime.context import World
from holdfast.runtime.reports.types import ApprovalReport, approval_report
from holdfast.session.authority.approvals import EDIT
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.restore import restore
from holdfast.session.codec import decode
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    DelegateOf,
    InputAccepted,
    SessionBorn,
)
from holdfast.session.state import Approval

_SHOWN = frozenset(
    {"session_born", "input_accepted", "approval_requested", "approval_answered", "approval_closed"}
)


async def prompts_ever(world: World, session: SessionId) -> dict[ApprovalId, ApprovalReport]:
    journal = await world.store.open(session)
    story = _Story(session, journal.instance, world.now_ms())
    try:
        await journal.load(story.fold)
    finally:
        await journal.close()
    return story.reports()


class _Story:
    """Folds only the records that describe prompts."""

    def __init__(self, session: SessionId, instance: InstanceId, now: int) -> None:
        self._now = now
        self._session = session
        self._instance = instance
        self._contexts: dict[TurnId, TurnContext] = {}
        self._agents: dict[TurnId, str] = {}
        self._approvals: dict[ApprovalId, Approval] = {}
        self._editors: dict[CallId, str] = {}
        self._edited: dict[ApprovalId, str] = {}  # prompts for a call whose values a person changed
        self._parent: DelegateOf | None = None
        # The records still to come that a fork has copied: their prompts are the other session's.
        self._copied = 0

    def fold(self, record: Record) -> None:
        if self._copied:
            self._copied -= 1
            return
        if record.type not in _SHOWN:
            return
        event = decode(record.type, record.version, record.body, seq=record.seq)
        match event:
            case SessionBorn():
                self._parent = event.parent
                if event.from_session not in (None, self._session):
                    self._copied = event.carried
            case InputAccepted():
                self._agents[turn_id_of(event.input)] = event.agent
                context = restore(event.context, session=self._session, instance=self._instance)
                if isinstance(context, TurnContext):
                    self._contexts[turn_id_of(event.input)] = context
            case ApprovalRequested(approval=name):
                self._approvals[name] = Approval(asked=event, requested_at=record.at)
                if event.call in self._editors:
                    self._edited[name] = self._editors[event.call]
            case ApprovalAnswered(approval=name):
                if event.option == EDIT:
                    self._editors[event.call] = event.by
                self._approvals[name] = msgspec.structs.replace(self._approvals[name], answer=event)
            case ApprovalClosed(approval=name, closed_as=closed_as) if name in self._approvals:
                self._approvals[name] = msgspec.structs.replace(
                    self._approvals[name], closed_as=closed_as
                )
            case _:
                pass

    def reports(self) -> dict[ApprovalId, ApprovalReport]:
        return {name: self._report(each) for name, each in self._approvals.items()}

    def _report(self, approval_: Approval) -> ApprovalReport:
        asked = approval_.asked
        return approval_report(
            self._session,
            self._instance,
            None,
            approval_,
            context=self._contexts.get(asked.turn),
            parent=self._parent,
            agent=self._agents.get(asked.turn),
            edited_by=self._edited.get(asked.approval),
            now=self._now,
        )
