"""
A question that a server asks inside of an open call. It stands in the journal like every prompt, so
any process shows it and takes its answer. The open call lives in this process alone, and so does
the way back to the server: if the process dies, the call is in doubt and the question is closed.

    tool_started ─> approval_requested ─┬─> approval_answered ─> the server has it ─> call_finished
                                        ├─> approval_closed (expired, cancelled, withdrawn)
                                        └─> crash: approval_closed, call_finished (in doubt)
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.ids import ApprovalId, CallId, TurnId
from holdfast.ports.tools import InputWanted, PersonSaid
from holdfast.runtime.cancellation import wait_for
from holdfast.runtime.context import World
from holdfast.runtime.drive.bound_call import bind_call
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.reports.open_prompts import has_expired
from holdfast.runtime.runtime import Runtime
from holdfast.session.authority.approvals import DENY
from holdfast.session.commands import AskForInput, Expire
from holdfast.session.features.forms.form import FilledForm, said_in, values_of
from holdfast.session.state import Approval, SessionState

Commit = Callable[[AskForInput], Awaitable[str | None]]
"""Commits as the driver. Returns the reason why nobody is asked, or None."""

_OVER = PersonSaid(why="the call is over")


class AskingCall(NamedTuple):
    """A started call of this process."""

    turn: TurnId
    call: CallId
    run: int


async def ask_in_open_call(
    runtime: Runtime,
    ledger: Ledger,
    place: AskingCall,
    wants: InputWanted,
    *,
    seconds_max: float,
    commit: Commit,
) -> PersonSaid:
    """
    Ask, and wait for the answer or the end of the question. An error is an end of it: the driver
    meets the same error at its next commit.
    """
    try:
        command = await _command(runtime.world, ledger.state, place, wants, seconds_max)
        if command is None:
            return _OVER
        if (why := await commit(command)) is not None:
            return PersonSaid(why=why)
        asked = _approval(ledger.state, place)
        if asked is None:
            return _OVER
        return await _answer(runtime, ledger, place, asked.asked.approval)
    except HoldfastError as exc:
        return PersonSaid(why=exc.message)


async def _command(
    world: World, state: SessionState, place: AskingCall, wants: InputWanted, seconds_max: float
) -> AskForInput | None:
    found = state.started_call(*place)
    if found is None:
        return None
    return AskForInput(
        turn=place.turn,
        call=place.call,
        run=place.run,
        bound=await bind_call(world, state, *found),
        form=wants.form,
        display=wants.display,
        warnings=wants.warnings,
        policy=world.policy(),
        seconds_max=int(seconds_max),
    )


async def _answer(
    runtime: Runtime, ledger: Ledger, place: AskingCall, name: ApprovalId
) -> PersonSaid:
    watch = ledger.watch()
    try:
        while True:
            watch.clear()
            await ledger.catch_up_if_behind()
            approval = _approval(ledger.state, place)
            if approval is None or approval.asked.approval != name:
                return _OVER
            if not approval.is_open:
                return _said(approval)
            if has_expired(ledger.state, runtime.home.moment(session_at=ledger.state.at)):
                await ledger.commit(Expire())  # it sets the watch if the question is over
            await wait_for(watch)
    finally:
        ledger.unwatch(watch)


def _approval(state: SessionState, place: AskingCall) -> Approval | None:
    found = state.started_call(*place)
    return None if found is None else found[1].approval


def _said(approval: Approval) -> PersonSaid:
    form, answer = approval.asked.form, approval.answer
    if answer is None or form is None:
        why = "nobody answered in time" if approval.closed_as == "expired" else "it was withdrawn"
        return PersonSaid(why=why)
    if answer.option == DENY:
        return PersonSaid(declined=True)
    values = values_of(form, said_in(answer.option, answer.reason))
    return PersonSaid(filled=FilledForm(state=form.state, values=values))
