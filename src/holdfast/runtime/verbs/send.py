"""
Send: accept a message, durably, and drive its turn to its end or a pause.

If this process can drive, it claims first, so that one commit accepts the message and starts the
turn. A message that is not new (a repeat, or a bare answer word while a prompt is open) leaves
nothing behind, and returns the report of the earlier one.
"""

import msgspec

from holdfast.errors import CannotDrive
from holdfast.ids import ApprovalId, InstanceId, SessionId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.runtime.delegates.delegation import asked_below
from holdfast.runtime.drive.drivability import code_in_reach, missing_part
from holdfast.runtime.drive.driver import Driver
from holdfast.runtime.drive.turn import drive_turn, turn_standing
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.memory.recall import remembers
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.types import ErrorReport, TurnReport
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.verbs.accept import (
    Incoming,
    accept_command,
    create_session,
    no_answer,
    refuse_unfit,
)
from holdfast.session.commands import AcceptInput, Expire, SessionCommand, StartTurn
from holdfast.session.decide.inputs import is_repeat, prompts_superseded_by
from holdfast.session.evolve.fold import initial
from holdfast.session.results import Accepted, Duplicate, OnlyAnAnswerWord


async def send(
    runtime: Runtime, session: SessionId, incoming: Incoming, *, wait: bool
) -> TurnReport:
    refuse_unfit(runtime.world, session, incoming)
    if await runtime.world.store.current(session) is None:
        # Its agent or its model may be unknown here. Then no empty session is left behind.
        accept_command(runtime.world, initial(session, InstanceId("")), incoming)
        created = await create_session(runtime.world, session, by=incoming.sender)
        if created is not None:
            await runtime.sessions.take_in(created)
    async with runtime.sessions.use(session) as ledger:
        accept = accept_command(runtime.world, ledger.state, incoming)
        if wait:
            _refuse_code_in_reach(runtime, accept)
        if ledger.state.delegates:
            below = await asked_below(runtime, ledger.state)
            accept = msgspec.structs.replace(accept, asked_below=below)
        if not wait:
            return await _hand_over(runtime, ledger, accept)
        async with Driver(runtime, ledger) as driver:
            claimed = await _try_claim_quietly(runtime, driver, accept)
            accepted = await _accept(runtime, ledger, accept, claimed=claimed)
            if isinstance(accepted, OnlyAnAnswerWord):
                return await _only_a_word(runtime, ledger, accepted)
            if isinstance(accepted, Duplicate):
                report = await turn_standing(runtime, ledger, accepted.turn)
                if report.outcome not in ("running", "queued"):
                    return report
            report = await _run_to_pause(driver, accepted.turn, claimed=claimed)
            return _with_superseded(report, accepted)


def _with_superseded(report: TurnReport, accepted: Accepted | Duplicate) -> TurnReport:
    if isinstance(accepted, Duplicate):
        return report
    return msgspec.structs.replace(report, superseded=accepted.superseded)


async def would_supersede(
    runtime: Runtime, session: SessionId, incoming: Incoming
) -> tuple[ApprovalId, ...]:
    """Return the prompts that this message would close. Nothing is written."""
    if await runtime.world.store.current(session) is None:
        return ()
    async with runtime.sessions.use(session) as ledger:
        await ledger.catch_up()
        accept = msgspec.structs.replace(
            accept_command(runtime.world, ledger.state, incoming),
            asked_below=await asked_below(runtime, ledger.state),
        )
        return prompts_superseded_by(ledger.state, accept, runtime.world.clock.now_ms())


async def was_accepted(runtime: Runtime, session: SessionId, incoming: Incoming) -> bool:
    """Return whether a message with one of its keys was accepted before. Nothing is written."""
    if await runtime.world.store.current(session) is None:
        return False
    async with runtime.sessions.use(session) as ledger:
        await ledger.catch_up_if_behind()
        return is_repeat(ledger.state, accept_command(runtime.world, ledger.state, incoming))


async def _hand_over(runtime: Runtime, ledger: Ledger, accept: AcceptInput) -> TurnReport:
    """Accept the message and leave its turn to whichever process drives."""
    accepted = await _accept(runtime, ledger, accept, claimed=False)
    if isinstance(accepted, OnlyAnAnswerWord):
        return await _only_a_word(runtime, ledger, accepted)
    if isinstance(accepted, Duplicate):
        return await turn_standing(runtime, ledger, accepted.turn)
    return _with_superseded(await turn_report(ledger, accepted.turn), accepted)


def _refuse_code_in_reach(runtime: Runtime, accept: AcceptInput) -> None:
    """
    Refuse before the message is accepted: only a process that loads its program from elsewhere
    could drive it.
    """
    if (
        accept.workspace is None
        or missing_part(runtime.world, accept.agent, accept.model) is not None
    ):
        return
    if (text := code_in_reach(runtime.world, accept.agent, accept.workspace.path)) is not None:
        raise CannotDrive(
            f"nothing was sent: {text}",
            hint='or count scripts again: approvals.consent in holdfast.toml with "script"',
        )


async def _try_claim_quietly(runtime: Runtime, driver: Driver, accept: AcceptInput) -> bool:
    """
    Claim before the message is accepted, so that one commit can accept it and start the turn.
    An error is reported later.
    """
    if missing_part(runtime.world, accept.agent, accept.model) is not None:
        return False
    try:
        return await driver.claim()
    except CannotDrive:
        return False


async def _accept(
    runtime: Runtime, ledger: Ledger, accept: AcceptInput, *, claimed: bool
) -> Accepted | Duplicate | OnlyAnAnswerWord:
    commands: list[SessionCommand] = [Expire(), accept]
    epoch = ledger.attempt.epoch
    if (
        claimed
        and epoch is not None
        and ledger.state.running is None
        and not remembers(runtime.world)
    ):
        commands.append(StartTurn(epoch=epoch))
    outcome = await (ledger.drive if claimed else ledger.commit)(*commands, check=Check.FENCE)
    return outcome.of(accept)


async def _only_a_word(runtime: Runtime, ledger: Ledger, word: OnlyAnAnswerWord) -> TurnReport:
    report = await turn_standing(runtime, ledger, word.turn)
    return msgspec.structs.replace(report, error=ErrorReport.of(no_answer(word, report)))


async def _run_to_pause(driver: Driver, turn: TurnId, *, claimed: bool) -> TurnReport:
    try:
        await drive_turn(driver, turn, claimed=claimed)
    except CannotDrive as exc:  # a sender that does not know of the acceptance would send again
        raise CannotDrive(
            f"the message is kept as {turn}, but {exc.message}", hint=exc.hint
        ) from exc
    return await turn_standing(driver.runtime, driver.ledger, turn)
