"""
Holdfast under the OpenAI Agents SDK: tools with a gate inside, and `run`, which decides
interruptions from the journal and goes on where the turn stands.

    agent = Agent("ops", tools=gated(home, [restart]))
    done = await run(agent, home, "ops/api", "restart the api", source=alice, dedup=message_id)
    if done.waiting:
        ...  # tomorrow, after an answer: the same line

The gate sits in the tool, so that it holds after handoffs and in agents that are tools.
`state.approve` only wakes the tool: the tool asks the journal. `gated(settings={...})` says how
Holdfast treats a tool. A tool that is an agent should be declared pure: its effects are the gated
calls of the agent, and after a pause it runs again.
"""

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import holdfast
from holdfast.errors import install_hint
from holdfast.integrations.gated_tools import (
    Done,
    Paused,
    current_turn,
    doubts_before,
    driving,
    drop_unrun,
    run_call,
    schema_tool,
    settings_by_name,
    text_of,
)

try:
    from agents import Agent, FunctionTool, RunConfig, Runner, RunState
    from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
    from agents.exceptions import (
        InputGuardrailTripwireTriggered,
        MaxTurnsExceeded,
        ModelBehaviorError,
        OutputGuardrailTripwireTriggered,
        ToolInputGuardrailTripwireTriggered,
        ToolOutputGuardrailTripwireTriggered,
        ToolTimeoutError,
    )
    from agents.tool import (
        default_tool_timeout_error_message,
        maybe_invoke_function_tool_failure_error_function,
    )

    from holdfast.integrations.openai_agents_model import Steps, current_steps, stepping, under
    from holdfast.integrations.openai_agents_session import ADAPTER, HoldfastSession, TurnSession
except ImportError as exc:
    raise holdfast.Unusable(
        f"The OpenAI Agents SDK is not here: {exc}", hint=install_hint("openai-agents")
    ) from exc

__all__ = ["Done", "HoldfastSession", "gated", "run"]
_NOT_AGAIN = (
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)
"""The same answers lead to the same error again, so the turn fails."""


class _NestedPause(Paused):
    """An agent that is a tool has a call that waits."""


def gated(
    home: holdfast.Home,
    tools: Sequence[FunctionTool],
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    agent: str | None = None,
) -> list[FunctionTool]:
    """
    Put a gate into each tool. The agent of the home knows them from here on. `settings` says by
    name how Holdfast treats a tool: `{"status": {"mode": "auto", "contract": "pure"}}`.
    """
    for each in tools:
        if not isinstance(each, FunctionTool):
            raise holdfast.Unusable(
                f"{getattr(each, 'name', each)!r} is not a function tool, so it can't have a gate",
                code="malformed",
                hint="a tool that the provider runs is not under Holdfast; leave it out of gated()",
            )
    metadata = settings_by_name(settings, [each.name for each in tools])
    home.know(*(_known(each, metadata[each.name]) for each in tools), agent=agent)
    return [
        dataclasses.replace(
            each,
            on_invoke_tool=_Gated(each),
            needs_approval=_waits(each.name),
            timeout_seconds=None,  # the gate keeps it, so that the journal says that it timed out
        )
        for each in tools
    ]


def _known(tool: FunctionTool, metadata: Mapping[str, Any]) -> holdfast.SchemaTool:
    return schema_tool(
        tool.name,
        _with_defaults(tool.params_json_schema),
        description=tool.description,
        metadata=metadata,
        must_ask=tool.needs_approval is not False,
    )


