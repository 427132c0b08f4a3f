"""
`holdfast serve`: the gateway. Prints the page's address with a one-time code, and runs until it is
stopped.
"""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared.options import Options, command, options_of, refuse_blank
from holdfast.cli.shared.service import home_of, looking_service, making_service, no_home, run
from holdfast.cli.shared.terminal import printable_json
from holdfast.errors import Refused, Unusable

if TYPE_CHECKING:
    from holdfast.gateway.http.context import GatewaySettings
    from holdfast.gateway.server.serve import Serving
    from holdfast.runtime.service import Service
    from holdfast.session.authority.context import Workspace


def register(app: typer.Typer) -> None:
    @command(
        app,
        "serve",
        example="holdfast serve\nholdfast serve code\nsudo holdfast serve --as-user holdfast",
    )
    def serve(
        ctx: typer.Context,
        what: Annotated[
            str | None,
            typer.Argument(
                metavar="[code]",
                help="`code`: print the page's address with a new code, for a running server.",
            ),
        ] = None,
        host: Annotated[
            str | None,
            typer.Option("--host", metavar="H", help="Where to listen. [default: 127.0.0.1]"),
        ] = None,
        port: Annotated[
            int | None,
            typer.Option(
                "--port",
                metavar="P",
                min=0,
                max=65535,
                help="0 takes any free one. [default: 8321]",
            ),
        ] = None,
        as_: Annotated[
            str | None,
            typer.Option(
                "--as",
                metavar="WHO",
                help="With `code`: for this person's page; by the home's owner.",
            ),
        ] = None,
        as_user: Annotated[
            str | None,
            typer.Option(
                "--as-user",
                metavar="NAME",
                help="Become this user of the system first; needs root.",
            ),
        ] = None,
        print_unit: Annotated[
            bool,
            typer.Option(
                "--print-unit",
                help="Print a systemd unit that serves as a user of its own, and exit.",
            ),
        ] = False,
    ) -> None:
        """
        Serve this home over HTTP: the API, live streams and the page. Drives what is owed; stops on
        Ctrl-C.

        The page's address carries a code that works once, for ten minutes. It is printed to a
        terminal, or to a file of yours with mode 0600; elsewhere `holdfast serve code` gives one.
        Other commands work on the same home meanwhile.
        """
        options = options_of(ctx)
        refuse_blank(host=host, what=what, as_user=as_user)
        if what not in (None, "code"):
            raise Unusable(
                f"serve takes no {what!r}",
                hint="`holdfast serve code` prints a new code for the page",
            )
        if as_ is not None and what is None:
            raise Unusable(
                "--as goes with `holdfast serve code`",
                hint="`serve` is for everybody who has a token or a code",
            )
        if print_unit:
            from holdfast.cli.commands.serve.own_user import unit

            options.out.text(unit(as_user or "holdfast"))
            return
        if as_user is not None:
            from holdfast.cli.commands.serve.own_user import become

            become(as_user)
        run(
            (lambda: _code(options, as_)) if what == "code" else lambda: _serve(options, host, port)
        )


async def _serve(options: Options, host: str | None, port: int | None) -> int:
    from holdfast.cli.shared.identity import refuse_tools, who

    try:
        from holdfast.gateway.server.serve import (
            allow_many_files,
            open_serving,
            serve_until_signalled,
        )
    except ModuleNotFoundError as exc:
        raise Unusable(
            f"serving needs {exc.name}, which is not installed",
            code="missing_part",
            hint="install the extra: `pip install 'holdfast[serve]'`; in a checkout `make run` "
            "does, and serves",
        ) from exc

    refuse_tools("serving a home")
    _log_to_stderr()
    allow_many_files()
    home = home_of(options)
    me = who(home, None)
    async with making_service(options, lasting=True) as service:
        settings = _settings(home, host, port)
        async with open_serving(
            service,
            settings,
            workspace=_workspace(service, home),
            keep_house=lambda: _keep_house(service, home),
        ) as serving:
            await _say(options, serving, me.person, await service.approvals())
            await serve_until_signalled(serving)
    options.out.note("stopped; what was accepted is safe, and prompts stand")
    return 0


_PRUNED_AT_ONCE = 500  # of each kind; the first prune of an old home takes several rounds


