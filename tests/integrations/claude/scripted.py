"""The line of the contract, run by Claude's own program with a scripted Messages API on loopback."""

import os
import shutil
from pathlib import Path
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool, create_sdk_mcp_server

import holdfast
from holdfast.integrations.claude import HoldfastStore, run
from holdfast.testing.under import Effects, RunEnd
from holdfast.testing.under.tools import MODES
from tests.integrations.claude.messages_api import MessagesAPI

_TEXT = {"type": "string"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "restart": {
        "type": "object",
        "properties": {"service": _TEXT, "region": {**_TEXT, "default": "eu-1"}},
        "required": ["service"],
    },
    "note": {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]},
    "stall": {"type": "object", "properties": {"service": _TEXT}, "required": ["service"]},
    "lag": {"type": "object", "properties": {"service": _TEXT}, "required": ["service"]},
}


def environment(folder: Path, api: MessagesAPI) -> dict[str, str]:
    """Nothing of the person who runs the tests, and no address but loopback."""
    for name in [each for each in os.environ if each.startswith(("ANTHROPIC", "CLAUDE"))]:
        del os.environ[name]
    return {
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "sk-ant-test",
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }


def program(folder: Path) -> Path:
    """Claude's own program, which ends with the process that is killed, as all pipes of it do."""
    own = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    if shutil.which("setpriv") is None:
        return own
    wrapped = folder / "claude.sh"
    wrapped.write_text(f'#!/bin/sh\nexec setpriv --pdeathsig KILL "{own}" "$@"\n')
    wrapped.chmod(0o700)
    return wrapped


def tool_of(name: str, function: Any) -> SdkMcpTool[Any]:
    async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await function(**arguments)}]}

    return SdkMcpTool(
        name=name, description=function.__doc__, input_schema=SCHEMAS[name], handler=handler
    )


def _time_out(text: str) -> dict[str, str]:
    """Claude's own time-out of a tool, which is meant for one story alone."""
    return {"MCP_TOOL_TIMEOUT": "1000"} if text == "wait, but not for long" else {}


async def line(
    home: holdfast.Home,
    session: str,
    text: str,
    *,
    source: holdfast.MessageSource,
    dedup: str,
    effects: Effects,
) -> RunEnd:
    api = MessagesAPI()
    own = [tool_of(name, each) for name, each in effects.tools().items() if name in SCHEMAS]
    options = ClaudeAgentOptions(
        model="claude-sonnet-4-5",
        cwd=effects.folder,
        cli_path=program(effects.folder),
        mcp_servers={"ops": create_sdk_mcp_server("ops", tools=own)},
        session_store=HoldfastStore(home),
        env={**environment(effects.folder, api), **_time_out(text)},
    )
    known = [
        holdfast.SchemaTool(f"mcp__ops__{name}", schema, **MODES[name])  # type: ignore[arg-type]  # words
        for name, schema in SCHEMAS.items()
    ]
    try:
        done = await run(
            home, session, text, source=source, dedup=dedup, options=options, tools=known
        )
    finally:
        api.shutdown()
        api.server_close()
    return RunEnd(waiting=done.waiting, text=done.text, model_calls=api.asked)
