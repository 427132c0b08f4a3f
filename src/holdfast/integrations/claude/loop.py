"""One run of Claude's program inside of a turn, which goes on where the turn stands."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

import holdfast
from holdfast.integrations.claude.hooks import ADAPTER, ClaudeHooks
from holdfast.integrations.gated_tools import doubts_before, drop_unrun

_BESIDE_THE_HOOK = (
    "allowed_tools",
    "setting_sources",
    "can_use_tool",
    "permission_prompt_tool_name",
)
_OURS = ("resume", "continue_conversation", "session_id", "fork_session")


class ClaudeReply(NamedTuple):
    """How one run ended: Claude's last words, and whether it waits for a person."""

    text: str
    waiting: bool
    approvals: tuple[holdfast.Approval, ...] = ()


class _Place(NamedTuple):
    """Where a turn left Claude: its session, whether it has spoken, and the call it waits at."""

    session: str
    has_spoken: bool = False
    deferred: str | None = None


async def run(
    home: holdfast.Home,
    session: str,
    text: str,
    *,
    source: holdfast.MessageSource | None,
    dedup: str | None = None,
    options: ClaudeAgentOptions | None = None,
    tools: Sequence[holdfast.SchemaTool] = (),
    agent: str | None = None,
) -> ClaudeReply:
    """
    Run Claude for one message. The same again goes on where its turn stands. `tools` says how
    Holdfast treats Claude's tools, by their full names such as `mcp__ops__restart`; any other asks
    first and never runs twice.
    """
    options = options or ClaudeAgentOptions()
    _refuse_unfit(options)
    async with home.turn(session, text, source=source, dedup=dedup, agent=agent) as turn:
        if turn.is_over:
            return ClaudeReply((await turn.report()).reply or "", waiting=False)
        hooks = ClaudeHooks(home, turn, tools=tools, agent=agent)
        return await _Loop(home, turn, hooks, options).run(text)


class _Loop:
    """One run of Claude's program inside of a turn."""

    def __init__(
        self,
        home: holdfast.Home,
        turn: holdfast.ExternalTurn,
        hooks: ClaudeHooks,
        options: ClaudeAgentOptions,
    ) -> None:
        self._home, self._turn, self._hooks, self._options = home, turn, hooks, options
        self._items = home.items(turn.session, adapter=ADAPTER)
        self._place = _Place("")
        hooks.before_first = self._spoken

    async def run(self, text: str) -> ClaudeReply:
        kept = await self._turn.kept(ADAPTER)
        if kept is not None:
            self._place = _Place(**json.loads(kept))
        if self._place.deferred is not None:
            if (await self._turn.look(self._place.deferred)).waiting:
                return ClaudeReply("", waiting=True, approvals=self._turn.approvals)
            # Claude makes the call that it paused at again, and nobody need say anything.
            return await self._ended(None, resume=self._place.session)
        if self._place.has_spoken:
            await drop_unrun(self._turn)
            return await self._ended(await self._going_on(text), resume=self._place.session)
        doubts = await doubts_before(self._home, self._turn.session, self._turn.turn)
        prompt = f"{doubts}\n{text}" if doubts else text
        if conversation := await self._items.list("conversation"):
            self._place = _Place(conversation[-1].blob.decode())
            return await self._ended(prompt, resume=self._place.session)
        self._place = _Place(str(uuid4()))
        return await self._ended(prompt, session_id=self._place.session)

    async def _ended(self, prompt: str | None, **where: str) -> ClaudeReply:
        options = dataclasses.replace(
            self._options,
            hooks=_merged(self._hooks.matchers(), self._options.hooks or {}),
            can_use_tool=self._hooks.refuse,
            setting_sources=[],
            **where,
        )
        result: ResultMessage | None = None
        async with ClaudeSDKClient(options) as client:
            if prompt is not None:
                await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    result = message
        await self._hooks.settle()
        return await self._reply(result)

    async def _spoken(self) -> None:
        """
        Keep the session of Claude before its first call starts. Until then nothing has happened,
        and a new session may begin.
        """
        self._place = self._place._replace(has_spoken=True, deferred=None)
        await self._turn.keep(json.dumps(self._place._asdict()), adapter=ADAPTER)

    async def _reply(self, result: ResultMessage | None) -> ClaudeReply:
        if self._hooks.ungated is not None:
            raise holdfast.Refused(
                f"{self._hooks.ungated} ran without a gate, so Claude was stopped",
                code="no_gate",
                hint="remove settings that allow the tool beside the hook, and check its effect",
            )
        if result is None or result.is_error:
            said = "" if result is None else result.result or "; ".join(result.errors or ())
            raise holdfast.Unusable(
                f"Claude ended without a reply: {said}"[:1000],
                code="framework_failed",
                hint="run the same line again; known outcomes are not repeated",
            )
        await self._remember(result.session_id)
        if self._hooks.deferred is not None:
            self._place = self._place._replace(deferred=self._hooks.deferred)
            await self._turn.keep(json.dumps(self._place._asdict()), adapter=ADAPTER)
            return ClaudeReply("", waiting=True, approvals=self._turn.approvals)
        usage = result.usage or {}
        text = result.result or ""
        await self._turn.said(
            text,
            usage=holdfast.Usage(
                input_tokens=int(usage.get("input_tokens") or 0),
                output_tokens=int(usage.get("output_tokens") or 0),
                cached_tokens=int(usage.get("cache_read_input_tokens") or 0),
            ),
            model=self._options.model,
        )
        await self._turn.finish(text)
        return ClaudeReply(text, waiting=False)

    async def _going_on(self, text: str) -> str:
        """The message again, with the outcomes of calls that Claude's own record may lack."""
        calls = [
            each
            for each in await self._home.calls(self._turn.session)
            if each.turn == self._turn.turn and each.outcome is not None
        ]
        known = "\n".join(
            f"({each.id}: {each.tool} {json.dumps(each.arguments)}: {each.text})" for each in calls
        )
        return f"(The program was stopped while you worked on this. Outcomes:)\n{known}\n{text}"

    async def _remember(self, claude_session: str) -> None:
        known = await self._items.list("conversation")
        if not known or known[-1].blob.decode() != claude_session:
            await self._items.add(claude_session, key="conversation")


def _merged(ours: dict[str, list[Any]], theirs: Any) -> dict[str, list[Any]]:
    return {name: [*ours.get(name, ()), *theirs.get(name, ())] for name in {*ours, *theirs}}


def _refuse_unfit(options: ClaudeAgentOptions) -> None:
    """Options by which a call could pass beside the hook, or which `run` sets itself."""
    beside = [name for name in _BESIDE_THE_HOOK if getattr(options, name)]
    if options.permission_mode not in (None, "default"):
        beside.append("permission_mode")
    beside += [name for name in options.extra_args if "permission" in name or "settings" in name]
    if options.settings:
        beside.append("settings")
    if beside or (ours := [name for name in _OURS if getattr(options, name)]):
        raise holdfast.Unusable(
            f"Claude's options may not have {', '.join(beside or ours)} here",
            code="malformed",
            hint="policy decides which calls run: see [policy] in the settings"
            if beside
            else "leave them out: the journal knows where the conversation stands",
        )
