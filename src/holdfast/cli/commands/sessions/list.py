"""`holdfast sessions list`."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import looking_service, run

if TYPE_CHECKING:
    from holdfast.runtime.reports.session_list import SessionLine


def register(app: typer.Typer) -> None:
    @command(
        app,
        "list",
        example="holdfast sessions list\nholdfast sessions list --limit 50 --after ops/api",
    )
    def list_(
        ctx: typer.Context,
        limit: Annotated[
            int | None,
            typer.Option(
                "--limit", metavar="N", min=1, help="One page of at most so many. [default: all]"
            ),
        ] = None,
        after: Annotated[
            str | None,
            typer.Option(
                "--after", metavar="SESSION", help="Those that come after this one, by name."
            ),
        ] = None,
    ) -> None:
        """List every session by name, with its state and what waits in it."""
        options = options_of(ctx)
        run(lambda: _list(options, limit, after))


async def _list(options: Options, limit: int | None, after: str | None) -> int:
    from holdfast.ids import session_id

    start = session_id(after) if after is not None else None
    async with looking_service(options) as service:
        found = await service.sessions(after=start, limit=limit) if service is not None else ()
    if options.out.json:
        options.out.object({"sessions": found})
    elif not found:
        options.out.text("no sessions")
    else:
        options.out.table(
            ("SESSION", "TITLE", "STATE", "RECORDS", "TURNS", "WAITING"),
            [_row(each) for each in found],
        )
    return 0


def _row(line: "SessionLine") -> tuple[str, ...]:
    from holdfast.state_words import owed_words, phase_words

    words = phase_words(line.phase)
    state = (
        f"{words}, owes {owed_words(line.owes)}"
        if line.owes
        else f"sealed ({line.sealed.code})"
        if line.sealed
        else words
    )
    state += f", works for {line.parent}" if line.parent is not None else ""
    state += (
        f", being written by {line.busy.holder} for {line.busy.held_seconds:.0f} s or more"
        if line.busy is not None
        else ""
    )
    counts = str(line.seq), str(line.turns), str(line.waiting)
    return line.session, line.title[:60], state, *counts
