"""
`holdfast hook claude-code | codex`: gate a coding agent's own tools, from its hooks.

The agent's event comes on stdin; the decision goes to stdout, as the agent documents it. An error
here blocks the call with exit code 2. A hook that is killed, times out or is missing fails
open in these agents, and nothing here can change that.
"""

import http.client
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.errors import HoldfastError, Unusable

CodingAgent = Literal["claude-code", "codex"]
_EVENT = "PreToolUse"
_STDIN_BYTES_MAX = 2 * 1024 * 1024  # as every body of a request to the gateway
_BLOCKED = 2  # the only exit code by which a hook stops a call
_SILENT_SECONDS = 4000.0  # longer than any `mcp.wait`
_START = "start it with `holdfast serve`, or name another gateway with --url"
_TOKEN = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with a token of the scope send. [default: $HOLDFAST_TOKEN]",
    ),
]
_URL = Annotated[
    str | None,
    typer.Option("--url", metavar="U", help="The gateway. [default: as `holdfast mcp proxy`]"),
]


def register(app: typer.Typer) -> None:
    hooks = group(
        "hook",
        "Hooks of coding agents: gate the tools that an agent has built in.",
        example="holdfast hook claude-code --token-file ~/.holdfast-cc",
    )
    app.add_typer(hooks)

    @command(hooks, "claude-code", example="holdfast hook claude-code --token-file ~/.holdfast-cc")
    def claude_code(ctx: typer.Context, token_file: _TOKEN = None, url: _URL = None) -> None:
        """
        Decide about one tool call of Claude Code: a PreToolUse hook.

        It fails open if this command is killed, times out or is missing: Claude Code then runs the
        tool. The proxy (`holdfast mcp proxy`) is a barrier, a hook is not.
        """
        _hook(options_of(ctx), "claude-code", token_file, url)

    @command(hooks, "codex", example="holdfast hook codex --token-file ~/.holdfast-codex")
    def codex(ctx: typer.Context, token_file: _TOKEN = None, url: _URL = None) -> None:
        """
        Decide about one tool call of Codex: a PreToolUse hook.

        It fails open if this command is killed, times out or is missing: Codex then runs the tool.
        The proxy (`holdfast mcp proxy`) is a barrier, a hook is not.
        """
        _hook(options_of(ctx), "codex", token_file, url)


def _hook(options: Options, agent: CodingAgent, token_file: Path | None, url: str | None) -> None:
    try:
        decision, reason = _decided(options, agent, token_file, url)
        options.out.object(_answer(agent, decision, reason))
    except HoldfastError as exc:
        _block(options, f"Holdfast: {exc.message}" + (f"; {exc.hint}" if exc.hint else ""))
    except OSError as exc:
        _block(options, f"Holdfast does not answer ({exc.strerror or exc}); {_START}")
    except (Exception, KeyboardInterrupt) as exc:  # noqa: BLE001  # other codes let it run
        why = f"Holdfast could not be asked ({type(exc).__name__}), so this call is blocked"
        _block(options, why)
    if options.out.closed:
        _block(options, "Holdfast: nobody reads the decision, so this call is blocked")


def _block(options: Options, why: str) -> None:
    options.out.note(why)
    raise typer.Exit(_BLOCKED)


class _Event(msgspec.Struct):
    """The parts of the agent's event that matter; it has more."""

    tool_name: str
    tool_input: dict[str, Any]
    hook_event_name: str = _EVENT
    cwd: str | None = None


class _Decided(msgspec.Struct):
    decision: Literal["allow", "deny", "wait"]
    reason: str = ""


def _decided(
    options: Options, agent: CodingAgent, token_file: Path | None, url: str | None
) -> tuple[str, str]:
    """Return `allow` or `deny` with the reason. A call that waits is denied until it
    is answered."""
    from holdfast.cli.shared.gateway_client import client_token, gateway_url
    from holdfast.journal.strict import strict_json

    given = sys.stdin.buffer.read(_STDIN_BYTES_MAX + 1)
    if len(given) > _STDIN_BYTES_MAX:
        raise Unusable(
            f"the event has more than {_STDIN_BYTES_MAX:,} bytes",
            hint="let the tool take its input from a file",
        )
    try:
        event = msgspec.convert(strict_json(given, what="the event's contents"), _Event)
    except msgspec.ValidationError as exc:
        raise Unusable(
            f"the event is not one of a {_EVENT} hook: {exc}",
            hint="see docs/guides/hooks.md for the settings of the agent",
        ) from exc
    if event.hook_event_name != _EVENT:
        return "deny", f"Holdfast gates {_EVENT}, not {event.hook_event_name[:64]!a}"
    asked = {"agent": agent, "tool": event.tool_name, "arguments": event.tool_input}
    if event.cwd is not None:
        asked["folder"] = event.cwd
    status, body = _posted(
        gateway_url(options, url), client_token(token_file), msgspec.json.encode(asked)
    )
    if status != http.client.OK:
        answer = msgspec.json.decode(body, type=dict[str, Any])
        return "deny", f"Holdfast refused: {answer.get('detail', status)}"
    found = msgspec.json.decode(body, type=_Decided)
    return ("allow" if found.decision == "allow" else "deny"), f"Holdfast: {found.reason}"


def _posted(address: str, token: str, body: bytes) -> tuple[int, bytes]:
    from holdfast.cli.commands.mcp.relay import GatewayAddress

    connection = GatewayAddress(address, token).connect()
    try:
        connection.timeout = _SILENT_SECONDS
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        connection.request("POST", "/v1/gates", body=body, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(_STDIN_BYTES_MAX)
    finally:
        connection.close()


def _answer(agent: CodingAgent, decision: str, reason: str) -> dict[str, Any]:
    """
    Return the decision as the agent reads it. An empty answer leaves an allowed call to Codex's own
    rules.

    >>> _answer("codex", "allow", "ok")
    {}
    """
    if agent == "codex" and decision == "allow":
        return {}
    output = {
        "hookEventName": _EVENT,
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    }
    return {"hookSpecificOutput": output}
