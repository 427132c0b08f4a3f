"""
An edit that comes again after its prompt was settled, in the spelling in which it was taken: so
that deciding can tell the same answer from another one.

While a prompt is open, new arguments are read by its tool before they are taken. Of a settled one
only a digest is kept in memory; the journal has the rest, and is looked at only for an answer id
that was used with other bytes, which is rare.
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
    """The same command, with the journalled arguments where they say the same. Refuses nothing."""
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
    Are these the arguments that were taken? Compared as the tool reads them, as they were before
    they were journalled.
    """
    if answer.arguments is None:
        return False
    tool = world.tools.get(asked.tool)
    try:
        given = tool.validate(arguments.encode()) if tool is not None else arguments.encode()
        return bool(msgspec.json.decode(given) == msgspec.json.decode(answer.arguments))
    except (InvalidArguments, msgspec.DecodeError):
        return False
