"""
`holdfast`: read the arguments, run one command, report errors, exit with its code.

Commands are files in `commands/`; each has `register(app)`. To add one, write the file and name it
in COMMANDS. Nothing heavy is imported before a command runs: `--help` costs only typer.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from holdfast.cli.command_lookup import register_all, wanted
from holdfast.cli.output.exit_codes import exit_code_of
from holdfast.cli.output.result import Output, error_from_os, flush_results
from holdfast.cli.output.terminal import prepare_streams
from holdfast.cli.shared.options import (
    APP_HELP,
    HOME_HELP,
    JSON_HELP,
    Options,
    take_app,
    take_home,
    take_json,
)
from holdfast.errors import HoldfastError, Refused, Unusable

COMMANDS = (
    "init",
    "send",
    "chat",
    "approvals",
    "grants",
    "sessions",
    "resume",
    "verify",
    "serve",
    "tokens",
    "keys",
    "storage",
    "nodes",
    "backup",
    "restore",
    "config",
    "hook",
    "mcp",
    "channels",
    "memory",
    "jobs",
    "reminders",
    "doctor",
    "demo",
)
_USAGE = 2
_INTERRUPTED = 130
_ABOUT = """
A durable, fail-closed session runtime for AI agents.

An agent asks before it acts. The question survives crashes, and an approval runs exactly the call
that was shown, once.

\b
Try it:
  $ holdfast demo
  $ holdfast send notes "what time is it?"
  $ holdfast send notes "shell command='echo hello'"
  $ holdfast approvals list

Exit codes: 0 done, 1 failed or cancelled, 2 usage, 3 waits for approval, 4 untrusted or sealed,
5 busy, in doubt or not saved, 6 refused or superseded.
"""


class _InOrder(TyperGroup):
    """
    List commands in the order of COMMANDS. By default typer lists groups last, and `approvals` is
    one.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=COMMANDS.index)


def make_app(names: Sequence[str] = COMMANDS) -> typer.Typer:
    app = typer.Typer(
        name="holdfast",
        cls=_InOrder,
        help=_ABOUT,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def common(
        home: Annotated[
            str | None, typer.Option("--home", metavar="DIR", help=HOME_HELP, callback=take_home)
        ] = None,
        json: Annotated[bool, typer.Option("--json", help=JSON_HELP, callback=take_json)] = False,
        app: Annotated[
            str | None,
            typer.Option("--app", metavar="MODULE:AGENT", help=APP_HELP, callback=take_app),
        ] = None,
        version: Annotated[
            bool,
            typer.Option(
                "--version",
                help="Print the version and exit.",
                callback=_print_version,
                is_eager=True,
            ),
        ] = False,
    ) -> None:
        pass

    register_all(app, "holdfast.cli.commands", names)
    return app


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        Output().text(f"holdfast {version('holdfast')}")
        raise typer.Exit


def main() -> NoReturn:
    _leave_the_scripts_folder()
    _leave_no_core()
    prepare_streams()
    code = _run(sys.argv[1:])
    flush_results()
    # Skip garbage collection at exit. After a list of ten thousand rows it took a tenth of the
    # time.
    gc.freeze()
    sys.exit(code)


def _leave_no_core() -> None:
    """A core file holds the keys, and lies in the current folder, which may be a workspace."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _leave_the_scripts_folder() -> None:
    """
    Remove the folder of the installed script from the import path. Python would search it first for
    every later import, and Holdfast has no modules there.
    """
    if not sys.flags.safe_path and os.path.basename(sys.argv[0]) == "holdfast":  # noqa: PTH119
        folders = {
            os.path.dirname(os.path.abspath(sys.argv[0])),  # noqa: PTH100, PTH120
            os.path.dirname(os.path.realpath(sys.argv[0])),  # noqa: PTH120
        }
        if sys.path and sys.path[0] in folders:
            del sys.path[0]


def _run(arguments: list[str]) -> int:
    options = Options()
    try:
        return _checked(arguments, options)
    except HoldfastError as exc:
        if "--json" in arguments:  # the error may precede the reading of the option
            options.out.json = True
        return _print_error(options, exc)
    except KeyboardInterrupt:  # before the command began, or while an error was printed
        options.out.note("stopped")
        return _INTERRUPTED


def _checked(arguments: list[str], options: Options) -> int:
    from asyncio import CancelledError

    _refuse_non_utf8_arguments(arguments)
    command = typer.main.get_command(
        make_app(wanted(arguments, COMMANDS))
    )  # declaring the others would take longer than most commands run
    try:
        code = command.main(arguments, prog_name="holdfast", standalone_mode=False, obj=options)
    except typer.TyperException as exc:
        if not options.out.json and _is_bare(exc):
            options.out.note(exc.format_message())
            return _USAGE
        raise _usage(exc) from None
    except (KeyboardInterrupt, CancelledError, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        return 0  # the reader has gone and needs no result
    except OSError as exc:
        raise error_from_os(exc) from exc
    if code == _INTERRUPTED:
        options.out.note(
            "stopped; accepted messages are safe, `holdfast resume` goes on with it"
            if options.drives
            else "stopped"
        )
    return code if isinstance(code, int) else 0


def _refuse_non_utf8_arguments(arguments: list[str]) -> None:
    """Refuse arguments that are not UTF-8. Every argument may be journalled or shown."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError as exc:
            raise Refused(
                f"{word!a} is not valid UTF-8",
                code="malformed",
                hint="write it in UTF-8; a terminal needs a locale of it, such as LANG=C.UTF-8",
            ) from exc


def _learn_secrets(options: Options) -> None:
    """
    Learn the secrets of the settings. The error may precede the opening of the home and may repeat
    an argument that is a secret.
    """
    from holdfast.assembly.home_path import home_path
    from holdfast.secrecy import learn
    from holdfast.settings import SettingsSource

    with contextlib.suppress(HoldfastError, OSError):
        names = SettingsSource(home_path(options.home)).now().secret_names
        learn(_learn_secrets, tuple(os.environ[name] for name in names if os.environ.get(name)))


def _is_bare(exc: typer.TyperException) -> bool:
    """Return whether a group was called without a command. Its help is then the message."""
    ctx = getattr(exc, "ctx", None)
    return ctx is not None and exc.format_message() == ctx.get_help()


def _usage(exc: typer.TyperException) -> HoldfastError:
    ctx = getattr(exc, "ctx", None)
    hint = f"`{ctx.command_path} --help` has an example" if ctx is not None else "`holdfast --help`"
    message = exc.format_message().replace("is not a valid int range", "is not a whole number")
    return Unusable("a command is missing" if _is_bare(exc) else message, hint=hint)


def _print_error(options: Options, error: HoldfastError) -> int:
    _learn_secrets(options)
    try:
        options.out.error(error)
    except HoldfastError as exc:  # stdout is full
        options.out.print_error(exc.message, exc.hint)
    return exit_code_of(error)
