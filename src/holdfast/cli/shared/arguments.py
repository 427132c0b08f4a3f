"""Arguments that several commands share, with the same help."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from holdfast.cli.shared import completion as completing

SESSION_HELP = "CHANNEL/THREAD; a bare NAME means local/NAME."

SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help=SESSION_HELP, autocompletion=completing.sessions)
]


def one_session(about: str) -> Any:
    """Declare an optional session, with what naming one does."""
    return typer.Argument(metavar="[SESSION]", help=about, autocompletion=completing.sessions)


def id_argument(of: str, candidates: Callable[..., Any] | None = None) -> Any:
    """Declare the id of something as an argument, with the completions for it."""
    return typer.Argument(
        metavar="ID",
        help=f"The {of}'s id, or any unique beginning of it.",
        autocompletion=candidates,
    )


def acting_as(deed: str) -> Any:
    """Declare `--as`, with what the command then does for that person."""
    return typer.Option("--as", metavar="WHO", help=f"{deed}. Only the home's owner may.")


ActAs = Annotated[str | None, acting_as("Act as this person")]
RecordedAs = Annotated[str | None, acting_as("Record this person as the actor")]
"""Who did it, where the journal only records the name."""

WorkspaceOption = Annotated[
    str | None,
    typer.Option(
        "--workspace",
        metavar="DIR",
        help="Where its tools work. [default: the last one, else this folder]",
    ),
]
