"""
`holdfast mcp`: servers of tools. A person reads a definition whole before a model may use it.
"""

import typer

from holdfast.cli.commands.mcp import login, look, pin, proxy, serve
from holdfast.cli.shared.options import group


def register(app: typer.Typer) -> None:
    servers = group(
        "mcp",
        "MCP servers: their tools, and which of them models may use.",
        example="holdfast mcp list\nholdfast mcp show files\nholdfast mcp pin files.read_file",
    )
    app.add_typer(servers)
    look.register(servers)
    pin.register(servers)
    login.register(servers)
    proxy.register(servers)
    serve.register(servers)
