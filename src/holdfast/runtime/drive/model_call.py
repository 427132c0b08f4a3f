"""
One model call: the request built from the turn's view, bounded silence, and the failures it may end
in.

No lock is held during the call. Partial text goes only to followers; only a whole answer is
returned.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from holdfast import limits
from holdfast.ports.model import Model, ModelFailed, ModelRequest, OnText, ToolSchema
from holdfast.runtime.context import ModelTimes, World
from holdfast.runtime.drive.binding import turn_tools
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.plan import ToolDefinition
from holdfast.session.authority.policy import Policy, offered
from holdfast.session.state import SessionState, Turn
from holdfast.session.view.build import view_of
from holdfast.session.view.messages import ModelAnswer
from holdfast.session.view.surrogates import mended, whole

_log = logging.getLogger("holdfast.models")

RETRY_SECONDS_MAX = 30.0
# For each call: its id, and its own record with the reason if it is one of too many and does not
# run.
_CALL_BYTES = 512
# A record's header, and the turn's fields beside the answer.
_ANSWER_MARGIN_BYTES = 8 * 1024


def request_for(
    world: World, state: SessionState, turn: Turn, shown: Sequence[ToolDefinition]
) -> ModelRequest:
    return ModelRequest(
        instructions=world.agent(turn.agent).instructions,
        messages=view_of(turn),
        tools=tuple([_schema(each) for each in shown]),
        script_lines_used=frozenset(range(state.scripts.get(turn.model, 0))),
    )


def overhead_chars(world: World, turn: Turn, shown: Sequence[ToolDefinition]) -> int:
    """Count the characters of a request besides the view."""
    return len(world.agent(turn.agent).instructions) + sum(
        [len(each.name) + len(each.description) + len(each.parameters) for each in shown]
    )


def shown_tools(world: World, turn: Turn, policy: Policy) -> Sequence[ToolDefinition]:
    """Return the tools that the model is shown."""
    definitions = [tool.definition for tool in turn_tools(world, turn).values()]
    return [
        each
        for each in definitions
        if not isinstance(turn.context, TurnContext) or offered(turn.context, each, policy)
    ]


def _schema(definition: ToolDefinition) -> ToolSchema:
    return ToolSchema(
        definition.name, definition.description, msgspec.Raw(definition.parameters.encode())
    )


async def ask_model(
    model: Model, request: ModelRequest, *, on_text: OnText, times: ModelTimes
) -> ModelAnswer:
    """Make one attempt. Silence before the first token, or between two tokens, is a timeout."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(times.first_token_seconds) as limit:

            def heard(text: str) -> None:
                limit.reschedule(loop.time() + times.gap_seconds)
                on_text(whole(text))

            answer = await model.call(request, on_text=heard)
    except TimeoutError:
        raise ModelFailed(
            "timeout", f"{model.name} said nothing for too long", may_pass=True
        ) from None
    kept = mended(answer)
    if kept is not answer:
        # The record shows the place, by U+FFFD or by the refused call. Only the log can say that
        # the model did not write U+FFFD itself.
        _log.warning(
            "%s wrote halves of characters (surrogates): U+FFFD stands for those that found no "
            "other half, and no call runs with one",
            model.name,
        )
    if (flaw := _why_not_kept(kept)) is not None:
        raise ModelFailed("malformed", f"{model.name}: {flaw}", may_pass=False, line=kept.line)
    return kept


def _why_not_kept(answer: ModelAnswer) -> str | None:
    """
    Return why an answer does not fit into the journal. The check is here, so it counts as the
    model's failure. Found by the append, it would end the drive instead of the call, and the next
    drive would pay for the same call again.
    """
    size = len(msgspec.json.encode(answer))
    if size + len(answer.calls) * _CALL_BYTES + _ANSWER_MARGIN_BYTES <= limits.RECORD_BYTES_MAX:
        return None
    return f"an answer of {size} bytes with {len(answer.calls)} calls is more than can be kept"


def is_final(failure: ModelFailed, turn: Turn) -> bool:
    """
    Whether another try of the same call cannot help, or the tries are used up. A first overflow is
    solved by a summary.
    """
    if failure.kind == "overflow":
        return turn.overflows > 0
    return not failure.may_pass or turn.model_failures + 1 >= limits.MODEL_RETRIES_MAX


def retry_delay(turn: Turn, failure: ModelFailed | None, times: ModelTimes) -> float:
    """
    Return the delay before the next try: the provider's value, else a doubled delay each time.
    """
    if turn.model_failures == 0 or turn.last_failure == "overflow":
        return 0.0
    asked = failure.retry_after_seconds if failure is not None else None
    wanted = asked if asked is not None else times.retry_seconds * 2 ** (turn.model_failures - 1)
    return min(wanted, RETRY_SECONDS_MAX)
