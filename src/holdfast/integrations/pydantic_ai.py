"""
Holdfast under Pydantic AI: a capability that gates every call and replays what was said, so that
going on is running the same line again.

    under = Under(home, "ops/api", source=alice, dedup=message_id)
    result = await agent.run("restart the api", capabilities=[under])
    if under.waiting:
        ...  # tomorrow, after an answer: the same two lines

A tool's metadata may say how Holdfast treats it: `metadata={"holdfast": {"mode": "auto"}}`. An
agent that runs inside of a tool takes `Nested()` as its capability. Its tool should be declared
pure: its effects are the gated calls of the agent, and after a pause it runs again.
"""

import copy
import json
from typing import Any

import holdfast
from holdfast.errors import install_hint
from holdfast.integrations.gated_tools import (
    Paused,
    current_turn,
    doubts_before,
    driving,
    drop_unrun,
    recorded_answer,
    run_call,
    schema_tool,
    text_of,
)

try:
    from pydantic import TypeAdapter
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import (
        ApprovalRequired,
        CallDeferred,
        ModelRetry,
        ToolFailed,
        ToolRetryError,
        UserError,
    )
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import DeferredToolRequests
    from pydantic_ai.toolsets import AbstractToolset, WrapperToolset

    from holdfast.integrations.pydantic_ai_conversations import HoldfastConversations
except ImportError as exc:
    raise holdfast.Unusable(
        f"Pydantic AI is not here: {exc}", hint=install_hint("pydantic-ai")
    ) from exc

__all__ = ["Gated", "HoldfastConversations", "Nested", "Under", "gated", "known_tool"]
ADAPTER = "pydantic-ai/1"
_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


class _Replaying(AbstractCapability[Any]):
    """The steps of one agent run inside of a turn."""

    def __init__(self) -> None:
        self.turn: holdfast.ExternalTurn | None = None
        self.waiting = False
        self._note = ""

    def _begin(self, turn: holdfast.ExternalTurn) -> None:
        self.turn, self.waiting = turn, False

    def _of_turn(self) -> holdfast.ExternalTurn:
        if self.turn is None:
            raise holdfast.Unusable(
                "a call was made outside of the agent's run, and did not run",
                code="no_turn",
                hint="hand the capability to agent.run(...)",
            )
        return self.turn

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """Replay an answer that was recorded; else ask the model, and record its answer."""
        del ctx
        turn = self._of_turn()
        self._know(request_context)
        if (answer := await recorded_answer(ADAPTER)) is not None:
            return _RESPONSE.validate_json(answer.blob or b"{}")
        await drop_unrun(turn)
        asked = request_context
        if self._note:
            note = ModelRequest(parts=[UserPromptPart(self._note)])
            asked = copy.copy(request_context)
            asked.messages = [note, *request_context.messages]
        response = await handler(asked)
        gated = {each.name for each in request_context.model_request_parameters.function_tools}
        calls = [
            holdfast.LoopCall(part.tool_call_id, part.tool_name, part.args_as_json_str())
            for part in response.tool_calls
            if part.tool_name in gated
        ]
        await turn.said(
            "".join(part.content for part in response.parts if isinstance(part, TextPart)),
            calls,
            usage=holdfast.Usage(
                input_tokens=response.usage.input_tokens,
                output_tokens=response.usage.output_tokens,
                cached_tokens=response.usage.cache_read_tokens,
            ),
            model=response.model_name,
            blob=_RESPONSE.dump_json(response),
            adapter=ADAPTER,
        )
        return response

    def _know(self, request_context: Any) -> None:
        raise NotImplementedError

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Run a call through its gate. A known result is returned, and nothing runs."""
        turn = self._of_turn()
        gate = await turn.look(call.tool_call_id)

        async def run(given: dict[str, Any]) -> Any:
            # The arguments that were shown, read by the framework's own validator.
            tool = (ctx.tool_manager.tools or {}).get(call.tool_name) if ctx.tool_manager else None
            return await handler(
                args if tool is None else tool.args_validator.validate_python(given)
            )

        try:
            return await _passed(turn, gate, run, agent=tool_def.name)
        except Paused as exc:
            self.waiting = True
            raise ApprovalRequired(metadata={"approval": exc.approval}) from exc


class Under(_Replaying):
    """
    One message under Holdfast. Hand it to `agent.run(text, capabilities=[under])`; the same again
    goes on where the turn stands. `waiting` and `approvals` say whether it waits for a person.
    `conversations` saves the messages of the turn before it ends.
    """

    def __init__(
        self,
        home: holdfast.Home,
        session: str,
        *,
        source: holdfast.MessageSource | None,
        dedup: str | None = None,
        agent: str | None = None,
        conversations: HoldfastConversations | None = None,
    ) -> None:
        super().__init__()
        self._home, self._session = home, session
        self._source, self._dedup, self._agent = source, dedup, agent
        self._conversations = conversations
        self._tools: list[Any] = []  # as the home knows them
        self.approvals: tuple[holdfast.Approval, ...] = ()

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        text = ctx.prompt if isinstance(ctx.prompt, str) else text_of(ctx.prompt)
        async with self._home.turn(
            self._session, text, source=self._source, dedup=self._dedup, agent=self._agent
        ) as turn:
            if turn.is_over:
                return AgentRunResult(output=(await turn.report()).reply or "")
            self._begin(turn)
            self._note = await doubts_before(self._home, self._session, turn.turn)
            with driving(turn):
                result = await self._run(handler)
            self.approvals = turn.approvals
            if not self.waiting and not turn.is_over:
                if self._conversations is not None:
                    await self._conversations.save_turn(result, turn)
                await turn.finish(text_of(result.output))
            return result

    async def _run(self, handler: Any) -> Any:
        try:
            result = await handler()
        except UserError:
            if not self.waiting:
                raise
            # The agent's output type has no DeferredToolRequests, which only says that it waits.
            return AgentRunResult(output=DeferredToolRequests())
        self.waiting = isinstance(result.output, DeferredToolRequests)
        return result

    def _know(self, request_context: Any) -> None:
        tools = request_context.model_request_parameters.function_tools
        if tools != self._tools:
            self._home.know(*(known_tool(each) for each in tools), agent=self._agent)
            self._tools = list(tools)


class Nested(_Replaying):
    """The capability of an agent that a gated tool runs. It has the authority of the turn."""

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        del ctx
        self._begin(current_turn())
        return await handler()

    async def handle_deferred_tool_calls(self, ctx: Any, *, requests: Any) -> Any:
        """Leave the run, and with it the tool that runs this agent. Its siblings have ended."""
        del ctx, requests
        if self.waiting:
            raise Paused(None)
        return None

    def _know(self, request_context: Any) -> None:
        """A nested agent has no tools but those of the turn's own agent."""


