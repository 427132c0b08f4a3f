"""`holdfast sessions list`."""

from typing import TYPE_CHECKING

import typer

from holdfast.cli.options import Options, command, options_of
from holdfast.cli.running import looking_service, run

if TYPE_CHECKING:
    from holdfast.runtime.listing import SessionLine


def register(app: typer.Typer) -> None:
    @command(app, "list", example="holdfast sessions list")
    def list_(ctx: typer.Context) -> None:
        """Every session: where it stands, what waits in it."""
        options = options_of(ctx)
        run(lambda: _list(options))


async def _list(options: Options) -> int:
    async with looking_service(options) as service:
        found = await service.sessions() if service is not None else ()
    if options.out.json:
        options.out.object({"sessions": found})
    elif not found:
        options.out.text("there are no sessions")
    else:
        options.out.table(("SESSION", "PHASE", "RECORDS", "TURNS", "WAITING", "LAST"), [_row(each) for each in found])
    return 0


def _row(line: "SessionLine") -> tuple[str, ...]:
    phase = f"{line.phase}, owes {', '.join(line.owes)}" if line.owes else f"sealed ({line.sealed.code})" if line.sealed else line.phase
    return line.session, phase, str(line.seq), str(line.turns), str(line.waiting), line.preview[:60]