async def _keep_house(service: "Service", home: Path) -> bool:
    """
    Delete data that `[retention]` no longer keeps. Return whether there may be more. The home's
    journal and the log record each deletion.
    """
    from holdfast.wiring import prunable, prune

    found = await prunable(service, home, most=_PRUNED_AT_ONCE)
    if not any(found):
        return False
    gone = await prune(service, found, by="retention")
    logging.getLogger("holdfast.gateway.retention").info(
        "let go of %d sessions, %d outputs and %d quarantined files",
        len(gone),
        len(found.outputs),
        len(found.quarantine),
    )
    return max(map(len, found)) == _PRUNED_AT_ONCE


def _settings(home: Path, host: str | None, port: int | None) -> "GatewaySettings":
    from holdfast.gateway.http.context import GatewaySettings
    from holdfast.settings import SettingsSource

    now = SettingsSource(home).now()
    return GatewaySettings(
        host=host or now.serve_host,
        port=now.serve_port if port is None else port,
        hosts=now.serve_hosts,
        allow_remote=now.serve_allow_remote,
        stop_seconds=now.serve_stop_seconds,
    )


def _workspace(service: "Service", home: Path) -> "Callable[[], Workspace]":
    """
    Return the workspace for messages over HTTP: the current setting, else the folder where the
    server started.
    """
    from holdfast.settings import SettingsSource

    source, here = SettingsSource(home), Path.cwd()

    def workspace() -> "Workspace":
        return service.world.workspace(source.now().serve_workspace or str(here))

    return workspace


async def _code(options: Options, asserted: str | None) -> int:
    """
    Create a code for the page, from another process than the server. The code opens the page for a
    person who may answer, so it carries consent.
    """
    from holdfast.cli.commands.serve.private_output import is_private
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.identity import who
    from holdfast.gateway.server.one_time_codes import new_code, page_at
    from holdfast.gateway.server.serve_lock import served_at
    from holdfast.gateway.server.tokens import SCOPES, TokenBook

    home = home_of(options)
    require_person("a code for the page", home)
    me = who(home, asserted)
    if not is_private():
        hint = "run it in a terminal, or let it write to a file of yours with mode 0600: (umask 077; holdfast serve code > FILE)"
        raise Refused(
            "a code is printed only where nobody else can read it, and this output is a pipe or a "
            "file for others",
            code="not_private",
            hint=hint,
        )
    address = served_at(home)
    if address is None:
        raise Unusable(f"nobody serves {home} now", code="not_served", hint="`holdfast serve` does")
    async with looking_service(options) as service:
        if service is None:
            raise no_home(home)
        scopes = SCOPES if me.may_all else [each for each in SCOPES if each != "admin"]
        by, now = me.asserted_by or me.person, service.world.clock.now_ms()
        page = page_at(
            address,
            await new_code(
                TokenBook(service.home), person=me.person, scopes=scopes, by=by, now=now
            ),
        )
    options.out.result(
        {"url": address, "page": page, "person": me.person}, f"Holdfast for {me.person}: {page}"
    )
    return 0


async def _say(
    options: Options, serving: "Serving", person: str, standing: "tuple[object, ...]"
) -> None:
    """
    Print the address once the socket is bound. A client that opens it now waits a moment at most.
    """
    from holdfast.cli.commands.serve.private_output import is_private
    from holdfast.cli.shared.consent import is_a_person

    private = is_private() and is_a_person(home_of(options))
    address = await serving.page_address(person, by=person) if private else f"{serving.address}/"
    hint = (
        None if private else f"`{options.typed('serve code')}` gives the page's code, in a terminal"
    )
    if options.out.json:
        options.out.object(
            {
                "url": serving.address,
                "page": address,
                "person": person,
                "prompts_standing": len(standing),
                "hint": hint,
            }
        )
        return
    options.out.text(f"Holdfast for {person}: {address}")
    options.out.note(
        "the code in the address works once, for ten minutes; Ctrl-C stops"
        if hint is None
        else f"others may read this output: {hint}"
    )
    if standing:
        options.out.note(
            f"{len(standing)} prompt{'s' if len(standing) > 1 else ''} still "
            f"stand{'s' if len(standing) == 1 else ''}"
        )


def _log_to_stderr() -> None:
    """
    Log one JSON line per event: no query, header, message text or known secret, and nothing that a
    terminal interprets.
    """
    import structlog

    from holdfast.secrecy import known

    class Safe(structlog.stdlib.ProcessorFormatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable_json(
                known().hidden(super().format(record)).encode("utf-8", "replace")
            ).decode()

    formatter = Safe(
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.raiseExceptions = (
        False  # if the log can't be written, the logging module must not print a trace
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("holdfast.gateway").setLevel(logging.INFO)
