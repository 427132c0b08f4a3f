"""
Shared by `send`, `resume` and `approvals answer`: a turn's report, a sealed session reported as an
outcome, and a line for each wait inside of the turn.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.output.call_text import open_question_words
from holdfast.cli.output.exit_codes import EXIT_OF_OUTCOME, exit_code_of
from holdfast.cli.output.prompt_text import turn_text
from holdfast.cli.output.result import error_fields, is_sealed
from holdfast.cli.shared.options import Options
from holdfast.errors import HoldfastError
from holdfast.journal.record import Record
from holdfast.runtime.reports.types import TurnReport
from holdfast.session.codec import decode
from holdfast.session.events import ApprovalRequested, ModelCallFailed
from holdfast.state_words import state_words

if TYPE_CHECKING:
    from holdfast.ids import SessionId
    from holdfast.runtime.service import Service

_WAITS = ("model_call_failed", "approval_requested")
_LOOK_AGAIN_SECONDS = 0.1  # for a session that the command is about to create


def fields_of(turn: TurnReport) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(turn)
    return fields


def print_turn(options: Options, turn: TurnReport) -> int:
    """Print a turn's present state and return the exit code."""
    if options.out.json:
        options.out.object(fields_of(turn))
        return EXIT_OF_OUTCOME[turn.outcome]
    options.out.text(turn_text(options, turn))
    if turn.error is not None:
        options.out.print_error(turn.error.message, turn.error.hint)
    return EXIT_OF_OUTCOME[turn.outcome]


def failure_words(kind: str) -> str:
    """
    >>> failure_words("timeout")
    'The model did not answer: it took too long'
    """
    return f"The model did not answer: {state_words().failures.get(kind, kind)}"


def retry_words(event: ModelCallFailed) -> str:
    """Say when the call is tried again: by the clock, since the line stays on the screen."""
    if event.final:
        return ""
    if event.retry_at is None or event.retry_at <= (event.since or 0):
        return " It is asked again."
    at = datetime.fromtimestamp(event.retry_at / 1000, UTC).astimezone()
    return f" The next try is at {at:%H:%M:%S}."


@asynccontextmanager
async def waits_shown(
    options: Options, service: "Service", session: "SessionId | None"
) -> AsyncGenerator[None, None]:
    """
    Print a line for each wait for a model that does not answer, and for a person in the middle of a
    call, while the block runs. The result does not depend on it: an error here ends only the lines.
    Without a known session there are none.
    """
    if session is None:
        yield
        return
    after = 0
    if await service.live.current(session) is not None:
        with suppress(HoldfastError):  # the command itself reports it
            after = (await service.show(session)).seq
    task = asyncio.create_task(_show_waits(options, service, session, after))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, HoldfastError):
            await task


async def _show_waits(
    options: Options, service: "Service", session: "SessionId", after: int
) -> None:
    while await service.live.current(session) is None:  # noqa: ASYNC110  # nothing to wait on yet
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    advice = (
        f" Ctrl-C leaves: `holdfast resume {session}` goes on, `holdfast sessions cancel {session}`"
        " stops the turn."
    )
    async for each in service.follow(session, after=after):
        if not isinstance(each, Record) or each.type not in _WAITS:
            continue
        event = decode(each.type, each.version, each.body, seq=each.seq)
        if isinstance(event, ApprovalRequested) and (words := open_question_words(event)):
            options.out.note(words)
        elif isinstance(event, ModelCallFailed) and not event.final:
            options.out.note(f"{failure_words(event.kind)}.{retry_words(event)}{advice}")
            advice = ""  # once is enough


async def tell_doubts(options: Options, service: "Service", turn: TurnReport) -> None:
    """Note each doubt for the person too (T2), beside the result, which is the model's."""
    for each in await service.doubts(turn):
        options.out.note(each)


def print_turn_error(options: Options, session: str, error: HoldfastError) -> int:
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
        "superseded": [],
    }
