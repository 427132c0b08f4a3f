"""`holdfast grants list | revoke`: remembered approvals."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, looking_service, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.runtime.reports.grants import GrantReport


def register(app: typer.Typer) -> None:
    grants = group("grants", "Remembered approvals: what runs without asking again.")
    app.add_typer(grants)

    @command(grants, "list", example="holdfast grants list")
    def list_(ctx: typer.Context) -> None:
        """Every grant that is not over: what it covers, who gave it, until when."""
        options = options_of(ctx)
        run(lambda: _list(options))

    @command(grants, "revoke", example="holdfast grants revoke g-7kq2c5x3jz4mw6n8p9r0s1t2vb")
    def revoke(
        ctx: typer.Context,
        grant: Annotated[
            str,
            typer.Argument(
                metavar="ID", help="The grant's whole id.", autocompletion=completing.grants
            ),
        ],
        as_: Annotated[
            str | None,
            typer.Option(
                "--as",
                metavar="WHO",
                help="Revoke as this person: an assertion by the home's owner.",
            ),
        ] = None,
    ) -> None:
        """
        Forget a grant: its calls ask again, those that already wait included. Its requester, its
        giver and the home's owner may.
        """
        options = options_of(ctx)
        run(lambda: _revoke(options, grant, as_))


async def _list(options: Options) -> int:
    async with looking_service(options) as service:
        found = await service.grants() if service is not None else ()
    if options.out.json:
        options.out.object({"grants": found})
    elif not found:
        options.out.text("nothing is granted")
    else:
        options.out.table(
            ("ID", "FOR", "GIVEN BY", "SINCE", "UNTIL", "COVERS"), [_row(each) for each in found]
        )
    return 0


def _row(grant: "GrantReport") -> tuple[str, ...]:
    return (
        grant.id,
        grant.requester,
        grant.granted_by or "(nobody)",
        grant.granted_at[:16],
        grant.expires_at[:16],
        grant.covers,
    )


async def _revoke(options: Options, grant: str, asserted: str | None) -> int:
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.identity import who
    from holdfast.ids import GrantId

    require_person("revoking a grant", home_of(options))
    me = who(home_of(options), asserted)
    async with looking_service(options) as service:
        if service is None:
            raise Refused(
                f"there is no grant {grant}",
                code="unknown",
                hint="`holdfast grants list` shows them",
            )
        await service.revoke(GrantId(grant), by=me.person, may_all=me.may_all)
    options.out.result(
        {"grant": grant, "revoked": True}, f"{grant} is revoked; its calls ask again"
    )
    return 0
