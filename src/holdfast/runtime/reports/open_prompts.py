"""
The open prompts of one session, and how closed ones ended: from its folded state, so as true as the
journal.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.ids import ApprovalId
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports.types import ApprovalReport, approval_report
from holdfast.session.authority.expiry import Moment
from holdfast.session.decide.external_loop import returns_until
from holdfast.session.state import SessionState


class PromptEnd(NamedTuple):
    """Answered by a person with an option, or closed for a reason."""

    by: str | None
    option: str | None
    closed_as: str | None


def prompts_of(ledger: Ledger) -> Sequence[ApprovalReport]:
    """Every open prompt of the session; a sealed session has none."""
    if not ledger.state.approvals or ledger.journal.sealed is not None:
        return ()
    return [
        approval_report(ledger.session, ledger.instance, turn, each)
        for turn in ledger.state.turns.values()
        for each in turn.open_approvals
    ]


def prompts_open(state: SessionState) -> frozenset[ApprovalId]:
    return frozenset(
        each.asked.approval for turn in state.turns.values() for each in turn.open_approvals
    )


def has_expired(state: SessionState, moment: Moment) -> bool:
    """
    Whether any prompt has expired, or a turn has waited too long for its external loop. Not while
    the clock is disputed: such a prompt cannot be approved, but it is not closed for that.
    """
    return any(moment.now >= each for each in expiries(state))


def expiries(state: SessionState) -> list[int]:
    """The times at which prompts expire, and turns that wait for their external loop are lost."""
    asked = [each.asked.expires_at for turn in state.turns.values() for each in turn.open_approvals]
    return [*asked, *(returns_until(turn) for turn in state.turns.values() if turn.is_left)]


def prompt_end(state: SessionState, approval: ApprovalId) -> PromptEnd | None:
    """
    How the prompt ended. None if it does not belong to the current instance, or ended so long ago
    that only the journal knows.
    """
    if (found := state.find_prompt(approval)) is not None:
        _, call = found
        known = call.approval if call is not None else None
        if known is None or known.asked.approval != approval:
            return None
        answer = known.answer
        return PromptEnd(
            answer.by if answer else None, answer.option if answer else None, known.closed_as
        )
    settled = state.settled.get(approval)
    return PromptEnd(settled.by, settled.option, settled.closed_as) if settled is not None else None
