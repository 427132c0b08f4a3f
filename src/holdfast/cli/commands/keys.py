"""`holdfast keys rotate`: a new key, used from each session's next segment on."""

import typer

from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, no_home, run


def register(app: typer.Typer) -> None:
    keys = group("keys", "The keys that journals are sealed with.", example="holdfast keys rotate")
    app.add_typer(keys)

    @command(keys, "rotate", example="holdfast keys rotate")
    def rotate(ctx: typer.Context) -> None:
        """
        Make a new key generation: each session uses it from its next segment on.

        A segment that is open now goes on under the key it began with.

        Older keys stay, and stay needed: they verify what was written under them.
        """
        options = options_of(ctx)
        run(lambda: _rotate(options))


async def _rotate(options: Options) -> int:
    from holdfast.assembly.store import existing_store
    from holdfast.cli.shared.identity import who

    home = home_of(options)
    me = who(home, None)
    store = await existing_store(home)
    if store is None:
        raise no_home(home)
    try:
        generation = await store.rotate_keys(by=me.person)
    finally:
        await store.close()
    options.out.result(
        {"generation": generation},
        f"generation {generation} seals each session from its next segment on; back up "
        f"{home / 'keys'}",
    )
    return 0
