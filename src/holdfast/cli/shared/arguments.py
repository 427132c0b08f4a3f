"""Arguments that several commands take, in the same words."""

from typing import Annotated

import typer

from holdfast.cli.shared import completion as completing

SESSION_HELP = "CHANNEL/THREAD; a bare NAME means local/NAME."

SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help=SESSION_HELP, autocompletion=completing.sessions)
]
