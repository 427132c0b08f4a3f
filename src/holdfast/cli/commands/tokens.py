"""`holdfast tokens add | list | revoke`: who may use HTTP, as which person, with which scopes."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, looking_service, making_service, run
from holdfast.errors import Refused, Unusable

if TYPE_CHECKING:
    from holdfast.gateway.server.tokens import TokenReport

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhdw])\Z")


def register(app: typer.Typer) -> None:
    tokens = group(
        "tokens",
        "Tokens for the gateway: each speaks for one person, within its scopes and audience.",
        example="holdfast tokens list\nholdfast tokens add laptop --as alice --scopes read,send",
    )
    app.add_typer(tokens)

    @command(
        tokens,
        "add",
        example="holdfast tokens add alice-laptop --as alice --scopes read,send,approve --expires "
        "30d",
    )
    def add(
        ctx: typer.Context,
        name: Annotated[
            str,
            typer.Argument(metavar="NAME", help="Its name, for lists and for revoking."),
        ],
        as_: Annotated[str, typer.Option("--as", metavar="WHO", help="The person it speaks for.")],
        scopes: Annotated[
            str, typer.Option("--scopes", metavar="S,S", help="Any of read, send, approve, admin.")
        ],
        audience: Annotated[
            str,
            typer.Option(
                "--audience",
                metavar="A",
                help="The reader set it speaks and reads in: personal, team:NAME or public.",
            ),
        ] = "personal",
        expires: Annotated[
            str | None,
            typer.Option("--expires", metavar="T", help="Such as 12h or 30d. [default: never]"),
        ] = None,
    ) -> None:
        """Make a token and print it, this once: the home keeps only its hash."""
        options = options_of(ctx)
        run(lambda: _add(options, name, as_, scopes, audience, expires))

    @command(tokens, "list", example="holdfast tokens list")
    def list_(ctx: typer.Context) -> None:
        """List every token that is not revoked: whose it is, and what it may do."""
        options = options_of(ctx)
        run(lambda: _list(options))

    @command(tokens, "revoke", example="holdfast tokens revoke alice-laptop")
    def revoke(
        ctx: typer.Context,
        name: Annotated[
            str,
            typer.Argument(
                metavar="NAME", help="The token's name.", autocompletion=completing.tokens
            ),
        ],
    ) -> None:
        """End a token: on its next request, and on live streams within five seconds."""
        options = options_of(ctx)
        run(lambda: _revoke(options, name))


def _until(expires: str | None, now: int) -> int | None:
    if expires is None:
        return None
    if (found := _DURATION.match(expires)) is None:
        raise Unusable(
            f"{expires!r} is not a span of time",
            code="malformed",
            hint="a number and s, m, h, d or w: 30d",
        )
    return now + int(found[1]) * _SECONDS[found[2]] * 1000


async def _add(
    options: Options, name: str, person: str, scopes: str, audience: str, expires: str | None
) -> int:
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.identity import person_named
    from holdfast.gateway.server.tokens import TokenBook, token_report

    require_person("adding a token", home_of(options))
    me = _owner(options)
    person_named(person)
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    async with making_service(options) as service:
        now = service.live.clock_ms()
        book = TokenBook(service.home)
        await service.home.refresh()
        ends = _until(expires, service.home.moment(now).now)
        token, added = await book.add(
            name, person=person, scopes=wanted, audience=audience, expires_at=ends, by=me, now=now
        )
        report = token_report(added, moment=service.home.moment(now))
    if options.out.json:
        options.out.object({"token": token, **_fields(report)})
    else:
        options.out.note(
            f"{name} speaks for {person} ({', '.join(report.scopes)}; {report.audience}). Shown "
            "this once:"
        )
        options.out.verbatim(token)
    return 0


async def _list(options: Options) -> int:
    from holdfast.gateway.server.tokens import TokenBook

    found: tuple[TokenReport, ...] = ()
    async with looking_service(options) as service:
        if service is not None:
            found = await TokenBook(service.home).reports(now=service.live.clock_ms())
    if options.out.json:
        options.out.object({"tokens": found})
    elif not found:
        options.out.text("no tokens")
    else:
        options.out.table(
            ("NAME", "WHO", "SCOPES", "AUDIENCE", "EXPIRES"), [_row(each) for each in found]
        )
    return 0


def _row(token: "TokenReport") -> tuple[str, ...]:
    ends = (
        "never"
        if token.expires_at is None
        else f"{token.expires_at[:16]}{' (over)' if token.expired else ''}"
    )
    return token.name, token.person, ",".join(token.scopes), token.audience, ends


async def _revoke(options: Options, name: str) -> int:
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.id_prefix import whole
    from holdfast.gateway.server.tokens import TokenBook

    require_person("revoking a token", home_of(options))
    me = _owner(options)
    async with looking_service(options) as service:
        if service is None:
            raise Refused(
                f"no token {name!r}",
                code="unknown",
                hint="`holdfast tokens list` shows them",
            )
        book = TokenBook(service.home)
        names = [each.name for each in await book.reports(now=service.live.clock_ms())]
        name = whole(name, names, hint="`holdfast tokens list` shows them")
        await book.revoke(name, by=me)
    options.out.result({"token": name, "revoked": True}, f"{name} is revoked")
    return 0


def _owner(options: Options) -> str:
    """
    Return the home's owner. Only the owner may create tokens, because a token can name any person.
    """
    from holdfast.cli.shared.identity import who

    me = who(home_of(options), None)
    if not me.is_owner:
        raise Refused(
            "only the home's owner may make or revoke tokens", code="no_authority", hint="ask them"
        )
    return me.person


def _fields(report: "TokenReport") -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(report)
    return fields
