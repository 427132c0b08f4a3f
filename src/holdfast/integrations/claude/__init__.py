"""
Holdfast under the Claude Agent SDK: hooks that gate every call, and `run`, which goes on where the
turn stands.

    done = await run(home, "ops/api", "restart the api", source=alice, dedup=message_id,
                     options=ClaudeAgentOptions(mcp_servers=..., session_store=HoldfastStore(home)))
    if done.waiting:
        ...  # tomorrow, after an answer: the same line

Claude's program runs built-in tools itself, so that the gate is a hook. A call is blocked where the
hook fails, and `run` refuses options that let calls pass beside the hook.
"""

import holdfast
from holdfast.errors import install_hint

try:
    from holdfast.integrations.claude.hooks import ClaudeHooks
    from holdfast.integrations.claude.loop import ClaudeReply, run
    from holdfast.integrations.claude.store import HoldfastStore
except ImportError as exc:
    raise holdfast.Unusable(
        f"the Claude Agent SDK is not here: {exc}", hint=install_hint("claude")
    ) from exc

__all__ = ["ClaudeHooks", "ClaudeReply", "HoldfastStore", "run"]
