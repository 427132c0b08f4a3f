"""
`holdfast sessions unseal` and `quarantine`: a person decides that a sealed session continues, and
reads what could not go into the journal, in every store.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import SessionArgument, acting_as
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import driving_service, home_of, looking_service, run
from holdfast.errors import Refused


def register(app: typer.Typer) -> None:
    @command(
        app,
        "unseal",
        example=(
            "holdfast verify ops/api\nholdfast sessions unseal ops/api --reason 'an editor "
            "saved over the file'"
        ),
    )
    def unseal(
        ctx: typer.Context,
        session: SessionArgument,
        reason: Annotated[
            str, typer.Option("--reason", metavar="R", help="Why it may go on; recorded.")
        ] = "no reason given",
        as_: Annotated[str | None, acting_as("Decide as this person")] = None,
    ) -> None:
        """
        Go on with a sealed session from its last record that verifies, in a new instance. Only the
        home's owner may.

        Nothing owed is carried over: what had started is in doubt, prompts are voided, queued
        messages are listed but not run. The old bytes stay.
        """
        options = options_of(ctx)
        run(lambda: _unseal(options, session, reason, as_))

    @command(
        app,
        "quarantine",
        example="holdfast sessions quarantine ops/api\nholdfast sessions quarantine ops/api 1",
    )
    def quarantine(
        ctx: typer.Context,
        session: SessionArgument,
        number: Annotated[
            int | None,
            typer.Argument(metavar="[N]", help="Which one to print; 1 is the oldest.", min=1),
        ] = None,
    ) -> None:
        """
        List what is in quarantine: replies, outcomes and cut tails that could not be journalled.

        With N, print one of them. An item that was not written with this home's key is refused.
        """
        options = options_of(ctx)
        run(lambda: _quarantine(options, session, number))


async def _unseal(options: Options, session: str, reason: str, asserted: str | None) -> int:
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.cli.shared.identity import owner_only, who
    from holdfast.ids import session_id

    require_person("unsealing a session", home_of(options))
    name = session_id(session)
    me = who(home_of(options), asserted)
    async with driving_service(options) as service:
        if service is None:
            raise unknown(name)
        name = session_id(await whole_session(service, session))
        if not me.is_owner:
            raise owner_only(f"unseal {name}")
        begun = await service.lifecycle.lost_calls(name)
        report = await service.lifecycle.unseal(name, by=me.person, reason=reason)
    for each in begun:
        options.out.note(each)
    said = (
        f"{name} goes on in a new instance, from its last record that verified; {report.turns}"
        " turns are in it and nothing is owed"
    )
    options.out.result(report, said)
    return 0


async def _quarantine(options: Options, session: str, number: int | None) -> int:
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.ids import session_id

    name = session_id(session)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        name = session_id(await whole_session(service, session))
        places = await service.quarantined(name)
        if number is None:
            _list(options, name, places)
            return 0
        if number > len(places):
            raise Refused(
                f"{name} has {len(places)} items in quarantine, and no item {number}",
                code="unknown",
                hint=f"`holdfast sessions quarantine {name}` lists them",
            )
        kind, data = await service.read_quarantined(name, places[number - 1])
    text = data.decode("utf-8", errors="backslashreplace")
    if options.out.json:
        options.out.object({"place": places[number - 1], "kind": kind, "text": text})
    else:
        options.out.verbatim(text)
    return 0


def _list(options: Options, name: str, places: Sequence[str]) -> None:
    if options.out.json:
        options.out.object({"session": name, "quarantine": places})
    elif not places:
        options.out.text("nothing is in quarantine")
    else:
        rows = [(str(number), place) for number, place in enumerate(places, 1)]
        options.out.table(("N", "PLACE"), rows)
