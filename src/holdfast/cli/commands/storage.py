"""`holdfast storage`: make, upgrade and inspect a home in a PostgreSQL database."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, run

if TYPE_CHECKING:
    from holdfast.adapters.postgres.server import DatabaseAddress


def register(app: typer.Typer) -> None:
    storage = group(
        "storage",
        "A home in PostgreSQL: make it, upgrade it, look at it.",
        example="holdfast storage init\nholdfast storage status",
    )
    app.add_typer(storage)

    @command(storage, "init", example="holdfast --home /var/lib/holdfast storage init")
    def init(
        ctx: typer.Context,
        create_roles: Annotated[
            bool, typer.Option("--create-roles", help="Also make the role that a node needs.")
        ] = False,
    ) -> None:
        """
        Make a home in the database that `[storage] url` names, and this node's key.

        Running it again is safe: it does what is missing and keeps what is there.
        """
        options = options_of(ctx)
        run(lambda: _init(options, create_roles))

    @command(storage, "migrate", example="holdfast storage migrate")
    def migrate(ctx: typer.Context) -> None:
        """Bring the schema to the version of this program. Stop the node's processes before."""
        options = options_of(ctx)
        run(lambda: _migrate(options))

    @command(storage, "status", example="holdfast storage status\nholdfast --json storage status")
    def status(ctx: typer.Context) -> None:
        """Say where the home is, which version it has and whether the server keeps promises."""
        options = options_of(ctx)
        run(lambda: _status(options))

    @command(storage, "sql", example="holdfast storage sql | less")
    def sql(ctx: typer.Context) -> None:
        """Print the SQL that `init` and `migrate` run. Connects to nothing."""
        options = options_of(ctx)
        run(lambda: _sql(options))


def _place(options: Options) -> "DatabaseAddress":
    from holdfast.assembly.store import place_named

    return place_named(home_of(options))


async def _init(options: Options, roles: bool) -> int:
    import asyncio

    from holdfast.adapters.postgres.home.create import create_roles, init_home

    place, home = _place(options), home_of(options)
    made = await asyncio.to_thread(init_home, place, home)
    said = (
        f"made a home in {place.name}; back up {home / 'keys'}, and keep it apart from the database"
        if made.is_new
        else f"{place.name} has a home already; {home} is a new node of it"
        if made.is_new_node
        else f"{place.name} has a home already"
        if made.is_node
        else f"{place.name} has a home already; copy keys/ from one of its nodes to {home}, then "
        "run this again"
    )
    role = await asyncio.to_thread(create_roles, place) if roles else None
    if role is not None:
        said += (
            f'\nthe role is {role}; in psql: grant "{role}" to LOGIN; then name that login in '
            "[storage] url of each node"
        )
    options.out.result(
        {
            "store": place.name,
            "made": made.is_new,
            "new_node": made.is_new_node,
            "node": made.is_node,
            "migrations": list(made.migrations),
            "role": role,
        },
        said,
    )
    return 0


async def _migrate(options: Options) -> int:
    import asyncio

    from holdfast.adapters.postgres import schema
    from holdfast.adapters.postgres.server import connect
    from holdfast.adapters.postgres.server_facts import check_server

    place = _place(options)

    def work() -> list[str]:
        wire = connect(place)
        try:
            check_server(wire)
            if schema.version(wire, place.schema) == 0:
                schema.check_version(wire, place.schema)
            return schema.migrate(wire, place.schema)
        finally:
            wire.close()

    applied = await asyncio.to_thread(work)
    options.out.result(
        {"store": place.name, "migrations": applied},
        f"applied {', '.join(applied)}" if applied else "nothing to do",
    )
    return 0


async def _status(options: Options) -> int:
    import asyncio

    from holdfast.adapters.postgres.status import database_facts

    found = await asyncio.to_thread(database_facts, _place(options))
    lines = [f"{name}: {_word(value)}" for name, value in found.items() if value is not None]
    if not found["schema_version"]:
        lines.append("this schema has no home yet; `holdfast storage init` makes one")
    options.out.result(found, "\n".join(lines))
    return 0


def _word(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


async def _sql(options: Options) -> int:
    from holdfast.adapters.postgres.schema import sql_text

    text = sql_text(_place(options).schema)
    if options.out.json:
        options.out.object({"sql": text})
    else:
        options.out.verbatim(text)
    return 0
