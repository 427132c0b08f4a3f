"""`holdfast sessions search`: find words in messages and replies."""

from typing import Annotated

import typer

from holdfast.cli.shared.arguments import acting_as
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, looking_service, run


def register(app: typer.Typer) -> None:
    @command(
        app,
        "search",
        example="holdfast sessions search 'old branch'\nholdfast sessions search deploy --limit 50 "
        "--as bob",
    )
    def search(
        ctx: typer.Context,
        text: Annotated[
            str,
            typer.Argument(
                metavar="TEXT", help="Words; all of them must be in one message or reply."
            ),
        ],
        limit: Annotated[
            int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many at most.")
        ] = 20,
        after: Annotated[
            str | None,
            typer.Option(
                "--after", metavar="CURSOR", help="Go on after an earlier page: its `next`."
            ),
        ] = None,
        as_: Annotated[str | None, acting_as("Show what this person may see")] = None,
    ) -> None:
        """
        Find messages and replies, the newest first.

        The home's owner finds everything. Other people, and the person of `--as`, find messages of
        their own reader sets.
        """
        options = options_of(ctx)
        run(lambda: _search(options, text, limit, after, as_))


async def _search(
    options: Options, text: str, limit: int, after: str | None, asserted: str | None
) -> int:
    from holdfast.cli.shared.identity import who
    from holdfast.runtime.reports.search import SearchReport

    me = who(home_of(options), asserted)
    async with looking_service(options) as service:
        if service is None:
            report = SearchReport(hits=(), next=None)
        else:
            report = await service.search(
                text, person=None if me.may_all else me.person, limit=limit, after=after
            )
    if options.out.json:
        options.out.object(report)
    elif not report.hits:
        options.out.text("nothing was found")
    else:
        rows = [
            (each.session, each.turn, each.at[:16], each.who or each.kind, each.snippet)
            for each in report.hits
        ]
        options.out.table(("SESSION", "TURN", "WHEN", "WHO", "TEXT"), rows)
        if report.next is not None:
            options.out.note(f"there is more: --after {report.next}")
    return 0
