"""`holdfast restore`: a home from a backup."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared.options import Options, command, options_of, refuse_blank
from holdfast.cli.shared.service import home_of, run
from holdfast.errors import Unusable

if TYPE_CHECKING:
    from holdfast.runtime.ledger.home_authority import Dropped
    from holdfast.session.home.events import GrantProposed, TokenAdded


def register(app: typer.Typer) -> None:
    @command(
        app, "restore", example="holdfast --home ~/.holdfast restore /backups/holdfast-2026-11-16"
    )
    def restore(
        ctx: typer.Context,
        folder: Annotated[
            str, typer.Argument(metavar="DIR", help="The folder that `holdfast backup` made.")
        ],
        keep: Annotated[
            bool,
            typer.Option(
                "--keep", help="Ask for each token and grant whether it goes on; needs a terminal."
            ),
        ] = False,
    ) -> None:
        """
        Make the home from a backup. A home that is there already is refused; move it away first.

        Nothing that was owed runs again: each session goes on in a new instance, calls that had
        started are in doubt, prompts are voided, queued messages and deliveries are listed but not
        run. Sealed sessions stay sealed.

        A backup does not know what was revoked after it was made. So every token and grant is
        dropped and listed; give those anew that are still wanted.
        """
        options = options_of(ctx)
        refuse_blank(folder=folder)
        run(lambda: _restore(options, Path(folder).absolute(), keep))


async def _restore(options: Options, folder: Path, keep: bool) -> int:
    from holdfast.assembly.restore import restore_home
    from holdfast.cli.shared.identity import refuse_tools, who

    refuse_tools("restoring a home")
    home = home_of(options)
    if keep:
        _refuse_without_terminal(options)
    sessions, dropped = await restore_home(
        folder, home, by=who(home, None).person, keep=_ask if keep else None
    )
    facts = {"home": str(home), "sessions": sessions, "dropped": dropped}
    count = len(sessions)
    begun = "1 session has" if count == 1 else f"{count} sessions have"
    said = f"{home} is restored; {begun} a new instance, and nothing is owed"
    options.out.result(facts, "\n".join([said, *dropped_lines(dropped)]))
    return 0


def _refuse_without_terminal(options: Options) -> None:
    if options.out.json or sys.stdin is None or not sys.stdin.isatty():
        raise Unusable(
            "`--keep` asks a person for each token and grant, and there is no terminal here; "
            "nothing was restored",
            code="no_terminal",
            hint=(
                "restore without --keep, which drops and lists them all; then `holdfast tokens "
                "add` those that are still wanted"
            ),
        )


async def _ask(item: "TokenAdded | GrantProposed") -> bool:
    from holdfast.cli.output.terminal import printable
    from holdfast.session.home.events import TokenAdded

    if isinstance(item, TokenAdded):
        what = f"token {item.name} of {item.person} ({', '.join(item.scopes)}; {item.audience})"
    else:
        what = (
            f"grant {item.grant} of {item.requester}: {item.tool} {item.arguments} ({item.scope})"
        )
    return typer.confirm(f"Keep the {printable(what)}?", default=False, err=True)


def dropped_lines(dropped: "Dropped") -> list[str]:
    """
    Return one line for each dropped item, so that the reader can create the wanted ones again.
    """
    lines = [
        f"dropped: token {each.name} of {each.person} ({', '.join(each.scopes)})"
        for each in dropped.tokens
    ]
    return lines + [
        f"dropped: grant {each.grant} of {each.requester}: {each.tool} ({each.scope})"
        for each in dropped.grants
    ]
