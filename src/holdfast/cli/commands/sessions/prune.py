"""`holdfast sessions prune`: delete data that is older than `[retention]` allows."""

from typing import Annotated

import typer

from holdfast.cli.shared.arguments import RecordedAs
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, looking_service, run


def register(app: typer.Typer) -> None:
    @command(app, "prune", example="holdfast sessions prune --dry-run\nholdfast sessions prune")
    def prune(
        ctx: typer.Context,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Only count the deletions, and delete nothing.")
        ] = False,
        as_: RecordedAs = None,
    ) -> None:
        """
        Delete what is older than `[retention]` in holdfast.toml allows: idle sessions, tools' full
        outputs, quarantined replies. Without that section nothing goes.

        A session goes only when nothing is open, queued, waiting or owed in it, no job runs, no
        reminder stands, and it is not sealed. `holdfast serve` does the same by itself once a day;
        without it, run this from a timer.
        """
        options = options_of(ctx)
        run(lambda: _prune(options, dry_run, as_))


async def _prune(options: Options, dry_run: bool, asserted: str | None) -> int:
    from holdfast.assembly.retention import prunable, prune
    from holdfast.cli.shared.identity import owner_only, who

    home = home_of(options)
    me = who(home, asserted)
    async with looking_service(options) as service:
        if service is None:
            options.out.result(
                {"sessions": [], "outputs": 0, "quarantine": 0, "dry_run": dry_run},
                "no home here",
            )
            return 0
        if not me.is_owner:
            raise owner_only("prune it")
        found = await prunable(service, home)
        sessions = (
            [each.session for each in found.sessions]
            if dry_run
            else await prune(service, found, by=me.person)
        )
    outputs, quarantined = len(found.outputs), len(found.quarantine)
    facts = {
        "sessions": sessions,
        "outputs": outputs,
        "quarantine": quarantined,
        "dry_run": dry_run,
    }
    verb = "would go" if dry_run else "are gone"
    options.out.result(
        facts,
        f"{len(sessions)} sessions, {outputs} outputs and {quarantined} quarantined files {verb}",
    )
    return 0
