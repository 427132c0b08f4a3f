"""Run an ADK runner for one message, inside of a turn."""

from typing import Any

from google.adk.agents import RunConfig
from google.adk.events import Event
from google.adk.runners import Runner
from google.genai import types

import holdfast
from holdfast.integrations.adk.history import MARK, prepare
from holdfast.integrations.adk.plugin import HoldfastPlugin
from holdfast.integrations.adk.steps import AgentSteps, stepping
from holdfast.integrations.gated_tools import Done, doubts_before, driving, drop_unrun

EVERYBODY = "everybody"  # a session of Holdfast is one conversation of all its people


async def run(
    runner: Runner,
    home: holdfast.Home,
    session: str,
    text: str,
    *,
    source: holdfast.MessageSource | None,
    dedup: str | None = None,
    name: str | None = None,
    user_id: str = EVERYBODY,
    run_config: RunConfig | None = None,
) -> Done:
    """
    Run the runner's agent for one message. The same again goes on where its turn stands. `name` is
    the agent in Holdfast's settings; `user_id` is ADK's, who is not asked for consent.
    """
    if runner.plugin_manager.get_plugin("holdfast") is None:
        runner.plugin_manager.register_plugin(HoldfastPlugin())
    async with home.turn(session, text, source=source, dedup=dedup, agent=name) as turn:
        if turn.is_over:
            return Done([], waiting=False, text=(await turn.report()).reply or "")
        await _prepared(runner, home, turn, user_id)
        config = run_config or RunConfig()
        marked = {**(config.custom_metadata or {}), MARK: turn.turn}
        steps = AgentSteps(turn, note=await doubts_before(home, session, turn.turn))
        message = types.Content(role="user", parts=[types.Part(text=text)])
        with driving(turn), stepping(steps):
            events = [
                event
                async for event in runner.run_async(
                    user_id=user_id,
                    session_id=session,
                    new_message=message,
                    run_config=config.model_copy(update={"custom_metadata": marked}),
                )
            ]
        if turn.approvals:
            return Done(events, waiting=True, text="", approvals=turn.approvals)
        reply = _reply(events)
        if not turn.is_over:
            await drop_unrun(turn)
            await turn.finish(reply)
        return Done(events, waiting=False, text=reply)


async def _prepared(
    runner: Runner, home: holdfast.Home, turn: holdfast.ExternalTurn, user_id: str
) -> None:
    service, names = runner.session_service, {"app_name": runner.app_name, "user_id": user_id}
    found = await service.get_session(**names, session_id=turn.session)
    if found is None:
        await service.create_session(**names, session_id=turn.session)
        return
    await prepare(service, found, home, turn)


def _reply(events: list[Event]) -> str:
    """The text of the last final answer."""
    for event in reversed(events):
        parts: list[Any] = (event.content.parts or []) if event.content is not None else []
        found = "".join(part.text or "" for part in parts if not part.thought)
        if found and event.is_final_response() and not event.partial:
            return found
    return ""
