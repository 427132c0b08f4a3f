"""`holdfast sessions delete`."""

import sys
from typing import Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import SessionArgument
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, looking_service, run
from holdfast.errors import Refused


def register(app: typer.Typer) -> None:
    @command(app, "delete", example="holdfast sessions delete ops/api --yes")
    def delete(
        ctx: typer.Context,
        session: SessionArgument,
        yes: Annotated[
            bool,
            typer.Option("--yes", help="Don't ask; without a terminal nobody is asked anyway."),
        ] = False,
        as_: Annotated[
            str | None,
            typer.Option("--as", metavar="WHO", help="Recorded: an assertion by the home's owner."),
        ] = None,
    ) -> None:
        """
        Delete a session and its journal for good. What waits in it can't be answered any more; a
        new session of that name is another one.

        Only that it was deleted, when and by whom stays, in the home's journal.
        """
        options = options_of(ctx)
        asks = not yes and not options.out.json and sys.stdin is not None and sys.stdin.isatty()
        if asks and not typer.confirm(
            f"Delete {session} and its whole history?", default=False, err=True
        ):
            raise Refused(f"{session} was not deleted", code="declined")
        run(lambda: _delete(options, session, as_))


async def _delete(options: Options, session: str, asserted: str | None) -> int:
    from holdfast.cli.shared.identity import who
    from holdfast.ids import session_id
    from holdfast.runtime.lifecycle import instances as lives

    name = session_id(session)
    me = who(home_of(options), asserted)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        if not me.is_owner:
            raise Refused(f"only the home's owner may delete {name}", code="no_authority")
        await lives.delete(service, name, by=me.person)
    options.out.result({"session": name, "deleted": True}, f"{name} is deleted")
    return 0
