"""`holdfast grants list | revoke`: remembered approvals."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.arguments import acting_as, id_argument
from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, looking_service, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.runtime.reports.grants import GrantReport


def register(app: typer.Typer) -> None:
    grants = group(
        "grants",
        "Standing approvals: calls that run without asking again.",
        example="holdfast grants list\nholdfast grants revoke g-7kq2",
    )
    app.add_typer(grants)

    @command(grants, "list", example="holdfast grants list")
    def list_(ctx: typer.Context) -> None:
        """List every grant: what it covers, who gave it, and when it ends."""
        options = options_of(ctx)
        run(lambda: _list(options))

    @command(grants, "revoke", example="holdfast grants revoke g-7kq2c5x3jz4mw6n8p9r0s1t2vb")
    def revoke(
        ctx: typer.Context,
        grant: Annotated[
            str,
            id_argument("grant", completing.grants),
        ],
        as_: Annotated[str | None, acting_as("Revoke as this person")] = None,
    ) -> None:
        """
        Revoke a grant: its calls ask again, also those that already wait. Its requester, its giver
        and the home's owner may revoke it.
        """
        options = options_of(ctx)
        run(lambda: _revoke(options, grant, as_))


async def _list(options: Options) -> int:
    async with looking_service(options) as service:
        found = await service.grants() if service is not None else ()
    if options.out.json:
        options.out.object({"grants": found})
    elif not found:
        options.out.text("No standing approvals: every call that must ask, asks.")
    else:
        options.out.text("\n\n".join(grant_text(options, each) for each in found))
    return 0


def grant_text(options: Options, grant: "GrantReport") -> str:
    """Say what the grant covers, who gave it, when it ends, who may revoke it and how."""
    may = " or ".join(dict.fromkeys(filter(None, (grant.requester, grant.granted_by))))
    return "\n".join(
        [
            grant.id,
            "  covers    " + grant.covers.replace("\n", "\n            "),
            f"  given by  {grant.granted_by or 'nobody known'}, {grant.granted_at[:16]}Z",
            f"  ends      {grant.expires_at[:16]}Z",
            f"  revoke    {may} or the home's owner:",
            f"  $ {options.typed(f'grants revoke {grant.id}')}",
        ]
    )


async def _revoke(options: Options, grant: str, asserted: str | None) -> int:
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.id_prefix import whole_grant
    from holdfast.cli.shared.identity import who
    from holdfast.ids import GrantId

    require_person("revoking a grant", home_of(options))
    me = who(home_of(options), asserted)
    async with looking_service(options) as service:
        if service is None:
            raise Refused(
                f"no grant {grant}",
                code="unknown",
                hint="`holdfast grants list` shows them",
            )
        grant = await whole_grant(service, grant)
        await service.revoke(GrantId(grant), by=me.person, may_all=me.may_all)
    options.out.result(
        {"grant": grant, "revoked": True}, f"{grant} is revoked. Its calls ask again."
    )
    return 0
