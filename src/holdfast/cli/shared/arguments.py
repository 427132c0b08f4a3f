"""Arguments that several commands share, with the same help."""

from typing import Annotated

import typer

from holdfast.cli.shared import completion as completing

SESSION_HELP = "CHANNEL/THREAD; a bare NAME means local/NAME."

SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help=SESSION_HELP, autocompletion=completing.sessions)
]
