"""
Tasks of a server (the extension `io.modelcontextprotocol/tasks`): a call that goes on after its
reply, known by an id alone.

Asking for a task starts nothing, so that a lost reply is harmless. Only the server that made a task
is asked for it. An end that the server did not name leaves the call in doubt.
"""

from typing import Any

import msgspec
from blake3 import blake3

from holdfast.adapters.mcp.messages import ServerReply
from holdfast.adapters.mcp.replies.outcomes import returned_from
from holdfast.limits import MCP_TASK_ID_CHARS_MAX
from holdfast.ports.jobs import JobSeen
from holdfast.ports.tools import ServerTask, ToolReturned
from holdfast.secrecy import Secret, secrecy_of
from holdfast.session.home.events import ToolPinned

_POLL_SECONDS = (0.2, 5.0, 60.0)  # at least, if the server does not say, and at most
_TASK = "task"


def identity_digest(identity: str) -> str:
    return blake3(identity.encode()).hexdigest()


def task_from(
    reply: ServerReply, pin: ToolPinned, secrets: tuple[Secret, ...]
) -> ToolReturned | None:
    """Return the task that a server made of a call, or None if the reply is not a task."""
    result = reply.result or {}
    if result.get("resultType") != _TASK:
        return None
    name = result.get("taskId")
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= MCP_TASK_ID_CHARS_MAX
        or secrecy_of(secrets).holds(name)
    ):
        return unfollowed(pin.name)
    task = ServerTask(
        server=pin.server,
        tool=pin.name,
        task=name,
        identity=identity_digest(pin.identity),
        poll_seconds=_poll_seconds(result.get("pollIntervalMs")),
    )
    return msgspec.structs.replace(unfollowed(pin.name), task=task)


def _poll_seconds(said: object) -> float:
    least, usual, most = _POLL_SECONDS
    if isinstance(said, bool) or not isinstance(said, int | float):
        return usual
    return min(max(said / 1000, least), most)


def unfollowed(tool: str) -> ToolReturned:
    """Return the outcome of a task that nobody can ask for."""
    return ToolReturned(
        outcome="in_doubt",
        text=f"In doubt: the server of {tool} goes on with it as a task that is not followed here. "
        "Check before trying again.",
    )


def seen_from(
    reply: ServerReply, *, output_schema: dict[str, Any] | None, secrets: tuple[Secret, ...]
) -> JobSeen:
    """Return how a task stands, from the server's reply to `tasks/get`."""
    if reply.result is None:
        code = (reply.error or {}).get("code")
        said = f" (error {code})" if isinstance(code, int) else ""
        return _gone(f"its server no longer knows the task{said}")
    result = reply.result
    match result.get("status"):
        case "working":
            return JobSeen(state="running")
        case "completed" if isinstance(result.get("result"), dict):
            inner = ServerReply(reply.id, result["result"], None)
        case "failed" if isinstance(result.get("error"), dict):
            inner = ServerReply(reply.id, None, result["error"])
        case "cancelled":
            return _gone("its server says that the task was cancelled")
        case "input_required":
            return _gone("the task asks for input, which a job cannot give; it was asked to stop")
        case _:
            return _gone("its server said something about the task that cannot be understood")
    returned = returned_from(inner, output_schema=output_schema, secrets=secrets)
    return JobSeen(state="ended", returned=returned)


def asks_for_input(reply: ServerReply) -> bool:
    return reply.result is not None and reply.result.get("status") == "input_required"


def _gone(why: str) -> JobSeen:
    return JobSeen(state="gone", why=why)
