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


def json_object(text: str | None, *, name: str) -> dict[str, Any] | None:
    """
    Parse the arguments of a call, as strictly as everything that is digested: no duplicate keys, no
    NaN. An error calls the option or argument by its name.
    """
    if text is None:
        return None
    from holdfast.errors import Refused, Unusable
    from holdfast.journal.strict import strict_json

    hint = 'one JSON object, such as \'{"command": "ls"}\''
    try:
        value = strict_json(text.encode(), what=name)
    except (UnicodeEncodeError, Refused) as exc:
        why = str(exc).partition(": ")[2]
        raise Unusable(f"{name} is not valid JSON: {why}", code="malformed", hint=hint) from exc
    if not isinstance(value, dict):
        raise Unusable(f"{name} is not a JSON object", code="malformed", hint=hint)
    return value
