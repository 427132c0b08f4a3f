"""`holdfast resume`: drive the work that a crash left owed."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.output.exit_codes import exit_code_of_several
from holdfast.cli.shared.arguments import acting_as, one_session
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import driving_service, home_of, run
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.ids import SessionId
    from holdfast.runtime.reports.lock_budget import LockWaitBudget
    from holdfast.runtime.service import Service


def register(app: typer.Typer) -> None:
    @command(app, "resume", example="holdfast resume\nholdfast resume ops/api --model demo")
    def resume(
        ctx: typer.Context,
        session: Annotated[
            str | None, one_session("Only this one. [default: every session that owes]")
        ] = None,
        model: Annotated[
            str | None,
            typer.Option(
                "--model",
                metavar="M",
                help="Go on with this model; without SESSION, only where a turn's own can't be "
                "had.",
            ),
        ] = None,
        as_: Annotated[
            str | None, acting_as("Record this person as the one who chose --model")
        ] = None,
    ) -> None:
        """
        Continue turns that a crash or an answer elsewhere left open, and fire due reminders.

        Prints each session that it drove, by the turn that went worst. Exits 0 if nothing was left
        to do, else as `send` does: the gravest code of all sessions.
        """
        options = options_of(ctx)
        run(lambda: _resume(options, session, model, as_))


async def _resume(
    options: Options, session: str | None, model: str | None, asserted: str | None
) -> int:
    from holdfast.cli.shared.id_prefix import existing_session
    from holdfast.cli.shared.identity import who
    from holdfast.ids import session_id

    options.speaks_as = asserted
    name = session_id(session) if session is not None else None
    async with driving_service(options) as service:
        if service is None:
            if name is not None:
                raise unknown(name)
            return 0
        by = who(home_of(options), asserted).person
        if session is not None:
            name = session_id(await existing_session(service, session))
            if not options.out.json and name not in await service.owing_heads(service.patience()):
                options.out.note(f"nothing was left to run in {name}; its last turn:")
            return await _one(options, service, name, model, by, None)
        patience = service.patience()
        owing = await service.owing_heads(patience)
        codes = [
            await _one_of_several(options, service, patience, each, model, by, owing.get(each))
            for each in {**owing, **patience.found}
        ]
    if not codes and not options.out.json:
        options.out.note("nothing was left to run")
    return exit_code_of_several(codes)


async def _one_of_several(
    options: Options,
    service: "Service",
    patience: "LockWaitBudget",
    session: "SessionId",
    model: str | None,
    by: str,
    since: int | None,
) -> int:
    """
    Drive one session. The others do not wait for a locked one, whose holder may be stopped: it is
    reported, and its work stays owed.
    """
    from holdfast.cli.output.turn_output import print_turn_error

    if not options.out.json:
        options.out.note(f"{session}:")
    if (busy := await patience.busy(session)) is not None:
        return print_turn_error(options, session, busy)
    return await _one(options, service, session, model, by, since)


async def _one(
    options: Options,
    service: "Service",
    session: str,
    model: str | None,
    by: str,
    since: int | None,
) -> int:
    from holdfast.cli.output.turn_output import (
        print_turn,
        print_turn_error,
        tell_doubts,
        waits_shown,
    )
    from holdfast.ids import session_id

    try:
        async with waits_shown(options, service, session_id(session)):
            turn = await service.resume(session, by=by, model=model, since=since)
    except HoldfastError as exc:
        return print_turn_error(options, session, exc)
    await tell_doubts(options, service, turn)
    return print_turn(options, turn)
