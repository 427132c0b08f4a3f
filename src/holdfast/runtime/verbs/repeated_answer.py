"""
Normalise an edit that is repeated after its prompt was settled, so that `decide` can tell the same
answer from another one.

While a prompt is open, its tool validates new arguments before they are taken. For a settled prompt
the state keeps only a digest. The journal has the rest, and is read only if an answer id is used
again with other bytes, which is rare.
"""

import msgspec

from holdfast.ports.journal_store import Record
from holdfast.ports.tools import InvalidArguments
from holdfast.runtime.context import World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.session.codec import decode
from holdfast.session.commands import AnswerApproval
from holdfast.session.events import ApprovalAnswered, ApprovalRequested
from holdfast.session.evolve.approvals import said


async def match_repeated_edit(
    world: World, ledger: Ledger, command: AnswerApproval
) -> AnswerApproval:
    """
    Return the command with the journalled arguments if its own are equal to them. Refuses nothing.
    """
    settled = ledger.state.settled.get(command.approval)
    if command.arguments is None or settled is None or settled.answer_id != command.answer_id:
        return command
    if settled.said == said(command.option, command.reason, command.arguments):
        return command
    asked, answer = await _recorded(world, ledger, command)
    if (
        asked is None
        or answer is None
        or not _says_the_same(world, asked, answer, command.arguments)
    ):
        return command
    return msgspec.structs.replace(command, arguments=answer.arguments)


async def _recorded(
    world: World, ledger: Ledger, command: AnswerApproval
) -> tuple[ApprovalRequested | None, ApprovalAnswered | None]:
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


def _says_the_same(
    world: World, asked: ApprovalRequested, answer: ApprovalAnswered, arguments: str
) -> bool:
    """
    Whether these arguments are equal to the taken ones. Compared as the tool reads them, like
    before they were journalled.
    """
    if answer.arguments is None:
        return False
    tool = world.tools.get(asked.tool)
    try:
        given = tool.validate(arguments.encode()) if tool is not None else arguments.encode()
        return bool(msgspec.json.decode(given) == msgspec.json.decode(answer.arguments))
    except (InvalidArguments, msgspec.DecodeError):
        return False
