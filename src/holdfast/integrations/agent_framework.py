"""
Holdfast under Microsoft Agent Framework: tools with a gate inside, and middleware that replays what
was said, so that going on is running the same line again.

    agent = Agent(client, tools=gated(home, [restart]))
    run = GatedRun(home, "ops/api", source=alice, dedup=message_id)
    response = await agent.run("restart the api", middleware=run.middleware)
    if run.waiting:
        ...  # tomorrow, after an answer: the same two lines

The gate sits in the tool, so that it holds in every agent that gets the tool. The middleware fails
closed: a call of a tool without a gate ends the run. A tool may say how Holdfast treats it:
`additional_properties={"holdfast": {"mode": "auto"}}`. An agent that runs inside of a tool takes
`middleware=nested()`. Its tool should be declared pure: after a pause it runs again.
"""

import json
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any
from uuid import uuid4

import holdfast
from holdfast.errors import install_hint
from holdfast.integrations.gated_tools import (
    Paused,
    Ran,
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
    from agent_framework import (
        AgentContext,
        AgentMiddleware,
        AgentResponse,
        ChatContext,
        ChatMiddleware,
        ChatResponse,
        ChatResponseUpdate,
        Content,
        FunctionInvocationContext,
        FunctionMiddleware,
        FunctionTool,
        Message,
        MiddlewareFailure,
        ResponseStream,
    )
    from agent_framework.exceptions import UserInputRequiredException

    from holdfast.integrations.agent_framework_history import HoldfastHistory
except ImportError as exc:
    raise holdfast.Unusable(
        f"Agent Framework is not here: {exc}", hint=install_hint("agent-framework")
    ) from exc

ADAPTER = "agent-framework/1"
_Next = Callable[[], Any]


class GatedTool(FunctionTool):
    """A tool whose every call passes a gate of the current turn. See `gated`."""

    def __init__(self, tool: FunctionTool) -> None:
        super().__init__(
            name=tool.name,
            description=tool.description,
            kind=tool.kind,
            additional_properties=tool.additional_properties,
            func=tool.func,
            input_model=tool.input_model or tool.parameters(),
        )
        self._tool = tool

    async def invoke(
        self,
        *,
        arguments: Any = None,
        context: Any = None,
        tool_call_id: str | None = None,
        skip_parsing: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Run the call through its gate. A known result is returned, and nothing runs."""
        try:
            turn = current_turn()
            given = arguments if arguments is not None else kwargs
            gate = await _gate_of(turn, self._tool, given, tool_call_id)
            if gate.waiting:
                raise _pause(gate)
            ran = await self._ran(turn, gate, self._own(context, tool_call_id, skip_parsing))
        except Paused as exc:
            raise _pause(None) from exc
        except holdfast.HoldfastError as exc:
            # Any other exception would become a result for the model, and the loop would go on.
            raise MiddlewareFailure(f"{self.name} did not run: {exc}") from exc
        if ran.values:
            return ran.values[0]
        if ran.gate.waiting:
            raise _pause(ran.gate)
        return _replayed(ran.gate)

    async def _ran(
        self, turn: holdfast.ExternalTurn, gate: holdfast.Gate, own: Callable[..., Any]
    ) -> Ran:
        try:
            return await run_call(
                turn,
                gate,
                own,
                agent=self.name,
                result=_result,
                pauses=(Paused, UserInputRequiredException),
            )
        except TimeoutError:
            # The framework would hide the reason from the model. The journal has it.
            return Ran(await turn.look(gate), ())

    def _own(self, context: Any, call_id: str | None, skip_parsing: bool) -> Callable[..., Any]:  # noqa: FBT001  # the framework's own flag
        async def own(given: dict[str, Any]) -> Any:
            value = await self._tool.invoke(
                arguments=given, context=context, tool_call_id=call_id, skip_parsing=skip_parsing
            )
            if await current_turn().gates():
                # A call of an agent inside waits, and the tool has returned nevertheless.
                raise Paused(None)
            return value

        return own


def gated(
    home: holdfast.Home,
    tools: Sequence[FunctionTool | Callable[..., Any]],
    *,
    agent: str | None = None,
) -> list[FunctionTool]:
    """Put a gate into each tool. The agent of the home knows them from here on."""
    own = [each if isinstance(each, FunctionTool) else _made(each) for each in tools]
    home.know(*(_known(each) for each in own), agent=agent)
    return [GatedTool(each) for each in own]


def _made(function: Callable[..., Any]) -> FunctionTool:
    name = getattr(function, "__name__", "tool")
    return FunctionTool(name=name, description=function.__doc__ or "", func=function)


def _known(tool: FunctionTool) -> holdfast.SchemaTool:
    return schema_tool(
        tool.name,
        tool.parameters(),
        description=tool.description,
        metadata=tool.additional_properties,
        must_ask=tool.approval_mode == "always_require",
    )


async def _gate_of(
    turn: holdfast.ExternalTurn, tool: FunctionTool, arguments: Any, call_id: str | None
) -> holdfast.Gate:
    """The gate that the model's answer made, or one of its own for a call that nobody recorded."""
    if call_id is not None:
        try:
            return await turn.look(call_id)
        except holdfast.Refused as exc:
            if exc.code != "unknown":
                raise
    written = tool._arguments_as_mapping(arguments)  # noqa: SLF001  # as the framework reads them
    return await turn.gate(tool.name, json.dumps(written, default=str), id=call_id)


def _pause(gate: holdfast.Gate | None) -> UserInputRequiredException:
    """The framework's own pause. It ends the run once all calls of the batch have ended."""
    approval = gate.approval.id if gate is not None and gate.approval is not None else None
    text = f"waits for approval {approval}" if approval else "a call inside waits for an approval"
    content = Content.from_text(text)
    content.user_input_request = True
    content.id = approval
    return UserInputRequiredException(contents=[content], message=text)


def _result(value: Any) -> holdfast.LoopResult:
    """The value as JSON, for a replay. A value that JSON lacks is replayed as its text."""
    whole = isinstance(value, list) and all(isinstance(each, Content) for each in value)
    if whole:
        text = "\n".join(each.text or f"({each.type})" for each in value)
        written: dict[str, Any] = {"contents": [each.to_dict() for each in value]}
    else:
        text, written = text_of(value), {"value": value}
    try:
        kept = json.dumps(written, ensure_ascii=False)
    except (TypeError, ValueError):
        return holdfast.LoopResult(text)
    return holdfast.LoopResult(text, kept, ADAPTER)


def _replayed(gate: holdfast.Gate) -> Any:
    if gate.outcome != "ok" or gate.result is None:
        return [Content.from_text(gate.text)]
    kept = json.loads(gate.result)
    if "contents" in kept:
        return [Content.from_dict(each) for each in kept["contents"]]
    return kept["value"]


class _GatedOnly(FunctionMiddleware):
    """Ends the run when any tool without a gate is called."""

    async def process(self, context: FunctionInvocationContext, call_next: _Next) -> None:
        if not isinstance(context.function, GatedTool):
            raise MiddlewareFailure(
                f"{context.function.name} has no gate, and did not run; hand it to "
                "holdfast.integrations.agent_framework.gated"
            )
        await call_next()


class _Replaying(ChatMiddleware):
    """Replays the answers of the model that were recorded, and records new ones."""

    def __init__(self) -> None:
        self.note = ""

    async def process(self, context: ChatContext, call_next: _Next) -> None:
        turn = current_turn()
        if (answer := await recorded_answer(ADAPTER)) is not None:
            response: ChatResponse[Any] = ChatResponse.from_dict(json.loads(answer.blob or b"{}"))
            context.result = _streamed(response) if context.stream else response
            return
        if gates := await turn.gates():
            if any(each.waiting for each in gates):
                raise Paused(None)  # an agent before this one paused; its tool went on regardless
            await drop_unrun(turn)
        if self.note:
            context.messages = [Message("user", [self.note]), *context.messages]
        if context.stream:
            context.stream_result_hooks.append(_recording(turn))
            await call_next()
            return
        await call_next()
        if not isinstance(context.result, ChatResponse):
            raise MiddlewareFailure("the model's answer is missing, so nothing was recorded")
        await _recording(turn)(context.result)


def _recording(turn: holdfast.ExternalTurn) -> Callable[[ChatResponse[Any]], Any]:
    async def record(response: ChatResponse[Any]) -> ChatResponse[Any]:
        calls = [
            each
            for message in response.messages
            for each in message.contents
            if each.type == "function_call" and not each.informational_only and not each.hosted
        ]
        for each in calls:
            # An id that the framework made later would be another one at the next replay.
            each.call_id = each.call_id or f"call-{uuid4().hex}"
        usage = response.usage_details or {}
        await turn.said(
            response.text,
            [
                holdfast.LoopCall(each.call_id, each.name or "", _written(each.arguments))
                for each in calls
            ],
            usage=holdfast.Usage(
                input_tokens=int(usage.get("input_token_count") or 0),
                output_tokens=int(usage.get("output_token_count") or 0),
            ),
            model=response.model,
            blob=json.dumps(response.to_dict(), ensure_ascii=False, default=str),
            adapter=ADAPTER,
        )
        return response

    return record


def _written(arguments: Any) -> Any:
    return arguments if isinstance(arguments, str) and arguments else dict(arguments or {})


def _streamed(response: ChatResponse[Any]) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
    async def updates() -> AsyncIterable[ChatResponseUpdate]:
        for each in response.to_updates():
            yield each

    return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


class GatedRun:
    """
    One message under Holdfast: `agent.run(text, middleware=run.middleware)`. The same again goes on
    where the turn stands. `waiting` and `approvals` say whether it waits for a person.
    """

    def __init__(
        self,
        home: holdfast.Home,
        session: str,
        *,
        source: holdfast.MessageSource | None,
        dedup: str | None = None,
        agent: str | None = None,
    ) -> None:
        self._home, self._session = home, session
        self._source, self._dedup, self._agent = source, dedup, agent
        self._replaying = _Replaying()
        self.waiting = False
        self.approvals: tuple[holdfast.Approval, ...] = ()

    @property
    def middleware(self) -> list[Any]:
        """All parts together; one alone would not hold."""
        return [_Turn(self), _GatedOnly(), self._replaying]

    async def drive(self, context: AgentContext, call_next: _Next) -> None:
        """Run the agent inside of the message's turn. The middleware calls this."""
        if context.stream:
            raise holdfast.Unusable(
                "a streamed run leaves its turn before it ends",
                code="malformed",
                hint="use agent.run(...) without stream=True; an agent inside of a tool may stream",
            )
        text = "\n".join(each.text for each in context.messages)
        self.waiting, self.approvals = False, ()
        async with self._home.turn(
            self._session, text, source=self._source, dedup=self._dedup, agent=self._agent
        ) as turn:
            if turn.is_over:
                reply = (await turn.report()).reply or ""
                context.result = AgentResponse(messages=[Message("assistant", [reply])])
                return
            self._replaying.note = await doubts_before(self._home, self._session, turn.turn)
            with driving(turn):
                await call_next()
            self.approvals = turn.approvals
            self.waiting = not turn.is_over and bool(await turn.gates())
            if not self.waiting and not turn.is_over:
                await turn.finish(context.result.text if context.result is not None else "")


class _Nested(AgentMiddleware):
    """Leaves the tool that runs the agent when a call of the agent waits."""

    async def process(self, context: AgentContext, call_next: _Next) -> None:
        await call_next()
        if not context.stream and any(each.waiting for each in await current_turn().gates()):
            raise Paused(None)


class _Turn(AgentMiddleware):
    def __init__(self, run: GatedRun) -> None:
        self._run = run

    async def process(self, context: AgentContext, call_next: _Next) -> None:
        await self._run.drive(context, call_next)


def nested() -> list[Any]:
    """
    The middleware of an agent that a gated tool runs. It has the authority of the turn. Agents of
    one tool run one after another.
    """
    return [_Nested(), _GatedOnly(), _Replaying()]


__all__ = ["GatedRun", "GatedTool", "HoldfastHistory", "gated", "nested"]
