"""`holdfast sessions unseal`: a person decides that a sealed session continues."""

from typing import Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import SessionArgument
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import driving_service, home_of, run
from holdfast.errors import Refused


def register(app: typer.Typer) -> None:
    @command(
        app,
        "unseal",
        example="holdfast verify ops/api\nholdfast sessions unseal ops/api --reason 'an editor "
        "saved over the file'",
    )
    def unseal(
        ctx: typer.Context,
        session: SessionArgument,
        reason: Annotated[
            str, typer.Option("--reason", metavar="R", help="Why it may go on; recorded.")
        ] = "no reason given",
        as_: Annotated[
            str | None,
            typer.Option(
                "--as",
                metavar="WHO",
                help="Decide as this person: an assertion by the home's owner.",
            ),
        ] = None,
    ) -> None:
        """
        Go on with a sealed session from its last record that verifies, in a new life. Only the
        home's owner may.

        Nothing owed is carried over: what had started is in doubt, prompts are voided, queued
        messages are listed but not run. The old bytes stay.
        """
        options = options_of(ctx)
        run(lambda: _unseal(options, session, reason, as_))


async def _unseal(options: Options, session: str, reason: str, asserted: str | None) -> int:
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.identity import who
    from holdfast.ids import session_id
    from holdfast.runtime.lifecycle.instances import begun_beyond, unseal

    require_person("unsealing a session", home_of(options))
    name = session_id(session)
    me = who(home_of(options), asserted)
    async with driving_service(options) as service:
        if service is None:
            raise unknown(name)
        if not me.is_owner:
            raise Refused(f"only the home's owner may unseal {name}", code="no_authority")
        begun = await begun_beyond(service, name)
        report = await unseal(service, name, by=me.person, reason=reason)
    for each in begun:
        options.out.note(each)
    said = f"{name} goes on in a new life, from its last record that verified; {report.turns} turns are in it and nothing is owed"
    options.out.result(report, said)
    return 0