def _with_defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A strict schema requires every field. The function itself has the defaults of some."""
    fields = schema.get("properties", {})
    required = [
        each for each in schema.get("required", ()) if "default" not in fields.get(each, {})
    ]
    return {**schema, "required": required}


def _waits(name: str) -> Any:
    async def waits(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        del context
        just_made = current_steps().gates.get(call_id)
        gate = just_made or await _gate(name, arguments, call_id)
        return gate.waiting

    return waits


async def _gate(name: str, arguments: Any, call_id: str) -> holdfast.Gate:
    """The gate of a call. The recorded answer of the model has made it, as a rule."""
    turn = current_turn()
    try:
        return await turn.look(call_id)
    except holdfast.Refused as exc:
        if exc.code != "unknown":
            raise
    return await turn.gate(name, arguments, id=call_id)


class _Gated:
    """The invoker of a tool, behind a gate of the current turn."""

    holdfast = True

    def __init__(self, tool: FunctionTool) -> None:
        self._tool = tool
        # The bare function: the SDK's own invoker returns an error as if it were a result.
        self._invoke = getattr(tool.on_invoke_tool, "_invoke_tool_impl", tool.on_invoke_tool)

    async def __call__(self, context: Any, arguments: str) -> Any:
        turn, steps = current_turn(), current_steps()
        just_made = steps.gates.pop(context.tool_call_id, None)
        ready = just_made if just_made is not None and just_made.may_start else None
        gate = ready or await _gate(self._tool.name, arguments, context.tool_call_id)

        async def own(given: dict[str, Any]) -> Any:
            with stepping(steps.inside(context.tool_call_id, current_turn())):
                value = await self._invoke(context, json.dumps(given))
            _refuse_pause(context)
            return value

        try:
            ended, values = await run_call(
                turn,
                gate,
                own,
                agent=self._tool.name,
                result=_result,
                pauses=(Paused,),
                timeout_seconds=self._tool.timeout_seconds,
            )
        except _NestedPause:
            return None  # the SDK finds the interruptions of the agent by itself
        except TimeoutError as exc:
            return await self._timed_out(context, exc)
        except Exception as exc:  # noqa: BLE001  # any error of a tool has its own wording
            return await self._failed(context, exc)
        if values:
            return values[0]
        if ended.waiting:
            raise Paused(ended.approval.id if ended.approval is not None else None)
        if ended.outcome == "ok" and ended.result is not None:
            return json.loads(ended.result)
        return ended.text

    async def _timed_out(self, context: Any, error: TimeoutError) -> Any:
        """The SDK's own answers to a time-out of a tool."""
        seconds, tool = self._tool.timeout_seconds, self._tool
        if seconds is None:
            return await self._failed(context, error)
        timed_out = ToolTimeoutError(tool_name=tool.name, timeout_seconds=seconds)
        if tool.timeout_behavior == "raise_exception":
            raise timed_out from error
        if tool.timeout_error_function is None:
            return default_tool_timeout_error_message(tool_name=tool.name, timeout_seconds=seconds)
        text = tool.timeout_error_function(context, timed_out)
        return await text if inspect.isawaitable(text) else text

    async def _failed(self, context: Any, error: Exception) -> Any:
        """The tool's own wording of an error for the model, or the error itself."""
        if isinstance(error, Paused | holdfast.HoldfastError):
            raise error
        text = await maybe_invoke_function_tool_failure_error_function(
            function_tool=self._tool, context=context, error=error
        )
        if text is None:
            raise error
        return text


def _refuse_pause(context: Any) -> None:
    call = getattr(context, "tool_call", None)
    if call is None:
        return
    inner = peek_agent_tool_run_result(call, scope_id=get_agent_tool_state_scope(context))
    if inner is not None and inner.interruptions:
        raise _NestedPause(None)


def _result(value: Any) -> holdfast.LoopResult:
    """The value as JSON, for a replay. A value that JSON lacks is replayed as its text."""
    try:
        kept = json.dumps(value, ensure_ascii=False, default=_model_as_json).encode()
    except (TypeError, ValueError, AttributeError):
        return holdfast.LoopResult(text_of(value))
    return holdfast.LoopResult(text_of(value), kept, ADAPTER)


def _model_as_json(value: Any) -> Any:
    return value.model_dump(mode="json")  # a tool's output may be one of the SDK's own types


async def run(
    agent: Agent[Any],
    home: holdfast.Home,
    session: str,
    text: str,
    *,
    source: holdfast.MessageSource | None,
    dedup: str | None = None,
    name: str | None = None,
    run_config: RunConfig | None = None,
    **options: Any,
) -> Done:
    """
    Run an agent for one message. The same again goes on where its turn stands. `name` is the agent
    in Holdfast's settings; `options` go to `Runner.run`, such as `context` and `max_turns`.
    """
    config = run_config or RunConfig(tool_not_found_behavior="return_error_to_model")
    while True:
        async with home.turn(session, text, source=source, dedup=dedup, agent=name) as turn:
            if turn.is_over:
                return Done(None, waiting=False, text=(await turn.report()).reply or "")
            started = await _Started.at(agent, home, turn, text)
            result = await _ran(started, turn, under(config), options)
            if result is None:
                return Done(None, waiting=True, text="", approvals=turn.approvals)
            if not result.interruptions:
                await drop_unrun(turn)
                reply = text_of(result.final_output)
                with driving(turn):  # the items belong to it
                    await started.history.write()
                if not turn.is_over:
                    await turn.finish(reply)
                return Done(result, waiting=False, text=reply)
            await started.keep(turn, result)
            if all(_is_waiting(turn, each) for each in result.interruptions):
                return Done(result, waiting=True, text="", approvals=turn.approvals)
        # Some were answered in the meantime, or need no answer: the turn goes on at once.


