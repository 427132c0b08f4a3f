"""
Shared by `send`, `resume` and `approvals answer`: a turn's report, and a sealed session reported as
an outcome.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.shared.options import Options
from holdfast.cli.shared.output import EXIT_OF_OUTCOME, error_fields, exit_code_of, is_sealed
from holdfast.cli.shared.prompt_text import turn_text
from holdfast.errors import HoldfastError
from holdfast.runtime.reports.types import TurnReport

if TYPE_CHECKING:
    from holdfast.runtime.service import Service


def fields_of(turn: TurnReport) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(turn)
    return fields


def told(options: Options, turn: TurnReport) -> int:
    """Print a turn's present state and return the exit code."""
    if options.out.json:
        options.out.object(fields_of(turn))
        return EXIT_OF_OUTCOME[turn.outcome]
    options.out.text(turn_text(options, turn))
    if turn.error is not None:
        options.out.told(turn.error.message, turn.error.hint)
    return EXIT_OF_OUTCOME[turn.outcome]


async def tell_doubts(options: Options, service: "Service", turn: TurnReport) -> None:
    """Note each doubt for the person too (T2), beside the result, which is the model's."""
    for each in await service.doubts(turn):
        options.out.note(each)


def told_error(options: Options, session: str, error: HoldfastError) -> int:
    """Print an error of one session, with the known fields of a turn's report."""
    if options.out.json:
        options.out.failure(fields_of_error(session, error))
    else:
        options.out.error(error)
    return exit_code_of(error)


def fields_of_error(session: str, error: HoldfastError) -> dict[str, Any]:
    if not is_sealed(error):
        return {"session": session, "error": error_fields(error)}
    return {**no_turn(session, "sealed"), "error": error_fields(error)}


def no_turn(session: str | None, outcome: str) -> dict[str, Any]:
    return {
        "session": session,
        "turn": None,
        "outcome": outcome,
        "reply": None,
        "approvals": [],
        "error": None,
        "usage": {},
        "seq": 0,
    }