def known_tool(tool_def: Any) -> holdfast.SchemaTool:
    """A tool definition of Pydantic AI as Holdfast knows it."""
    return schema_tool(
        tool_def.name,
        tool_def.parameters_json_schema,
        description=tool_def.description,
        metadata=tool_def.metadata,
        must_ask=tool_def.kind == "unapproved",
    )


class Gated(WrapperToolset[Any]):
    """A toolset whose every call passes a gate of the current turn. See `gated`."""

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        turn = current_turn()
        arguments = _ANY.dump_python(tool_args, mode="json")
        gate = await turn.gate(name, arguments, id=ctx.tool_call_id)

        async def run(given: dict[str, Any]) -> Any:
            passed = tool.args_validator.validate_python(given)
            return await self.wrapped.call_tool(name, passed, ctx, tool)

        return await _passed(turn, gate, run, agent=name)


def gated(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    """
    Put the gate into a toolset, for agents that do not take the capability. A call that must wait
    leaves the run with `Paused`.
    """
    return Gated(toolset)


async def _passed(turn: holdfast.ExternalTurn, gate: holdfast.Gate, run: Any, *, agent: str) -> Any:
    """Run the call if its gate lets it, and return its value. Raise for every other outcome."""
    if gate.waiting:
        raise Paused(gate.approval.id if gate.approval is not None else None)
    if not gate.closed:
        try:
            ran = await run_call(
                turn,
                gate,
                _timed(run),
                agent=agent,
                result=_result,
                pauses=(Paused, ApprovalRequired, CallDeferred),
            )
        except TimeoutError as exc:
            if isinstance(exc.__cause__, ModelRetry | ToolRetryError):
                raise exc.__cause__ from None
            raise
        if ran.values:
            return ran.values[0]
        gate = ran.gate
        if gate.waiting:
            raise Paused(gate.approval.id if gate.approval is not None else None)
    if gate.outcome == "ok":
        return _ANY.validate_json(gate.result) if gate.result is not None else gate.text
    raise ToolFailed(gate.text)


def _timed(run: Any) -> Any:
    """The framework reports its own time-out to its model. The journal records it as one."""

    async def timed(given: dict[str, Any]) -> Any:
        try:
            return await run(given)
        except (ModelRetry, ToolRetryError) as exc:
            reason = exc.__cause__ if isinstance(exc.__cause__, ModelRetry) else exc
            if isinstance(reason.__context__, TimeoutError):
                raise TimeoutError(str(reason)) from exc
            raise

    return timed


def _result(value: Any) -> holdfast.LoopResult:
    """The value as JSON, for a replay. A value that JSON lacks is replayed as its text."""
    try:
        kept = _ANY.dump_json(value)
    except ValueError:
        kept = json.dumps(text_of(value)).encode()
    return holdfast.LoopResult(text_of(value), kept, ADAPTER)
