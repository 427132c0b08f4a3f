"""`holdfast mcp serve`: an MCP server that shows a home to an assistant. It can approve nothing."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.shared.gateway_client import client_token, gateway_url
from holdfast.cli.shared.options import command, options_of, refuse_blank


def register(app: typer.Typer) -> None:
    @command(app, "serve", example="holdfast mcp serve --token-file ~/.holdfast-assistant")
    def serve(
        ctx: typer.Context,
        url: Annotated[
            str | None,
            typer.Option("--url", metavar="U", help="The gateway. [default: as for `mcp proxy`]"),
        ] = None,
        token_file: Annotated[
            Path | None,
            typer.Option(
                "--token-file",
                metavar="FILE",
                help="A file with a token of the scope read, or read and send. "
                "[default: $HOLDFAST_TOKEN]",
            ),
        ] = None,
    ) -> None:
        """
        Speak MCP on stdin and stdout: sessions, approvals and outcomes, as far as the token sees.

        With the scope send there is a tool to send a message. There is no tool that answers a
        prompt, and a token that may approve is refused: `holdfast tokens add NAME --as YOU --scopes
        read`.
        """
        options = options_of(ctx)
        refuse_blank(url=url)
        token = client_token(token_file)
        from holdfast.cli.commands.mcp.relay import GatewayAddress
        from holdfast.cli.commands.mcp.shown_home import ShownHome
        from holdfast.cli.commands.mcp.stdio_server import StdioServer

        home = ShownHome(GatewayAddress(gateway_url(options, url), token))
        home.check_token()
        StdioServer(home).run(sys.stdin.buffer)