class _Started:
    """A run as it begins or goes on: the input, the history, and the answers that it has."""

    def __init__(self, agent: Agent[Any], given: Any, history: TurnSession, steps: Steps) -> None:
        self.agent, self.given, self.history, self.steps = agent, given, history, steps

    @classmethod
    async def at(
        cls, agent: Agent[Any], home: holdfast.Home, turn: holdfast.ExternalTurn, text: str
    ) -> "_Started":
        history = TurnSession(home, turn.session)
        kept = await turn.kept(ADAPTER)
        found: dict[str, Any] = json.loads(kept or b'{"taken": {}, "position": 0}')
        await history.rewind(turn.turn, found["position"])
        note = await doubts_before(home, turn.session, turn.turn)
        steps = Steps(turn, found["taken"], note=note)
        if kept is None:
            await _close_open_calls(home, turn, history)
            return cls(agent, text, history, steps)
        state = await RunState.from_string(agent, found["state"])
        for each in state.get_interruptions():
            _refuse_ungated(each)
            if not _is_waiting(turn, each):
                state.approve(each)  # wakes the tool, which asks the journal
        return cls(agent, state, history, steps)

    async def keep(self, turn: holdfast.ExternalTurn, result: Any) -> None:
        """The caller hands its context in again with each run, so it is not kept."""
        state = result.to_state().to_string(context_serializer=lambda _: {})
        with driving(turn):  # the items belong to it
            await self.history.write()
        position = await self.history.position()
        blob = {"state": state, "taken": self.steps.taken, "position": position}
        await turn.keep(json.dumps(blob), adapter=ADAPTER)


async def _ran(
    started: _Started, turn: holdfast.ExternalTurn, config: RunConfig, options: Mapping[str, Any]
) -> Any | None:
    """The result of the SDK, or None if a call must wait although the SDK went on."""
    try:
        with driving(turn), stepping(started.steps):
            return await Runner.run(
                started.agent,
                started.given,
                session=started.history,
                run_config=config,
                **options,
            )
    except _NOT_AGAIN as exc:
        if not turn.is_over:
            await turn.fail("framework", f"{type(exc).__name__}: {exc}")
        raise
    except Exception as exc:
        if _is_pause(exc):
            return None
        raise


def _is_pause(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Paused):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_waiting(turn: holdfast.ExternalTurn, item: Any) -> bool:
    """
    Whether the call of an interruption has a prompt. Agents inside of two tools may use the same
    id; then neither goes on before both are answered.
    """
    waiting = [each.provider_id or "" for each in turn.approvals]
    return any(each.rpartition("/")[2] == item.call_id for each in waiting)


def _refuse_ungated(item: Any) -> None:
    tools = [each for each in item.agent.tools if getattr(each, "name", None) == item.tool_name]
    if not any(isinstance(getattr(each, "on_invoke_tool", None), _Gated) for each in tools):
        raise holdfast.Unusable(
            f"{item.tool_name} asks for an approval, and has no gate",
            code="malformed",
            hint="hand it to gated(home, [...]); an approval of the SDK is not one of Holdfast",
        )


async def _close_open_calls(
    home: holdfast.Home, turn: holdfast.ExternalTurn, history: HoldfastSession
) -> None:
    """Give calls that an earlier message left open the outcome in the journal."""
    items = await history.get_items(-1)
    ended = {each["call_id"] for each in items if each.get("type") == "function_call_output"}
    made = [each["call_id"] for each in items if each.get("type") == "function_call"]
    if not (still_open := [each for each in made if each not in ended]):
        return
    known = {each.id: each.text for each in await home.calls(turn.session)}
    await history.add_items(
        [
            {
                "type": "function_call_output",
                "call_id": each,
                "output": known.get(each) or "Not run: the turn was replaced.",
            }
            for each in still_open
        ]
    )
