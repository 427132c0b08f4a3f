"""`holdfast sessions cancel`."""

from typing import Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import SessionArgument, acting_as
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import driving_service, home_of, run


def register(app: typer.Typer) -> None:
    @command(
        app,
        "cancel",
        example="holdfast sessions cancel ops/api\nholdfast sessions cancel ops/api --turn t3",
    )
    def cancel(
        ctx: typer.Context,
        session: SessionArgument,
        turn: Annotated[
            str | None,
            typer.Option("--turn", metavar="T", help="Only this turn. [default: every open one]"),
        ] = None,
        as_: Annotated[str | None, acting_as("Cancel as this person")] = None,
    ) -> None:
        """
        Stop what runs or waits, durably; with --turn also a message that is still queued.

        Calls that have not started never will; one that has started ends with its real outcome, or
        in doubt. Exits 0 also when nothing was open.
        """
        options = options_of(ctx)
        run(lambda: _cancel(options, session, turn, as_))


async def _cancel(options: Options, session: str, turn: str | None, asserted: str | None) -> int:
    from holdfast.cli.output.turn_output import tell_doubts
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.cli.shared.identity import who
    from holdfast.ids import TurnId, session_id

    name = session_id(session)
    me = who(home_of(options), asserted)
    async with driving_service(options) as service:
        if service is None:
            raise unknown(name)
        name = session_id(await whole_session(service, session))
        found = await service.cancel(
            name, by=me.person, turn=TurnId(turn) if turn is not None else None, may_all=me.may_all
        )
        if open_ := [
            each.turn for each in found if each.turn is not None and each.outcome == "running"
        ]:
            # Their driver sees the cancellation at once. If it has died, this process drives.
            await service.drive_all(
                name, until=lambda state: all(state.find_turn(each) is None for each in open_)
            )
            found = tuple(
                [await service.turn(name, each.turn) for each in found if each.turn is not None]
            )
        await service.drive_above(name)
        for each in found:
            await tell_doubts(options, service, each)
    said = "\n".join(f"{each.turn} is {each.outcome}" for each in found) or (
        "nothing was open" if turn is None else f"{turn} is not open: nothing to cancel"
    )
    options.out.result({"session": name, "turns": found}, said)
    return 0
