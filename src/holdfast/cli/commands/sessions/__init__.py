"""
`holdfast sessions ...`: one file per command, or per pair of commands. To add one, write the file
with `register(app)` and name it below.
"""

import typer

from holdfast.cli.command_lookup import register_all
from holdfast.cli.shared.options import group
from holdfast.errors import Refused

COMMANDS = (
    "list",
    "show",
    "follow",
    "rename",
    "cancel",
    "compact",
    "fork",
    "export",
    "import_",
    "damage",
    "delete",
    "prune",
    "search",
    "trace",
)


def register(app: typer.Typer) -> None:
    sessions = group(
        "sessions",
        "Conversations: look at them, follow them, stop them.",
        example="holdfast sessions list\nholdfast sessions follow ops/api",
    )
    app.add_typer(sessions)
    register_all(sessions, __name__, COMMANDS)


def unknown(session: str) -> Refused:
    return Refused(
        f"no session {session}", code="unknown", hint="`holdfast sessions list` shows them"
    )
