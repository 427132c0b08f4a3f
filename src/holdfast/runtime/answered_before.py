"""
The same answer id again, after its turn has ended: told what came of it if it is the same answer, refused if it brings other arguments or other words.

What a settled prompt was answered with is not kept in memory; the journal has it. Looked up only for an id that was used, which is rare.
"""

import msgspec

from holdfast.errors import Refused
from holdfast.ports.journal_store import Record
from holdfast.ports.tools import InvalidArguments
from holdfast.runtime.ledger import Ledger
from holdfast.runtime.world import World
from holdfast.session.approvals import ANSWER
from holdfast.session.codec import decode
from holdfast.session.commands import AnswerApproval
from holdfast.session.events import ApprovalAnswered, ApprovalRequested


async def refuse_another(world: World, ledger: Ledger, command: AnswerApproval) -> None:
    """Raises `already_answered` for another answer under an id that was used; decides nothing else."""
    settled = ledger.state.settled.get(command.approval)
    if settled is None or settled.answer_id != command.answer_id:
        return
    asked, answer = await _recorded(world, ledger, command)
    if asked is None or answer is None or (_fits(world, asked, answer, command) and (answer.option != ANSWER or answer.reason == command.reason)):
        return
    raise Refused(
        f"the answer id {command.answer_id!r} was used for another answer",
        code="already_answered",
        hint="leave the answer id out, or use a new one",
    )


async def _recorded(world: World, ledger: Ledger, command: AnswerApproval) -> tuple[ApprovalRequested | None, ApprovalAnswered | None]:
    asked: ApprovalRequested | None = None
    answer: ApprovalAnswered | None = None

    def fold(record: Record) -> None:
        nonlocal asked, answer
        if record.type not in ("approval_requested", "approval_answered"):
            return
        match decode(record.type, record.version, record.body, seq=record.seq):
            case ApprovalRequested(approval=command.approval) as found:
                asked = found
            case ApprovalAnswered(approval=command.approval) as found:
                answer = found
            case _:
                pass

    journal = await world.store.open(ledger.session)
    try:
        await journal.load(fold)
    finally:
        await journal.close()
    return asked, answer


def _fits(world: World, asked: ApprovalRequested, answer: ApprovalAnswered, command: AnswerApproval) -> bool:
    """Are these the arguments that were taken? Compared as the tool reads them, as they were before they were journalled."""
    if answer.arguments is None or command.arguments is None:
        return answer.arguments == command.arguments
    tool = world.tools.get(asked.tool)
    try:
        given = tool.validate(command.arguments.encode()) if tool is not None else command.arguments.encode()
        return bool(msgspec.json.decode(given) == msgspec.json.decode(answer.arguments))
    except (InvalidArguments, msgspec.DecodeError):
        return False
