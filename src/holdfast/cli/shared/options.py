"""
What every command takes: `--home`, `--json`, `--app`, before the command or after it.

A command is declared with `@command(app, "name", example="...")`; the example is part of its help,
and a test runs over all of them.
"""

from collections.abc import Callable, Sequence
from inspect import cleandoc
from shlex import quote
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperOption

from holdfast.cli.shared.output import Output
from holdfast.errors import Unusable

F = TypeVar("F", bound=Callable[..., None])


class Options:
    """
    The common options of one run. Made before the arguments are read, so that even a wrong argument
    is told as JSON if JSON was asked for.
    """

    def __init__(self) -> None:
        self.home: str | None = None
        self.app: str | None = None
        # Set once the command may take something in or drive it: what is said when it is stopped
        # depends on it.
        self.drives = False
        # Whom the owner speaks as, where the command takes `--as`.
        self.speaks_as: str | None = None
        self.out = Output()

    def typed(self, words: str, *, by: Sequence[str] = ()) -> str:
        """
        A command to copy: on the same home, with the same agents, and as the same person where it
        is one `by` whom it can be given.

        >>> options = Options()
        >>> options.home, options.speaks_as = "my state", "alice"
        >>> options.typed("resume ops/api"), options.typed("grants revoke g-1", by=["alice"])
        ("holdfast --home 'my state' resume ops/api", "holdfast --home 'my state' grants revoke g-1 --as alice")
        """
        common = [
            f"{name} {quote(value)}"
            for name, value in (("--home", self.home), ("--app", self.app))
            if value
        ]
        person = (
            [f"--as {quote(self.speaks_as)}"] if self.speaks_as in by and self.speaks_as else []
        )
        return " ".join(["holdfast", *common, words, *person])


def options_of(ctx: typer.Context) -> Options:
    root = ctx.find_root()
    if not isinstance(root.obj, Options):
        root.obj = Options()  # only while a shell asks for completions: nobody made them before
    return root.obj


def refuse_blank(**given: str | None) -> None:
    """A variable that a script forgot to set must not stand for leaving the option out."""
    for name, value in given.items():
        if value is not None and not value.strip():
            raise Unusable(
                f"{name} is blank", code="malformed", hint="give it a value, or leave it out"
            )


def take_home(ctx: typer.Context, value: str | None) -> None:
    refuse_blank(home=value)
    if value is not None:
        options_of(ctx).home = value


def take_app(ctx: typer.Context, value: str | None) -> None:
    refuse_blank(app=value)
    if value is not None:
        options_of(ctx).app = value


def take_json(ctx: typer.Context, value: bool) -> None:
    if value:
        options_of(ctx).out.json = True


HOME_HELP = "The folder of everything. [default: $HOLDFAST_HOME, else ~/.holdfast]"
JSON_HELP = "Print JSON on stdout, and nothing else there."
APP_HELP = "Your own agents and tools: MODULE is a file of this folder, or FOLDER/FILE.py; AGENT is a holdfast.Agent or a list of them."


class Command(TyperCommand):
    """A command that takes the common options after its name too: people put them there."""

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **rest: Any) -> None:
        super().__init__(name, params=[*(params or []), *_common()], **rest)


def _common() -> list[Any]:
    return [
        TyperOption(
            param_decls=["--json"],
            is_flag=True,
            default=False,
            expose_value=False,
            callback=_of(take_json),
            help=JSON_HELP,
        ),
        TyperOption(
            param_decls=["--home"],
            metavar="DIR",
            expose_value=False,
            callback=_of(take_home),
            help=HOME_HELP,
            hidden=True,
        ),
        TyperOption(
            param_decls=["--app"],
            metavar="MODULE:AGENT",
            expose_value=False,
            callback=_of(take_app),
            help=APP_HELP,
            hidden=True,
        ),
    ]


def _of(take: Callable[[Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    return lambda ctx, _param, value: take(ctx, value)


def command(app: typer.Typer, name: str, *, example: str) -> Callable[[F], F]:
    """Declare a command; its docstring is its help, and `example` ends it."""

    def declare(function: F) -> F:
        about = cleandoc(function.__doc__ or "")
        shown = "\n".join(f"  $ {line}" for line in example.splitlines())
        text = f"{about}\n\n\b\nExample:\n{shown}"
        app.command(name, cls=Command, help=text, short_help=_first_sentence(about))(function)
        return function

    return declare


def group(name: str, about: str) -> typer.Typer:
    """A command of commands."""
    return typer.Typer(
        name=name,
        help=about,
        short_help=_first_sentence(about),
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
    )


def _first_sentence(about: str) -> str:
    """
    For lists of commands, whole: left to itself the list would cut it off in the middle.

    >>> _first_sentence("Stop what runs or waits. For good.")
    'Stop what runs or waits.'
    """
    return about.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".") + "."
