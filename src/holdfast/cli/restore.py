"""`holdfast restore`: a home from a backup."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import Options, command, options_of, refuse_blank
from holdfast.cli.running import home_of, run


def register(app: typer.Typer) -> None:
    @command(app, "restore", example="holdfast --home ~/.holdfast restore /backups/holdfast-2026-11-16")
    def restore(
        ctx: typer.Context,
        folder: Annotated[str, typer.Argument(metavar="DIR", help="What `holdfast backup` made.")],
    ) -> None:
        """
        Make the home from a backup. A home that is there already is refused; move it away first.

        Nothing that was owed runs again: each session goes on in a new life, calls that had started are in doubt, prompts are voided, queued messages and deliveries
        are listed but not run, session grants are gone. Sealed sessions stay sealed.
        """
        options = options_of(ctx)
        refuse_blank(folder=folder)
        run(lambda: _restore(options, Path(folder).absolute()))


async def _restore(options: Options, folder: Path) -> int:
    from holdfast.cli.identity import refuse_tools, who
    from holdfast.wiring import restore_home

    refuse_tools("restoring a home")
    home = home_of(options)
    sessions = await restore_home(folder, home, by=who(home, None).person)
    told = {"home": str(home), "sessions": sessions}
    options.out.result(
        told,
        f"{home} is restored; {len(sessions)} {'session goes on in a new life' if len(sessions) == 1 else 'sessions go on in new lives'}, and nothing is owed",
    )
    return 0
