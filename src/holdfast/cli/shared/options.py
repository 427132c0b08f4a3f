"""
The options of every command: `--home`, `--json`, `--app`, before the command or after it.

A command is declared with `@command(app, "name", example="...")`. The example is part of its help,
and a test runs all examples.
"""

from collections.abc import Callable, Sequence
from inspect import cleandoc
from shlex import quote
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperOption

from holdfast.cli.output.result import Output
from holdfast.errors import Unusable

F = TypeVar("F", bound=Callable[..., None])


class Options:
    """
    The common options of one run. Created before the arguments are read, so that a wrong argument
    is also reported as JSON if JSON was requested.
    """

    def __init__(self) -> None:
        self.home: str | None = None
        self.app: str | None = None
        # Set once the command may accept an input or drive. The message after an interrupt depends
        # on it.
        self.drives = False
        # The person that the owner acts as, if the command takes `--as`.
        self.speaks_as: str | None = None
        self.out = Output()

    def typed(self, words: str, *, by: Sequence[str] = ()) -> str:
        """
        Return a command to copy: for the same home and agents, and with `--as` for the same person
        if they are in `by`.

        >>> options = Options()
        >>> options.home, options.speaks_as = "my state", "alice"
        >>> options.typed("resume ops/api")
        "holdfast --home 'my state' resume ops/api"
        >>> options.typed("grants revoke g-1", by=["alice"])
        "holdfast --home 'my state' grants revoke g-1 --as alice"
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
        root.obj = Options()  # only for a shell's completion: no options exist yet
    return root.obj


def refuse_blank(**given: str | None) -> None:
    """
    Refuse an empty value: a variable that a script forgot to set must not mean a missing option.
    """
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


HOME_HELP = "Where Holdfast keeps its data. [default: $HOLDFAST_HOME, else ~/.holdfast]"
JSON_HELP = "Print JSON on stdout, and nothing else there."
APP_HELP = (
    "Your own agents and tools: MODULE is a file of this folder, or FOLDER/FILE.py; AGENT is a"
    " holdfast.Agent or a list of them. [default: $HOLDFAST_APP, else the setting tools.python.app]"
)


class HoldfastCommand(TyperCommand):
    """A command that also takes the common options after its name, where people put them."""

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **rest: Any) -> None:
        super().__init__(name, params=[*(params or []), *_common()], **rest)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`SESSION`, as manuals write it. Typer writes `{SESSION}`."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


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
    """Declare a command. Its docstring is its help, and `example` ends it."""

    def declare(function: F) -> F:
        about = cleandoc(function.__doc__ or "")
        text = _with_example(about, example)
        app.command(name, cls=HoldfastCommand, help=text, short_help=_first_sentence(about))(
            function
        )
        return function

    return declare


def group(name: str, about: str, *, example: str) -> typer.Typer:
    """Declare a group of commands."""
    return typer.Typer(
        name=name,
        help=_with_example(about, example),
        short_help=_first_sentence(about),
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
    )


def _with_example(about: str, example: str) -> str:
    shown = "\n".join(f"  $ {line}" for line in example.splitlines())
    return f"{about}\n\n\b\nExample:\n{shown}"


def _first_sentence(about: str) -> str:
    """
    Return the whole first sentence, for lists of commands. Typer would cut it off in the middle.

    >>> _first_sentence("Stop what runs or waits. For good.")
    'Stop what runs or waits.'
    """
    return about.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".") + "."
