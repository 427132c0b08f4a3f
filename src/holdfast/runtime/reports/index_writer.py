"""
Write a session's row to the index: at once at the end of a drive; a moment later after an append
that another process drives on.

The index is a cache whose rows are compared with their journal's head, so a late row is never
wrong: a list opens the session instead. The process that drives on usually writes a newer row
before that moment is over; then the row in between is never written.
"""

import asyncio

import msgspec

from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.ports.index import IndexRow
from holdfast.runtime.context import World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reminders import reports_of
from holdfast.runtime.reports.builder import phase_of
from holdfast.runtime.reports.open_prompts import prompts_of
from holdfast.session.react import react, unsettled
from holdfast.session.state import SessionState

SEALED = "sealed"  # the one phase that no turn has
# Longer than a turn of instant answers takes, shorter than a person takes to look.
NOTE_SECONDS = 0.25


def note(world: World, ledger: Ledger) -> IndexRow:
    """Write the session's current row."""
    state = ledger.state
    reports = prompts_of(ledger)
    expiries = [
        each.asked.expires_at for turn in state.turns.values() for each in turn.open_approvals
    ]
    row = IndexRow(
        session=ledger.session,
        instance=ledger.instance,
        seq=ledger.folded_seq,  # a row that claimed more than it knows would never be rewritten
        phase=phase_of(state),
        turns=state.turns_ended + len(state.turns),
        owes=bool(react(state) or unsettled(state)),
        updated_at=state.at,
        approvals=tuple(msgspec.Raw(msgspec.json.encode(each)) for each in reports),
        waiting_for=tuple(sorted({person for each in reports for person in each.may_answer})),
        expires_at=min(expiries, default=None),
        people=tuple(sorted(state.people)),
        readers=tuple(sorted(state.readers, key=msgspec.structs.astuple)),
        preview=_preview(state),
        remind_at=min((each.next_at for each in state.reminders.values()), default=None),
        reminders=tuple(
            msgspec.Raw(msgspec.json.encode(each)) for each in reports_of(ledger.session, state)
        ),
        parent=state.parent.session if state.parent is not None else None,
        awaits=tuple((each.session, each.instance) for each in state.delegates.values()),
        jobs=tuple(job.job for job in state.jobs.values() if job.ended is None),
    )
    world.index.put(
        row, [ApprovalId(each) for each in (*state.jobs, *state.approvals, *ledger.asked)]
    )
    return row


def write_sealed_row(world: World, session: SessionId, instance: InstanceId) -> None:
    """
    Mark a session as sealed: it owes nothing, and its prompts cannot be answered. The rest of the
    row stays.
    """
    known = world.index.get(session)
    if known is not None and known.instance == instance and known.phase != SEALED:
        world.index.put(
            msgspec.structs.replace(
                known,
                phase=SEALED,
                owes=False,
                approvals=(),
                waiting_for=(),
                expires_at=None,
                remind_at=None,
                reminders=(),
            )
        )


def _preview(state: SessionState) -> str:
    last = next(
        (entry.messages[-1] for entry in state.view.entries.newest_first() if entry.messages), None
    )
    text = getattr(last, "text", "") if last is not None else ""
    return " ".join(text.split())[:120]


class IndexWriter:
    def __init__(self, world: World) -> None:
        self._world = world
        self._owed: dict[SessionId, Ledger] = {}
        self._timer: asyncio.TimerHandle | None = None

    def now(self, ledger: Ledger) -> None:
        self._owed.pop(ledger.session, None)
        note(self._world, ledger)

    def soon(self, ledger: Ledger) -> None:
        self._owed[ledger.session] = ledger
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(NOTE_SECONDS, self.settle)

    def settle(self) -> None:
        """
        Write all pending rows now. A session that was sealed or stopped meanwhile is skipped; the
        code that found it so reports it.
        """
        if self._timer is not None:
            self._timer.cancel()
        owed, self._owed, self._timer = self._owed, {}, None
        for ledger in owed.values():
            if ledger.journal.sealed is None and ledger.attempt.stopped is None:
                note(self._world, ledger)
