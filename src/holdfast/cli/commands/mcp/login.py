"""`holdfast mcp login | logout`: a person's login at a server with an address."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared import completion
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, run
from holdfast.errors import Refused, Unusable

if TYPE_CHECKING:
    from holdfast.adapters.mcp.oauth.login import OpenLogin
    from holdfast.adapters.mcp.oauth.saved_login import LoginFile, SavedLogin
    from holdfast.ports.tool_servers import ToolServer

_WAIT_SECONDS = 600.0
SERVER = Annotated[
    str,
    typer.Argument(
        metavar="SERVER",
        help="A server of holdfast.toml with url.",
        autocompletion=completion.servers,
    ),
]


def register(app: typer.Typer) -> None:
    @command(app, "login", example="holdfast mcp login crm\nholdfast mcp login crm --paste")
    def login(
        ctx: typer.Context,
        server: SERVER,
        port: Annotated[
            int,
            typer.Option(
                "--port",
                metavar="N",
                min=0,
                max=65535,
                help="The port of this machine that the browser comes back to; 0 for any.",
            ),
        ] = 0,
        paste: Annotated[
            bool,
            typer.Option(
                "--paste",
                help="Read the address that the browser ends at from stdin, for a browser on "
                "another machine.",
            ),
        ] = False,
    ) -> None:
        """
        Log in at a server that wants it (OAuth). The command shows an address to open in a browser.

        The tokens are kept in the home, readable by its user alone. Log in again if the server
        wants more: the command then asks for that too.
        """
        options = options_of(ctx)
        run(lambda: _login(options, server, port, paste=paste))

    @command(app, "logout", example="holdfast mcp logout crm")
    def logout(ctx: typer.Context, server: SERVER) -> None:
        """Forget the login at a server. Its issuer is not told: the tokens end when they end."""
        options = options_of(ctx)
        run(lambda: _logout(options, server))


def _settings(options: Options, server: str) -> "ToolServer":
    from holdfast.settings import SettingsSource

    found = SettingsSource(home_of(options)).now().servers.get(server)
    if found is None:
        raise Refused(
            f"no server {server!r}",
            code="unknown",
            hint=f"holdfast.toml names them: add [mcp.{server}]",
        )
    if found.url is None or found.token_env is not None or found.login == "client":
        why = "has no url" if found.url is None else "has a token or a login by its settings"
        raise Refused(
            f"the server {server} {why}; a person can't log in there",
            code="unknown",
            hint="docs/guides/mcp.md has the ways in which a server lets Holdfast in",
        )
    return found


async def _login(options: Options, server: str, port: int, *, paste: bool) -> int:
    from holdfast.adapters.mcp.connection import NeverSent
    from holdfast.adapters.mcp.oauth.saved_login import LoginFile
    from holdfast.adapters.mcp.oauth.web import LoginFailed
    from holdfast.cli.shared.consent import require_person

    home = home_of(options)
    require_person("logging in at a server", home)
    settings = _settings(options, server)
    if not home.is_dir():
        raise Unusable(f"no home at {home}", code="no_home", hint="`holdfast init` makes one")
    try:
        saved = await _logged_in(options, settings, LoginFile(str(home), server), port, paste=paste)
    except (LoginFailed, NeverSent) as exc:
        raise Refused(
            f"no login at {server}: {exc}",
            code="unreachable",
            hint=f"nothing was kept; try again with `holdfast mcp login {server}`",
        ) from exc
    tokens = saved.tokens
    scopes = tokens.scopes if tokens is not None and tokens.scopes else saved.requested
    value = {"server": server, "issuer": saved.authority.issuer, "scopes": list(scopes)}
    said = f" with the scopes {' '.join(scopes)}" if scopes else ""
    options.out.result(value, f"logged in at {server} by {saved.authority.issuer}{said}")
    return 0


async def _logged_in(
    options: Options, settings: "ToolServer", file: "LoginFile", port: int, *, paste: bool
) -> "SavedLogin":
    from holdfast.adapters.mcp.oauth.login import begin_login, browser_return, finish_login

    async with browser_return(port or _port_before(settings, file)) as back:
        opened = await begin_login(settings, file, redirect=back.redirect)
        _show(options, opened)
        if paste:
            options.out.note("Paste the address at which the browser ended:")
            answered = sys.stdin.readline().strip()
        else:
            answered = await back.address(opened.state, timeout_seconds=_WAIT_SECONDS)
        return await finish_login(opened, answered, settings, file)


def _port_before(settings: "ToolServer", file: "LoginFile") -> int:
    """The port of the login before: an issuer may know us by it. Any port if there is none."""
    from urllib.parse import urlsplit

    before = file.load(settings.url or "")
    return 0 if before is None else urlsplit(before.redirect).port or 0


def _show(options: Options, opened: "OpenLogin") -> None:
    login = opened.login
    options.out.note(
        f"The server {login.url} names the issuer {login.authority.issuer}. Open this address in a "
        "browser, and log in only if you know that issuer:"
    )
    options.out.note(opened.address)


async def _logout(options: Options, server: str) -> int:
    from holdfast.adapters.mcp.oauth.saved_login import LoginFile
    from holdfast.cli.shared.identity import refuse_tools

    refuse_tools("logging out at a server")
    was_there = LoginFile(str(home_of(options)), server).remove()
    text = f"the login at {server} is forgotten" if was_there else f"no login at {server}"
    options.out.result({"server": server, "forgotten": was_there}, text)
    return 0
