"""
The gate of the Claude Agent SDK: hooks that run before and after each tool call, and block the call
when they fail.

`defer` pauses Claude at one call, and only where it is alone. A call that must wait beside others
is refused with the request to make it again by itself.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import holdfast
from holdfast.integrations.gated_tools import text_of

ADAPTER = "claude/1"
HOOK_SECONDS = 60.0  # a hook waits for the disk and for the session's lock, never for a person
_IN_DOUBT = "In doubt: Claude reported no result. It may or may not have happened; check first."
_ALONE = (
    "Not run: {tool} needs a person's approval and was not called alone. Call it again by itself,"
    " in a message with no other call."
)
_LATER = (
    "Not run: {waiting} waits for a person's approval. Make this call again when it is answered."
)


class ClaudeHooks:
    """
    The hooks of one turn. `deferred` is the call at which Claude paused. `ungated` is a tool that
    ran without a gate, which ends the run.
    """

    def __init__(
        self,
        home: holdfast.Home,
        turn: holdfast.ExternalTurn,
        *,
        tools: Sequence[holdfast.SchemaTool] = (),
        agent: str | None = None,
    ) -> None:
        self._home, self._turn, self._agent = home, turn, agent
        self._known = {each.definition.name for each in tools}
        self._running: dict[str, holdfast.Gate] = {}
        self._earlier: dict[str | None, str] | None = (
            None  # calls of earlier turns, with their ends
        )
        self.deferred: str | None = None
        self.ungated: str | None = None
        self.before_first: Callable[[], Awaitable[None]] | None = None
        home.know(*tools, agent=agent)

    def matchers(self) -> dict[str, list[Any]]:
        """The value for `ClaudeAgentOptions(hooks=...)`. A hook that fails blocks the call."""
        from claude_agent_sdk import HookMatcher

        return {
            event: [HookMatcher(hooks=[hook], timeout=HOOK_SECONDS, on_failure="block")]
            for event, hook in (
                ("PreToolUse", self.before),
                ("PostToolUse", self.after),
                ("PostToolUseFailure", self.failed),
            )
        }

    async def before(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Allow a call once its start is durable; pause, or say why not."""
        del tool_use_id, context
        tool, call_id = given["tool_name"], given["tool_use_id"]
        if self.deferred not in (None, call_id):
            return _decision("deny", _LATER.format(waiting=self.deferred))
        if (known := await self._of_earlier_turns(call_id)) is not None:
            # Claude's session paused at it in a turn that is over.
            return _decision("deny", f"Not run again: {known}")
        self._know(tool)
        if self.before_first is not None:
            first, self.before_first = self.before_first, None
            await first()
        gate = await self._turn.gate(tool, given["tool_input"], id=call_id)
        if gate.waiting:
            return await self._wait(gate, given)
        if gate.may_start:
            gate = await self._turn.start(gate)
        if gate.may_run:
            self._running[call_id] = gate
            return _decision("allow", "", updatedInput=gate.arguments)
        ended = f"it ended as {gate.outcome}: {gate.text}" if gate.closed else "it has started"
        return _decision("deny", f"Not run again: {ended}" if gate.outcome == "ok" else gate.text)

    async def _of_earlier_turns(self, call_id: str) -> str | None:
        if self._earlier is None:
            calls = await self._home.calls(self._turn.session)
            self._earlier = {
                each.id: each.text or "its turn is over"
                for each in calls
                if each.turn != self._turn.turn
            }
        return self._earlier.get(call_id)

    async def _wait(self, gate: holdfast.Gate, given: Any) -> dict[str, Any]:
        if self._running or given.get("agent_id"):
            text = _ALONE.format(tool=gate.tool)
            await self._turn.drop(gate, text)
            return _decision("deny", text)
        self.deferred = given["tool_use_id"]
        return _decision("defer", "waits for an approver")

    async def after(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Record the result of a call that this turn started. Any other ends the run."""
        del tool_use_id, context
        gate = self._running.pop(given["tool_use_id"], None)
        if gate is None:
            self.ungated = given["tool_name"]
            text = f"{self.ungated} ran without a gate"
            return {"continue_": False, "stopReason": text, "decision": "block", "reason": text}
        response = given["tool_response"]
        await self._turn.record(
            gate, "ok", _text(response), blob=json.dumps(response), adapter=ADAPTER
        )
        return {}

    async def failed(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Record a failure. A call that was interrupted is in doubt."""
        del tool_use_id, context
        gate = self._running.pop(given["tool_use_id"], None)
        if gate is None:
            return {}
        error = str(given["error"])
        if given.get("is_interrupt"):
            await self._turn.record(gate, "in_doubt", _IN_DOUBT)
        elif "timed out" in error:  # Claude stopped waiting, and says so in words alone
            await self._turn.record(gate, "timed_out", error)
        else:
            await self._turn.record(gate, "error", error)
        return {}

    async def refuse(self, tool: str, given: Any, context: Any) -> Any:
        """
        The answer to Claude's own question for a permission, which comes only where the decision of
        `before` did not count. Nothing runs.
        """
        from claude_agent_sdk import PermissionResultDeny

        del given
        call_id = getattr(context, "tool_use_id", None)
        if call_id is not None and call_id == self.deferred:
            self.deferred = None
            await self._turn.drop(await self._turn.look(call_id), _ALONE.format(tool=tool))
        return PermissionResultDeny(message=_ALONE.format(tool=tool))

    async def settle(self) -> None:
        """Record calls without a reported result as in doubt, once Claude has ended."""
        while self._running:
            _, gate = self._running.popitem()
            await self._turn.record(gate, "in_doubt", _IN_DOUBT)

    def _know(self, tool: str) -> None:
        """A tool of which only the name is known takes any arguments, and asks first."""
        if tool not in self._known:
            self._known.add(tool)
            self._home.know(holdfast.SchemaTool(tool, {"type": "object"}), agent=self._agent)


def _decision(decision: str, reason: str, **more: Any) -> dict[str, Any]:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": reason,
            **more,
        }
    }


def _text(response: Any) -> str:
    if isinstance(response, list) and all(isinstance(each, dict) for each in response):
        return "\n".join(str(each.get("text", f"({each.get('type')})")) for each in response)
    return text_of(response)
