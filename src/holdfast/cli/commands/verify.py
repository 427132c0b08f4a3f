"""
`holdfast verify`: check the journals and report which are intact and where others are broken. It
changes nothing.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, run
from holdfast.errors import Unusable
from holdfast.limits import LOCK_WAIT_SECONDS

if TYPE_CHECKING:
    from holdfast.assembly.store import OpenStore
    from holdfast.ids import SessionId
    from holdfast.journal.verify import Verdict

_FINE = frozenset({"holds", "torn_tail"})
_HOME = "_home"  # the home's own journal: registry, grants, tokens


def register(app: typer.Typer) -> None:
    @command(app, "verify", example="holdfast verify\nholdfast --json verify ops/api")
    def verify(
        ctx: typer.Context,
        sessions: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[SESSION]...",
                help="Only these. [default: all]",
                autocompletion=completing.sessions,
            ),
        ] = None,
    ) -> None:
        """
        Check every record of every journal, and the home's own.

        Exits 0 when all hold and none is sealed (a torn tail is not damage), 4 when one is broken,
        cut short or sealed, 5 when one can't be read.
        """
        options = options_of(ctx)
        run(lambda: _verify(options, sessions or []))


async def _verify(options: Options, wanted: list[str]) -> int:
    from holdfast.ids import SessionId, session_id

    names = [session_id(each) for each in wanted]
    store = await _store(options)
    if store is None:
        if names:
            raise unknown(names[0])
        options.out.result({"sessions": []}, "there is nothing to verify")
        return 0
    try:
        sessions = await store.sessions()
        names = [_whole_name(each, sessions) for each in names]
        home = await store.verify_session(SessionId(_HOME))
        found = await _walked(store, names or sessions)
    finally:
        await store.close()
    if options.out.json:
        options.out.object({"sessions": found, "home": home})
    else:
        _print_result(options, home, found)
    return _exit_code([home, *found])


def _whole_name(given: "SessionId", sessions: "Sequence[SessionId]") -> "SessionId":
    """Return the session with this name, or the only one whose name begins with it."""
    from holdfast.cli.shared.id_prefix import whole
    from holdfast.ids import SessionId

    return SessionId(whole(given, sessions, hint="`holdfast sessions list` shows them"))


async def _walked(store: "OpenStore", names: "Sequence[SessionId]") -> "list[Verdict]":
    """Verify one journal after another. All locked ones together get the waiting time of one."""
    found: list[Verdict] = []
    left_seconds = LOCK_WAIT_SECONDS
    for name in names:
        began = time.monotonic()
        found.append(await store.verify_session(name, wait_seconds=left_seconds))
        if found[-1].verdict == "unreadable":
            left_seconds = max(0.0, left_seconds - (time.monotonic() - began))
    return found


async def _store(options: Options) -> "OpenStore | None":
    """Open the store even if settings are broken: then the strictest settings hold."""
    from holdfast.assembly.store import existing_store
    from holdfast.settings import Settings, SettingsSource

    home = home_of(options)
    try:
        settings = SettingsSource(home).now()
    except Unusable as exc:
        options.out.note(f"settings are not used: {exc.message}")
        settings = Settings()
    return await existing_store(home, settings)


def _print_result(options: Options, home: "Verdict", found: "list[Verdict]") -> None:
    rows = [_row(each) for each in found]
    if home.verdict != "holds" or home.sealed:
        rows.insert(0, _row(home))
    options.out.table(("SESSION", "VERDICT", "RECORDS", "WHERE", "DETAIL"), rows)
    if not rows:
        options.out.text("there is nothing to verify")


def _row(verdict: "Verdict") -> tuple[str, ...]:
    name = "(the home's own)" if verdict.session == _HOME else verdict.session
    where = (
        ""
        if verdict.verdict == "holds" or verdict.segment is None
        else f"{verdict.segment} byte {verdict.byte}, after record {verdict.at_seq}"
    )
    return (
        name,
        f"{verdict.verdict}, sealed" if verdict.sealed else verdict.verdict,
        str(verdict.records),
        where,
        verdict.detail or "",
    )


def _exit_code(verdicts: "list[Verdict]") -> int:
    if all(each.verdict in _FINE and not each.sealed for each in verdicts):
        return 0
    bad = [each for each in verdicts if each.sealed or each.verdict not in _FINE]
    return 5 if all(each.verdict == "unreadable" and not each.sealed for each in bad) else 4
