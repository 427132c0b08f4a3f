"""
The decisions of a person about servers: list them, read a definition, pin it, withdraw it.

Each verb asks the server again. A change that it finds is withdrawn at once, also if the verb was
only to look. A pin counts only for the digest that was shown.
"""

from collections.abc import Sequence

from holdfast.errors import Refused
from holdfast.ports.tool_servers import ServerFound, ToolFound, ToolServers
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.tool_servers.reports import (
    ServerReport,
    ToolReport,
    server_report,
    tool_report,
)


async def list_servers(runtime: Runtime, names: Sequence[str] = ()) -> tuple[ServerReport, ...]:
    """Return the servers of the settings, or these, with the state of each tool."""
    reports = []
    for name in names or _servers(runtime).names():
        found = await _found(runtime, name)
        reports.append(server_report(found, await runtime.home.refresh()))
    return tuple(reports)


async def show_tools(runtime: Runtime, names: Sequence[str]) -> tuple[ToolReport, ...]:
    """Return these tools whole. `SERVER` stands for all of its tools."""
    tools = await _chosen(runtime, names)
    state = await runtime.home.refresh()
    return tuple(tool_report(each, state) for each in tools)


async def pin_tools(
    runtime: Runtime, wanted: Sequence[tuple[str, str]], *, by: str
) -> tuple[ToolReport, ...]:
    """
    Pin tools, each by its name and the digest that was shown. If one has changed since, none is
    pinned.
    """
    digests = dict(wanted)
    tools = await _chosen(runtime, list(digests))
    for tool in tools:
        if tool.digest != digests[tool.name]:
            raise Refused(
                f"{tool.name} is not what was shown: its digest is {tool.digest} now",
                code="plan_changed",
                hint=f"read it again: `holdfast mcp show {tool.name}`",
            )
    await runtime.pins.pin([tool.pinned(by=by) for tool in tools])
    state = await runtime.home.refresh()
    return tuple(tool_report(each, state) for each in tools)


async def unpin_tools(runtime: Runtime, names: Sequence[str], *, by: str) -> Sequence[str]:
    """Withdraw tools. `SERVER` stands for all of its pinned tools. No server is asked."""
    pins = await runtime.pins.refresh()
    chosen: list[str] = []
    for name in names:
        found = [pin.name for pin in pins.values() if name in (pin.server, pin.name)]
        if not found:
            raise Refused(
                f"{name} has no pin", code="unknown", hint="`holdfast mcp list` shows them"
            )
        chosen += found
    return await runtime.pins.unpin(list(dict.fromkeys(chosen)), by=by)


async def _chosen(runtime: Runtime, names: Sequence[str]) -> Sequence[ToolFound]:
    chosen: dict[str, ToolFound] = {}
    asked: dict[str, ServerFound] = {}
    for name in names:
        server, _, tool = name.partition(".")
        if server not in asked:
            asked[server] = await _found(runtime, server)
        found = asked[server]
        if found.problem:
            raise Refused(
                f"the server {server} can't be asked: {found.problem}",
                code="unreachable",
                hint="mend it, or take it out of holdfast.toml",
            )
        matching = [each for each in found.tools if not tool or each.name == name]
        if not matching:
            refused = dict(found.refused).get(tool)
            why = f": {refused}" if refused is not None else ""
            raise Refused(
                f"no tool {name}{why}", code="unknown", hint="`holdfast mcp list` shows them"
            )
        chosen.update({each.name: each for each in matching})
    return tuple(chosen.values())


async def _found(runtime: Runtime, server: str) -> ServerFound:
    servers = _servers(runtime)
    if server not in servers.names():
        raise Refused(
            f"no server {server!r}",
            code="unknown",
            hint=f"holdfast.toml names them: add [mcp.{server}]",
        )
    found = await servers.find(server)
    await runtime.pins.compare(found)
    # A crash may have left prompts of tools that were withdrawn before.
    withdrawn = runtime.home.state.withdrawn
    await runtime.pins.void_prompts([name for name in withdrawn if name.startswith(f"{server}.")])
    return found


def _servers(runtime: Runtime) -> ToolServers:
    servers = runtime.world.servers
    if servers is None:
        raise Refused("this home has no servers", code="unknown", hint="add [mcp.NAME]")
    return servers
