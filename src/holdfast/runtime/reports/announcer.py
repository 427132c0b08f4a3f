"""
Announce a session's new records: notify other tasks and processes, write its row to the index, and
make its anchor durable. The ledger calls this after each of its commits; no verb has to.

There are two cases:

1. A participant's commit (a message, an answer, a cancel) is notified at once. Its row and anchor
   follow when the session is put back. If it then owes work, they follow a moment later: the
   process that drives on usually writes a newer row before that.
2. A driver's commit is notified only if it changed the open prompts, because approvers wait for
   them. Row, anchor and the other notices follow when the driver leaves.

The index is a cache whose rows are compared with their journal's head, so a late row is never
wrong: a list opens the session instead. A crash before the row is written loses nothing either.
"""

import asyncio
import logging

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.ports.index import IndexRow
from holdfast.runtime.context import World
from holdfast.runtime.ledger.attempt import WriteAs
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reminders import reports_of
from holdfast.runtime.reports.builder import phase_of
from holdfast.runtime.reports.open_prompts import expiries, prompts_of, prompts_open
from holdfast.session.react import react, unsettled
from holdfast.session.state import SessionState
from holdfast.session.view.messages import NoteMessage

SEALED = "sealed"  # the one phase that no turn has
_log = logging.getLogger("holdfast.service")


async def write_row(world: World, ledger: Ledger) -> IndexRow:
    """Write the session's current row."""
    state = ledger.state
    reports = prompts_of(ledger)
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
        expires_at=min(expiries(state), default=None),
        people=tuple(sorted(state.people)),
        readers=tuple(sorted(state.readers, key=msgspec.structs.astuple)),
        preview=_preview(state),
        title=state.title,
        remind_at=min((each.next_at for each in state.reminders.values()), default=None),
        reminders=tuple(
            msgspec.Raw(msgspec.json.encode(each)) for each in reports_of(ledger.session, state)
        )
        if state.reminders
        else (),
        parent=state.parent.session if state.parent is not None else None,
        awaits=tuple((each.session, each.instance) for each in state.delegates.values()),
        jobs=tuple(job.job for job in state.jobs.values() if job.ended is None),
    )
    await world.index.put(
        row, [ApprovalId(each) for each in (*state.jobs, *state.approvals, *ledger.asked)]
    )
    return row


async def write_sealed_row(world: World, session: SessionId, instance: InstanceId) -> None:
    """
    Mark a session as sealed: it owes nothing, and its prompts cannot be answered. The rest of the
    row stays.
    """
    known = await world.index.get(session)
    if known is not None and known.instance == instance and known.phase != SEALED:
        await world.index.put(
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
    """The last words of a person, an agent or a tool. Notes are for the model, and say less."""
    spoken = (
        message.text
        for entry in state.view.entries.newest_first()
        for message in reversed(entry.messages)
        if not isinstance(message, NoteMessage)
    )
    return " ".join(next(spoken, "").split())[:120]


class Announcer:
    """One per service. `run` is its one task."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Ledgers of the first case, whose row and anchor follow in a moment.
        self._owed: dict[Ledger, None] = {}
        self._is_owed = asyncio.Event()

    def committed(self, ledger: Ledger, before: SessionState, by: WriteAs) -> None:
        """Called after every commit that appended a record."""
        if by is WriteAs.PARTICIPANT:
            self._owed[ledger] = None
            self._is_owed.set()
            self._world.notifier.notify(ledger.session)
        elif (before.approvals or ledger.state.approvals) and (
            prompts_open(before) != prompts_open(ledger.state)
        ):
            self._world.notifier.notify(ledger.session)

    async def settle(self, ledger: Ledger) -> None:
        """
        Write the row and the anchor now, and notify. A sealed or stopped session is skipped; the
        code that found it so reports it.
        """
        self._owed.pop(ledger, None)
        head_seq = ledger.journal.head.seq
        if ledger.is_spent or ledger.announced_seq == head_seq:
            return
        ledger.announced_seq = head_seq
        # Where a thread syncs the anchor, it runs while the index is written.
        syncing = ledger.journal.sync_anchor()
        try:
            await write_row(self._world, ledger)
            self._world.notifier.notify(ledger.session)
        finally:
            await syncing
        await ledger.keep_snapshot_if_due()

    async def settle_undriven(self, ledger: Ledger) -> None:
        """Like `settle`, unless the session was deleted or began another instance meanwhile."""
        if ledger.is_spent or ledger.announced_seq == ledger.journal.head.seq:
            self._owed.pop(ledger, None)
        elif await self._world.store.current(ledger.session) == ledger.instance:
            await self.settle(ledger)

    async def put_back(self, ledger: Ledger) -> None:
        """Settle a session that is left with nothing owed: no driver would do it."""
        if ledger in self._owed and not ledger.driving and not react(ledger.state):
            await self.settle_undriven(ledger)

    async def run(self) -> None:
        """Settle, a moment after a participant's commit, the sessions that nobody drives here."""
        while True:
            await self._is_owed.wait()
            await asyncio.sleep(self._world.tuning.row_delay_seconds)
            self._is_owed.clear()
            for ledger in tuple(self._owed):
                if ledger.driving:
                    continue  # its driver settles it
                try:
                    await self.settle_undriven(ledger)
                except HoldfastError as exc:
                    _log.warning(
                        "%s: its anchor is not durable yet (%s): %s",
                        ledger.session,
                        exc.code,
                        exc.message,
                    )
