"""`holdfast backup`: a copy of the whole home, made while it is in use."""

from collections.abc import Sequence
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared.options import Options, command, options_of, refuse_blank
from holdfast.cli.shared.service import home_of, no_home, run
from holdfast.errors import Refused, Unusable

if TYPE_CHECKING:
    from holdfast.ids import SessionId


def register(app: typer.Typer) -> None:
    @command(app, "backup", example="holdfast backup /backups/holdfast-2026-11-16")
    def backup(
        ctx: typer.Context,
        folder: Annotated[
            str,
            typer.Argument(
                metavar="DIR",
                help="A folder that is not there yet, or is empty; nothing is written over.",
            ),
        ],
    ) -> None:
        """
        Copy the home to DIR: journals, anchors, keys, settings, quarantine. Consistent while others
        write; every journal in the copy is verified.

        The copy holds the keys: a reader of DIR can write records that verify. Keep it as safe as
        the home itself.
        """
        options = options_of(ctx)
        refuse_blank(folder=folder)
        run(lambda: _backup(options, Path(folder).absolute()))


async def _backup(options: Options, folder: Path) -> int:
    from holdfast.assembly.store import existing_store
    from holdfast.cli.shared.identity import owner_only, who

    home = home_of(options)
    if not who(home, None).is_owner:
        raise owner_only("back it up")
    if _leads_into(folder, home):
        raise Refused(
            f"{folder} is inside the home", code="malformed", hint="name a folder outside of it"
        )
    store = await existing_store(home)
    if store is None:
        raise no_home(home)
    try:
        sessions = await store.backup(folder)
    finally:
        await store.close()
    broken = await _broken(folder, sessions)
    facts = {"backup": str(folder), "sessions": len(sessions), "broken": broken}
    said = (
        f"{len(sessions)} {'session is' if len(sessions) == 1 else 'sessions are'} in {folder},"
        " with the keys"
    )
    options.out.result(
        facts,
        (
            f"{said}; these do not verify, in the home neither: {', '.join(broken)}"
            if broken
            else f"{said}; every journal holds"
        ),
    )
    return 4 if broken else 0


def _leads_into(folder: Path, home: Path) -> bool:
    """
    A link, or a `..`, may lead into the home or out of it. `realpath` ends in a circle of links,
    where `Path.resolve` raises an error.
    """
    return Path(realpath(folder)).is_relative_to(realpath(home))


async def _broken(copy: Path, sessions: "Sequence[SessionId]") -> "list[SessionId]":
    """
    Return the sessions that are broken in the copy, read again from its destination. That may be a
    network filesystem, which is fine: nobody locks a copy, and a restore creates a home elsewhere.
    """
    from holdfast.assembly.store import existing_store
    from holdfast.settings import Settings

    store = await existing_store(copy, Settings(allow_network_filesystem=True))
    if store is None:
        raise Unusable(
            f"{copy} was written and can't be read again", code="no_backup", hint="look at the disk"
        )
    try:
        verdicts = [await store.verify_session(each) for each in sessions]
    finally:
        await store.close()
    return [
        verdict.session for verdict in verdicts if verdict.verdict not in ("holds", "torn_tail")
    ]
