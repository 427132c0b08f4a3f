"""
One model call: the request built from the turn's view, bounded silence, and the failures it may end
in.

No lock is held during the call. Partial text goes only to followers; only a whole answer is
returned.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast import limits
from holdfast.ports.model import Model, ModelFailed, ModelRequest, OnText, ToolSchema
from holdfast.runtime.context import AgentSpec, ModelTimes, World
from holdfast.runtime.drive.bound_call import turn_tools
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.plan import ToolDefinition
from holdfast.session.authority.policy import Policy, offered
from holdfast.session.state import SessionState, Turn
from holdfast.session.view.build import view_of
from holdfast.session.view.messages import ModelAnswer
from holdfast.session.view.surrogates import mended, whole

_log = logging.getLogger("holdfast.models")

# For each call: its id, and its own record with the reason if it is one of too many and does not
# run.
_CALL_BYTES = 512
# A record's header, and the turn's fields beside the answer.
_ANSWER_MARGIN_BYTES = 8 * 1024
# A silence may be this share shorter or longer than the bound.
_GAP_SLACK = 0.05


class Offer(NamedTuple):
    """The part of a request beside the view, for the turn's model of that name."""

    name: str
    model: Model
    instructions: str
    tools: Sequence[ToolDefinition]

    @property
    def chars(self) -> int:
        return len(self.instructions) + sum(
            [len(each.name) + len(each.description) + len(each.parameters) for each in self.tools]
        )


def offer_of(world: World, turn: Turn, agent: AgentSpec, policy: Policy) -> Offer:
    context = turn.context if isinstance(turn.context, TurnContext) else None
    offers: list[ToolDefinition] = []
    for tool in turn_tools(world, turn, agent).values():
        known = tool.definition
        if known.kind != "withdrawn" and (context is None or offered(context, known, policy)):
            offers.append(known)
    return Offer(turn.model, world.models.resolve(turn.model), agent.instructions, offers)


def request_for(state: SessionState, turn: Turn, offer: Offer) -> ModelRequest:
    schemas = [
        ToolSchema(each.name, each.description, msgspec.Raw(each.parameters.encode()))
        for each in offer.tools
    ]
    return ModelRequest(
        instructions=offer.instructions,
        messages=view_of(turn),
        tools=tuple(schemas),
        script_lines_used=frozenset(range(state.scripts.get(turn.model, 0))),
    )


class WrittenAnswer(NamedTuple):
    """An answer, and its JSON."""

    answer: ModelAnswer
    data: bytes


async def ask_model(
    model: Model, request: ModelRequest, *, on_text: OnText, times: ModelTimes
) -> WrittenAnswer:
    """Make one attempt. Silence before the first token, or between two tokens, is a timeout."""
    loop = asyncio.get_running_loop()
    due = loop.time() + times.first_token_seconds
    try:
        async with asyncio.timeout_at(due) as limit:

            def heard(text: str) -> None:
                nonlocal due
                later = loop.time() + times.gap_seconds
                # Setting a timer costs more than taking a token.
                if abs(later - due) > times.gap_seconds * _GAP_SLACK:
                    due = later
                    limit.reschedule(due)
                on_text(whole(text))

            answer = await model.call(request, on_text=heard)
    except TimeoutError:
        raise ModelFailed(
            "timeout", f"{model.name} said nothing for too long", may_pass=True
        ) from None
    try:
        written = msgspec.json.encode(answer)
    except UnicodeEncodeError:
        # The record shows the place, by U+FFFD or by the refused call. Only the log can say that
        # the model did not write U+FFFD itself.
        _log.warning(
            "%s wrote halves of characters (surrogates): U+FFFD stands for those that found no "
            "other half, and no call runs with one",
            model.name,
        )
        answer = mended(answer)
        written = msgspec.json.encode(answer)
    # Found by the append, an answer that does not fit would end the drive instead of the call, and
    # the next drive would pay for the same call again. Here it counts as the model's failure.
    size, calls = len(written), len(answer.calls)
    if size + calls * _CALL_BYTES + _ANSWER_MARGIN_BYTES > limits.RECORD_BYTES_MAX:
        flaw = f"an answer of {size} bytes with {calls} calls is more than can be kept"
        raise ModelFailed("malformed", f"{model.name}: {flaw}", may_pass=False, line=answer.line)
    return WrittenAnswer(answer, written)
