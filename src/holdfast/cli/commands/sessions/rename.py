"""`holdfast sessions rename`."""

from typing import Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import RecordedAs, SessionArgument
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, looking_service, run


def register(app: typer.Typer) -> None:
    @command(
        app,
        "rename",
        example='holdfast sessions rename ops/api "Restart of the api"\n'
        'holdfast sessions rename ops/api ""',
    )
    def rename(
        ctx: typer.Context,
        session: SessionArgument,
        title: Annotated[
            str,
            typer.Argument(
                metavar="TITLE", help="Its title in lists. An empty one: the first message again."
            ),
        ],
        as_: RecordedAs = None,
    ) -> None:
        """Give a conversation another title. Its name and its history stay as they are."""
        options = options_of(ctx)
        run(lambda: _rename(options, session, title, as_))


async def _rename(options: Options, session: str, title: str, asserted: str | None) -> int:
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.cli.shared.identity import who
    from holdfast.ids import session_id

    name = session_id(session)
    me = who(home_of(options), asserted)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        name = session_id(await whole_session(service, session))
        kept = await service.rename(name, title, by=me.person, may_all=me.may_all)
    options.out.result({"session": name, "title": kept}, f"{name}: {kept or 'no title'}")
    return 0
