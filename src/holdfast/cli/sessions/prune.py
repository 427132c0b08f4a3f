"""`holdfast sessions prune`: let go of what `[retention]` says is old enough."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Options, command, options_of
from holdfast.cli.running import home_of, looking_service, run
from holdfast.errors import HoldfastError, Refused

if TYPE_CHECKING:
    from holdfast.ids import SessionId
    from holdfast.runtime.service import Service
    from holdfast.session.state import SessionState


def register(app: typer.Typer) -> None:
    @command(app, "prune", example="holdfast sessions prune --dry-run\nholdfast sessions prune")
    def prune(
        ctx: typer.Context,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
        as_: Annotated[str | None, typer.Option("--as", metavar="WHO", help="Recorded: an assertion by the home's owner.")] = None,
    ) -> None:
        """
        Delete what is older than `[retention]` in holdfast.toml allows: idle sessions, tools' full outputs, quarantined replies. Without that section nothing goes.

        A session goes only when nothing is open, queued, waiting or owed in it, no job runs, no reminder stands, and it is not sealed. Run it from a timer.
        """
        options = options_of(ctx)
        run(lambda: _prune(options, dry_run, as_))


async def _prune(options: Options, dry_run: bool, asserted: str | None) -> int:
    from holdfast.adapters.files.retention import old_outputs, old_quarantine, remove
    from holdfast.cli.identity import who
    from holdfast.settings import load_settings

    home = home_of(options)
    me = who(home, asserted)
    settings = load_settings(home)
    now = time.time()
    async with looking_service(options) as service:
        if service is None:
            options.out.result({"sessions": [], "outputs": 0, "quarantine": 0, "dry_run": dry_run}, "there is no home here")
            return 0
        if not me.is_owner:
            raise Refused("only the home's owner may prune it", code="no_authority")
        keep = settings.retain_sessions_seconds
        sessions = [] if keep is None else await _old_sessions(service, before_ms=int((now - keep) * 1000))
        outputs = [] if settings.retain_outputs_seconds is None else old_outputs(home, before_seconds=now - settings.retain_outputs_seconds)
        aside = [] if settings.retain_quarantine_seconds is None else old_quarantine(home, before_seconds=now - settings.retain_quarantine_seconds)
        if not dry_run:
            for session in sessions:
                await service.world.store.delete(session, by=me.person)
                service.world.index.forget(session)
            remove(outputs)
            remove(aside)
    told = {"sessions": sessions, "outputs": len(outputs), "quarantine": len(aside), "dry_run": dry_run}
    verb = "would go" if dry_run else "are gone"
    options.out.result(told, f"{len(sessions)} sessions, {len(outputs)} outputs and {len(aside)} quarantined files {verb}")
    return 0


async def _old_sessions(service: "Service", *, before_ms: int) -> "list[SessionId]":
    """The index says who may be old; the journal decides."""
    found = []
    for line in await service.sessions():
        try:
            async with service.shelf.use(line.session) as ledger:
                state = ledger.state
                if ledger.journal.sealed is None and _is_idle(state) and state.at < before_ms:
                    found.append(line.session)
        except HoldfastError:
            continue
    return found


def _is_idle(state: "SessionState") -> bool:
    """Nothing of it is under way, to come or owed. A job that runs would lose the session it reports to."""
    from holdfast.session.react import owes_report

    under_way = state.turns or state.queued or state.jobs or state.delegates
    return not (under_way or state.reminders or state.deliveries or owes_report(state))
