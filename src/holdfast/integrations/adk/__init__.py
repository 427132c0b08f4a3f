"""
Holdfast under Google's Agent Development Kit: tools with a gate inside, a plugin that records and
replays the model's answers, and `run`, which goes on where the turn stands.

    runner = Runner(app_name="ops", agent=root, session_service=HoldfastSessionService(home))
    done = await run(runner, home, "ops/api", "restart the api", source=alice, dedup=message_id)
    if done.waiting:
        ...  # tomorrow, after an answer: the same line

The gate sits in the tool, since a callback can be skipped. A confirmation of ADK is never consent.
"""

import holdfast
from holdfast.errors import install_hint
from holdfast.integrations.gated_tools import Done

try:
    from holdfast.integrations.adk.plugin import HoldfastPlugin
    from holdfast.integrations.adk.runs import run
    from holdfast.integrations.adk.sessions import HoldfastSessionService
    from holdfast.integrations.adk.tools import gated
except ImportError as exc:
    raise holdfast.Unusable(f"ADK is not here: {exc}", hint=install_hint("adk")) from exc

__all__ = ["Done", "HoldfastPlugin", "HoldfastSessionService", "gated", "run"]
