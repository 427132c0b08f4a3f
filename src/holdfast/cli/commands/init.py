"""`holdfast init`: a home with a commented holdfast.toml."""

from typing import TYPE_CHECKING

import typer

from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, making_service, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATE = """\
# Settings of Holdfast. Every key is optional, and a line that begins with # sets nothing.
# `holdfast config check` reads this file; `holdfast config explain SESSION TOOL` says what it does.

# An agent: a model, instructions, tools.
# [agents.assistant]
# model = "demo"                  # offline; or "anthropic:NAME", "openai:NAME", "ollama:NAME"
# instructions = "Look before you act."
# tools = ["read_file", "list_files", "search_files", "shell", "write_file", "edit_file", "now"]

# Your own agents and tools, loaded by every command: a file below this folder.
# [tools.python]
# app = "bot.py:ops"

# Who is who: the name that rules use, and the login.
# [people.alice]
# local = "alice"

# Who must agree. The sections are personal, team and public; "*" stands for every other tool.
# [policy.personal]
# shell = "ask"                                                  # "auto", "ask" or "deny"
# write_file = { ask = ["bob"], requester_may_answer = false }   # a second person decides

# [approvals]
# expires_after = "7d"            # if nobody answers in time, it is denied
# remember_for = "30d"            # how long a standing approval lasts

# [tools.shell]
# confine = "require"             # refuse to run commands that cannot be isolated
"""


def register(app: typer.Typer) -> None:
    @command(app, "init", example="holdfast init\nholdfast --home ~/agents init")
    def init(ctx: typer.Context) -> None:
        """
        Create a home with a commented holdfast.toml, and check it.

        An existing home is kept. An existing holdfast.toml is not changed; the command exits 6.
        """
        options = options_of(ctx)
        run(lambda: _init(options))


async def _init(options: Options) -> int:
    from holdfast.settings import FILE_NAME, SettingsSource

    home = home_of(options)
    async with making_service(options):
        pass  # opening creates the home, with its key
    path = home / FILE_NAME
    check, start = (options.typed(words) for words in ("config check", "chat"))
    _write_new(path, check)
    SettingsSource(home).now()
    options.out.result(
        {"home": str(home), "file": str(path), "created": True},
        f"{path} is ready. Edit it, then check it with `{check}`.\nStart with `{start}`.",
    )
    return 0


def _write_new(path: "Path", check: str) -> None:
    import os

    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise Refused(
            f"{path} exists already and was not changed",
            code="exists",
            hint=f"`{check}` reads it",
        ) from None
    with os.fdopen(fd, "w") as file:
        file.write(TEMPLATE)
