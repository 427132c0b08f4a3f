"""`holdfast sessions fork`: a copy up to the end of a turn, under another name."""

from typing import Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import driving_service, home_of, run


def register(app: typer.Typer) -> None:
    @command(app, "fork", example="holdfast sessions fork ops/api ops/api-again --at 42")
    def fork(
        ctx: typer.Context,
        session: Annotated[
            str,
            typer.Argument(
                metavar="SESSION", help="What to copy.", autocompletion=completing.sessions
            ),
        ],
        into: Annotated[
            str | None,
            typer.Argument(
                metavar="[NEW]", help="What the copy is called. [default: SESSION-fork-SEQ]"
            ),
        ] = None,
        at: Annotated[
            int, typer.Option("--at", metavar="SEQ", help="The last record to copy: a turn_ended.")
        ] = ...,  # type: ignore[assignment]
        as_: Annotated[
            str | None,
            typer.Option("--as", metavar="WHO", help="Recorded: an assertion by the home's owner."),
        ] = None,
    ) -> None:
        """
        Copy a session up to the end of a turn. The copy is a life of its own: no consent, no prompt
        and nothing owed comes along.
        """
        options = options_of(ctx)
        run(lambda: _fork(options, session, into, at, as_))


async def _fork(
    options: Options, session: str, into: str | None, at: int, asserted: str | None
) -> int:
    from holdfast.cli.shared.identity import who
    from holdfast.ids import session_id
    from holdfast.runtime.lifecycle.instances import fork

    name = session_id(session)
    target = session_id(into or f"{name}-fork-{at}")
    me = who(home_of(options), asserted)
    async with driving_service(options) as service:
        if service is None:
            raise unknown(name)
        report = await fork(service, name, target, at_seq=at, by=me.person)
    options.out.result(report, f"{target} is a copy of {name} up to record {at}")
    return 0
