"""
`holdfast serve`: the gateway. Prints the page's address with a one-time code, and runs until it is
stopped.
"""

import gc
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.serve.log import free_stdout, log_to_stderr
from holdfast.cli.shared.options import Options, command, options_of, refuse_blank
from holdfast.cli.shared.service import home_of, looking_service, making_service, no_home, run
from holdfast.errors import Refused, Unusable, install_hint
from holdfast.limits import WORKERS_MAX

if TYPE_CHECKING:
    from holdfast.gateway.http.context import GatewaySettings
    from holdfast.runtime.service import Service
    from holdfast.session.authority.context import Workspace


def register(app: typer.Typer) -> None:
    @command(
        app,
        "serve",
        example="holdfast serve\nholdfast serve --workers 4\nholdfast serve code\n"
        "sudo holdfast serve --as-user holdfast",
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
        workers: Annotated[
            int | None,
            typer.Option(
                "--workers",
                metavar="N",
                min=1,
                max=WORKERS_MAX,
                help="Processes that answer at the port, each with its share of the sessions. "
                "[default: 1]",
            ),
        ] = None,
        worker: Annotated[str | None, typer.Option("--worker", hidden=True)] = None,
        quiet: Annotated[
            bool, typer.Option("--quiet", help="Log warnings and errors only.")
        ] = False,
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
                f"{what!r} is not an argument of serve",
                hint="`holdfast serve code` prints a new code for the page",
            )
        if as_ is not None and what is None:
            raise Unusable(
                "--as goes with `holdfast serve code`",
                hint="`serve` is for everybody who has a token or a code",
            )
        if print_unit:
            from holdfast.cli.commands.serve.own_user import unit

            text = unit(as_user or "holdfast")
            if options.out.json:
                options.out.object({"unit": text})
            else:
                options.out.verbatim(text)
            return
        if as_user is not None:
            from holdfast.cli.commands.serve.own_user import become

            become(as_user)
        run(
            (lambda: _code(options, as_))
            if what == "code"
            else lambda: _serve(options, host, port, workers, quiet=quiet, worker=worker)
        )


async def _serve(
    options: Options,
    host: str | None,
    port: int | None,
    workers: int | None,
    *,
    quiet: bool,
    worker: str | None,
) -> int:
    from holdfast.assembly.channels import open_chats, platforms_of
    from holdfast.assembly.telemetry import telemetry_exporter
    from holdfast.cli.shared.identity import refuse_tools
    from holdfast.settings import SettingsSource

    try:
        from holdfast.gateway.server.serve import (
            allow_many_files,
            open_serving,
            serve_until_signalled,
        )
        from holdfast.gateway.workers.place import place_of
    except ModuleNotFoundError as exc:
        raise Unusable(
            f"serving needs {exc.name}, which is not installed",
            code="missing_part",
            hint=f"{install_hint('serve')}; in a checkout, `make run` installs it and serves",
        ) from exc

    refuse_tools("serving a home")
    log_to_stderr(quiet=quiet)
    allow_many_files()
    home = home_of(options)
    source = SettingsSource(home)
    settings = _settings(home, host, port)
    workers = workers or source.now().serve_workers
    place = None if worker is None else place_of(worker)
    if place is None and workers > 1:
        return await _serve_with_workers(options, settings, workers, quiet=quiet)
    platforms = platforms_of(source.now())
    async with making_service(options, platforms=platforms) as service:
        for hook in settings.hooks.values():
            service.live.check_agent(hook.agent, None)
        async with (
            telemetry_exporter(service, home) as exporter,
            open_serving(
                service,
                settings,
                workspace=_workspace(service, home),
                keep_house=lambda: _keep_house(service, home),
                exporter=exporter,
                place=place,
                chats=open_chats(source.now, platforms),
            ) as serving,
        ):
            if place is None:
                await _say(options, service, serving.address)
            free_stdout()
            _collect_rarely()
            await serve_until_signalled(serving)
    if place is None:
        options.out.note(_STOPPED)
    return 0


