"""Arguments that several commands share, with the same help."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from holdfast.cli.shared import completion as completing

SESSION_HELP = "CHANNEL/THREAD; a bare NAME means local/NAME."

SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help=SESSION_HELP, autocompletion=completing.sessions)
]


def id_argument(of: str, candidates: Callable[..., Any] | None = None) -> Any:
    """Declare the id of something as an argument, with the completions for it."""
    return typer.Argument(
        metavar="ID",
        help=f"The {of}'s id, or any unique beginning of it.",
        autocompletion=candidates,
    )


RecordedAs = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="WHO", help="Record this person as the actor. Only the home's owner may."
    ),
]
"""Who did it, where the journal only records the name."""

WorkspaceOption = Annotated[
    str | None,
    typer.Option(
        "--workspace",
        metavar="DIR",
        help="Where its tools work. [default: the last one, else this folder]",
    ),
]
