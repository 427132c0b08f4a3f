"""
`holdfast sessions ...`: one file per command. To add one, write the file with `register(app)` and
name it below.
"""

import typer

from holdfast.cli.loading import register_all
from holdfast.cli.shared.options import group
from holdfast.errors import Refused

COMMANDS = (
    "list",
    "show",
    "follow",
    "cancel",
    "compact",
    "fork",
    "export",
    "import_",
    "unseal",
    "delete",
    "prune",
    "search",
)


def register(app: typer.Typer) -> None:
    sessions = group("sessions", "Conversations: look at them, follow them, stop them.")
    app.add_typer(sessions)
    register_all(sessions, __name__, COMMANDS)


def unknown(session: str) -> Refused:
    return Refused(
        f"there is no session {session}", code="unknown", hint="`holdfast sessions list` shows them"
    )