def _collect_rarely() -> None:
    """
    Look for garbage in circles less often, and never among the modules: a request makes thousands
    of small objects and hardly a circle. Looking took 5 % of the CPU of a call.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


_STOPPED = "stopped; accepted messages are safe, and prompts stand"


async def _serve_with_workers(
    options: Options, settings: "GatewaySettings", workers: int, *, quiet: bool
) -> int:
    """Hold the home and the port for several processes. Each of them opens the home itself."""
    from holdfast.gateway.server.serve import address_of, home_folder, open_port
    from holdfast.gateway.workers.group import WorkerGroup, run_until_signalled
    from holdfast.settings import SettingsSource

    home = home_of(options)
    command = [sys.executable, "-P", "-m", "holdfast", "--home", str(home)]
    command += ["--app", options.app] if options.app else []
    command += ["serve", "--host", settings.host, *(["--quiet"] if quiet else [])]
    with ExitStack() as stack:
        async with making_service(options) as service:
            sock, lock = stack.enter_context(open_port(settings, home_folder(service)))
            await _say(options, service, address_of(settings.host, sock.getsockname()[1]))
        group = WorkerGroup(
            workers,
            sock,
            None if lock is None else lock.fd,
            lambda place: [*command, "--worker", place],
            # The connection to a chat is in one process, and so is every drive that may use it.
            drivers=1 if SettingsSource(home).now().channels else None,
        )
        await run_until_signalled(group)
    options.out.note(_STOPPED)
    return 0


_PRUNED_AT_ONCE = 500  # of each kind; the first prune of an old home takes several rounds


async def _keep_house(service: "Service", home: Path) -> bool:
    """
    Delete data that `[retention]` no longer keeps. Return whether there may be more. The home's
    journal and the log record each deletion.
    """
    from holdfast.assembly.retention import prunable, prune

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
    from holdfast.assembly.hooks import inbound_hooks
    from holdfast.gateway.http.context import GatewaySettings
    from holdfast.settings import SettingsSource

    now = SettingsSource(home).now()
    return GatewaySettings(
        host=host or now.serve_host,
        port=now.serve_port if port is None else port,
        hosts=now.serve_hosts,
        allow_remote=now.serve_allow_remote,
        mcp_wait_seconds=now.mcp_wait_seconds,
        hooks=inbound_hooks(now),
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
        return service.live.workspace(source.now().serve_workspace or str(here))

    return workspace


async def _code(options: Options, asserted: str | None) -> int:
    """
    Create a code for the page, from another process than the server. The code opens the page for a
    person who may answer, so it carries consent.
    """
    from holdfast.cli.commands.serve.private_output import is_private
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.identity import who
    from holdfast.gateway.server.serve_lock import served_at
    from holdfast.gateway.server.tokens import SCOPES

    home = home_of(options)
    require_person("a code for the page", home)
    me = who(home, asserted)
    if not is_private():
        hint = (
            "run it in a terminal, or let it write to a file of yours with mode 0600: (umask 077;"
            " holdfast serve code > FILE)"
        )
        raise Refused(
            "a code is printed only where nobody else can read it, and this output is a pipe or a "
            "file for others",
            code="not_private",
            hint=hint,
        )
    address = served_at(home)
    if address is None:
        raise Unusable(
            f"no server runs for {home}", code="not_served", hint="`holdfast serve` does"
        )
    async with looking_service(options) as service:
        if service is None:
            raise no_home(home)
        scopes = SCOPES if me.may_all else [each for each in SCOPES if each != "admin"]
        by = me.asserted_by or me.person
        page = await _page_address(address, service, me.person, scopes=scopes, by=by)
    options.out.result(
        {"url": address, "page": page, "person": me.person}, f"Holdfast for {me.person}: {page}"
    )
    return 0


async def _page_address(
    url: str, service: "Service", person: str, *, scopes: Sequence[str], by: str
) -> str:
    """Return the page's address with a one-time code in the fragment, which browsers never send."""
    from holdfast.gateway.server.one_time_codes import new_code, page_at
    from holdfast.gateway.server.tokens import TokenBook

    book, now = TokenBook(service.home), service.live.clock_ms()
    return page_at(url, await new_code(book, person=person, scopes=scopes, by=by, now=now))


async def _say(options: Options, service: "Service", url: str) -> None:
    """
    Print the address once the socket is bound. A client that opens it now waits a moment at most.
    """
    from holdfast.cli.commands.serve.private_output import is_private
    from holdfast.cli.shared.consent import is_a_person
    from holdfast.cli.shared.identity import who
    from holdfast.gateway.server.tokens import SCOPES

    home = home_of(options)
    person, standing = who(home, None).person, await service.approvals()
    private = is_private() and is_a_person(home)
    address = f"{url}/"
    if private:
        address = await _page_address(url, service, person, scopes=SCOPES, by=person)
    hint = (
        None if private else f"`{options.typed('serve code')}` gives the page's code, in a terminal"
    )
    if options.out.json:
        options.out.object(
            {
                "url": url,
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
