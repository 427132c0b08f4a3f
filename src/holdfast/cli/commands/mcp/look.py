"""`holdfast mcp list | show | check`: the servers as they are now, compared with their pins."""

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared import completion
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, making_service, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from holdfast.runtime.service import Service
    from holdfast.runtime.tool_servers.reports import ServerReport, ToolReport

TOOLS = Annotated[
    list[str],
    typer.Argument(
        metavar="SERVER[.TOOL]...",
        help="A tool of a server, or all tools of a server.",
        autocompletion=completion.servers,
    ),
]
_REFUSED = 6


def register(app: typer.Typer) -> None:
    @command(app, "list", example="holdfast mcp list")
    def list_(ctx: typer.Context) -> None:
        """
        List every server of holdfast.toml with its tools, and whether each tool equals its pin. A
        tool that has changed is withdrawn.
        """
        options = options_of(ctx)
        run(lambda: _list(options))

    @command(app, "show", example="holdfast mcp show files.read_file")
    def show(ctx: typer.Context, tools: TOOLS) -> None:
        """
        Show everything that a model reads of a tool, with invisible characters made visible, and
        the difference from its pin.
        """
        options = options_of(ctx)
        run(lambda: _show(options, tools))

    @command(app, "check", example="holdfast mcp check")
    def check(ctx: typer.Context) -> None:
        """
        Connect to every server and compare its tools with their pins. Exits 0 if all are pinned and
        equal, else 6.
        """
        options = options_of(ctx)
        run(lambda: _check(options))


@asynccontextmanager
async def asking_service(options: Options) -> "AsyncGenerator[Service | None, None]":
    """Open the service if settings name a server. Create nothing otherwise."""
    from holdfast.settings import SettingsSource

    if not SettingsSource(home_of(options)).now().servers:
        yield None
        return
    async with making_service(options) as service:
        yield service


def no_servers(options: Options) -> Refused:
    return Refused(
        "holdfast.toml names no server",
        code="unknown",
        hint=f'add [mcp.NAME] with command = ["PROGRAM"] to {home_of(options) / "holdfast.toml"}',
    )


async def _list(options: Options) -> int:
    async with asking_service(options) as service:
        found = await service.servers.list() if service is not None else ()
    if options.out.json:
        options.out.object({"servers": found})
    elif not found:
        options.out.text("No MCP servers: add [mcp.NAME] to holdfast.toml.")
    else:
        options.out.text("\n\n".join(_server_text(options, each) for each in found))
    return 0


def _server_text(options: Options, server: "ServerReport") -> str:
    lines = [f"{server.server} ({server.transport}): {server.problem or server.state}"]
    lines += [f"  {each.state:<8}  {each.name}  {each.digest[:12]}" for each in server.tools]
    lines += [f"  refused   {each.name}: {each.reason}" for each in server.refused]
    if any(each.state in ("new", "changed") for each in server.tools):
        lines.append(f"  $ {options.typed(f'mcp pin {server.server}')}")
    return "\n".join(lines)


async def _show(options: Options, tools: "Sequence[str]") -> int:
    async with asking_service(options) as service:
        if service is None:
            raise no_servers(options)
        found = await service.servers.show(tools)
    if options.out.json:
        options.out.object({"tools": found})
    else:
        options.out.text("\n\n".join(tool_text(each) for each in found))
    return 0


def tool_text(tool: "ToolReport") -> str:
    """The whole definition, with its difference to the pin last, where it is read."""
    parts = [f"{tool.name}: {tool.state}", *(f"! {each}" for each in tool.warnings), tool.text]
    if tool.diff:
        parts.append(f"# the difference to the pin\n{tool.diff}")
    elif tool.state == "changed":
        parts.append("# the difference to the pin\nnone: it had changed, and has changed back")
    return "\n\n".join((*parts, f"digest {tool.digest}"))


async def _check(options: Options) -> int:
    async with asking_service(options) as service:
        found = await service.servers.list() if service is not None else ()
    wrong = [
        f"{each.name} is {each.state}"
        for server in found
        for each in server.tools
        if each.state != "pinned"
    ]
    wrong += [f"{each.server}: {each.problem}" for each in found if each.problem]
    wrong += [
        f"{server.server}.{each.name}: {each.reason}" for server in found for each in server.refused
    ]
    value = {"ok": not wrong, "servers": found}
    options.out.result(value, "\n".join(wrong) or "everything that servers offer is pinned")
    return _REFUSED if wrong else 0
