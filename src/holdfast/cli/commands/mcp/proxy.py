"""`holdfast mcp proxy`: the MCP server that a client starts, in front of every server of a home."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.shared.gateway_client import (
    DEFAULT_URL,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    client_token,
    gateway_url,
)
from holdfast.cli.shared.options import command, options_of, refuse_blank
from holdfast.errors import Unusable

_SERVER = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")


def register(app: typer.Typer) -> None:
    @command(
        app,
        "proxy",
        example="holdfast mcp proxy --token-file ~/.holdfast-claude-code\n"
        "holdfast mcp proxy --server files --token-file ~/.holdfast-cursor",
    )
    def proxy(
        ctx: typer.Context,
        server: Annotated[
            str | None,
            typer.Option(
                "--server",
                metavar="NAME",
                help="Offer this server's tools alone, under their own names.",
            ),
        ] = None,
        url: Annotated[
            str | None,
            typer.Option(
                "--url",
                metavar="U",
                help=f"The gateway. [default: ${URL_VARIABLE}, the home's own, {DEFAULT_URL}]",
            ),
        ] = None,
        token_file: Annotated[
            Path | None,
            typer.Option(
                "--token-file",
                metavar="FILE",
                help=f"A file with a token of the scope send. [default: ${TOKEN_VARIABLE}]",
            ),
        ] = None,
    ) -> None:
        """
        Speak MCP on stdin and stdout, for a client that starts this command as its server.

        It relays to the running gateway (`holdfast serve`), which gates every call. It needs a
        token that may send and cannot approve: `holdfast tokens add NAME --as YOU --scopes send`.
        """
        options = options_of(ctx)
        refuse_blank(server=server, url=url)
        if sys.stdout.isatty():  # bytes of a server would reach the terminal as they are
            raise Unusable(
                "this command speaks MCP to a program, and stdout is a terminal",
                code="terminal",
                hint="name it in your client's configuration, as `holdfast mcp proxy --help` shows",
            )
        if server is not None and not _SERVER.match(server):
            raise Unusable(f"{server!r} is not a server's name", hint="`holdfast mcp list`")
        token = client_token(token_file)
        from holdfast.cli.commands.mcp.relay import GatewayAddress, StdioRelay

        path = "/mcp" if server is None else f"/mcp/{server}"
        StdioRelay(GatewayAddress(gateway_url(options, url), token), path).run(sys.stdin.buffer)
        sys.stdout.flush()
        os._exit(0)  # requests that wait go on in the gateway; their threads here have no reader
