"""`holdfast sessions delete`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import RecordedAs, SessionArgument
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, looking_service, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.ids import SessionId
    from holdfast.runtime.service import Service


def register(app: typer.Typer) -> None:
    @command(app, "delete", example="holdfast sessions delete ops/api --yes")
    def delete(
        ctx: typer.Context,
        session: SessionArgument,
        yes: Annotated[
            bool,
            typer.Option("--yes", help="Don't ask; without a terminal nobody is asked anyway."),
        ] = False,
        as_: RecordedAs = None,
    ) -> None:
        """
        Delete a session and its journal for good. Its prompts can't be answered any more; a
        new session of that name is another one. With --yes the name must be whole.

        Only that it was deleted, when and by whom stays, in the home's journal.
        """
        options = options_of(ctx)
        asks = not yes and not options.out.json and sys.stdin is not None and sys.stdin.isatty()
        run(lambda: _delete(options, session, as_, asks=asks))


async def _delete(options: Options, session: str, asserted: str | None, *, asks: bool) -> int:
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.cli.shared.identity import owner_only, who
    from holdfast.ids import session_id

    name = session_id(session)
    me = who(home_of(options), asserted)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        if not me.is_owner:
            raise owner_only(f"delete {name}")
        if asks:
            name = session_id(await whole_session(service, session))
            if not typer.confirm(f"Delete {name} and its whole history?", default=False, err=True):
                raise Refused(
                    f"{name} was not deleted",
                    code="declined",
                    hint="run it again and answer y, or give --yes",
                )
        await _delete_named(service, name, by=me.person)
    options.out.result({"session": name, "deleted": True}, f"{name} is deleted")
    return 0


async def _delete_named(service: "Service", name: "SessionId", *, by: str) -> None:
    """
    Delete exactly this session. A script that deletes the same name twice must not delete another
    session whose name begins with it.
    """
    from holdfast.cli.shared.id_prefix import whole_session

    try:
        await service.lifecycle.delete(name, by=by)
    except Refused as exc:
        if exc.code != "unknown" or (whole := await whole_session(service, name)) == name:
            raise
        raise Refused(
            f"no session {name}; {whole} begins with it, and nothing was deleted",
            code="unknown",
            hint=f"`holdfast sessions delete {whole} --yes` deletes that one",
        ) from exc
