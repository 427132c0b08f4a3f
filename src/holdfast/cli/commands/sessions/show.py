"""`holdfast sessions show`."""

from typing import TYPE_CHECKING

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import SessionArgument
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import looking_service, run

if TYPE_CHECKING:
    from holdfast.runtime.reports.types import ApprovalReport, SessionReport


def register(app: typer.Typer) -> None:
    @command(app, "show", example="holdfast sessions show ops/api")
    def show(
        ctx: typer.Context,
        session: SessionArgument,
    ) -> None:
        """
        Show one session: its state, what waits in it, where its journal is, and why it is sealed.
        """
        options = options_of(ctx)
        run(lambda: _show(options, session))


async def _show(options: Options, session: str) -> int:
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.ids import session_id

    name = session_id(session)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        report = await service.show(await whole_session(service, session))
        waiting = [each for each in await service.approvals() if each.session == report.session]
    options.out.result(report, _text(options, report, waiting))
    return 0


def _text(options: Options, report: "SessionReport", waiting: "list[ApprovalReport]") -> str:
    from holdfast.cli.output.prompt_text import next_step
    from holdfast.cli.output.usage_text import usage_text
    from holdfast.state_words import phase_words

    facts = [
        ("session", report.session),
        ("title", report.title),
        ("instance", report.instance),
        ("state", phase_words(report.phase)),
        ("records", str(report.seq)),
        ("turns", str(report.turns)),
        ("queued", str(report.queued)),
        ("parked", ", ".join(report.parked)),
        *(("waiting", f"{each.tool} ({each.id}): {next_step(options, each)}") for each in waiting),
        (
            "expired",
            (
                f"{report.expired} not answered in time; `holdfast resume {report.session}` goes on"
                " without"
                if report.expired
                else ""
            ),
        ),
        ("owes", _owed_text(options, report)),
        ("retry", _retry_text(report)),
        *(
            (
                "job",
                f"{job.id} {job.tool}, since {job.submitted_at}"
                + (", asked to end" if job.cancelled_by else ""),
            )
            for job in report.jobs
        ),
        ("agent", f"{report.agent} ({report.model})" if report.agent else ""),
        ("usage", usage_text(report.usage) or "no tokens reported"),
        *_facts_of_delegates(report),
        ("sealed", f"{report.sealed.code}: {report.sealed.detail}" if report.sealed else ""),
        *_facts_of_memory_and_reminders(report),
        *(("journal", path) for path in report.journal),
        *(("quarantine", path) for path in report.quarantine),
    ]
    return "\n".join(f"{name.ljust(10)}  {value}" for name, value in facts if value)


def _owed_text(options: Options, report: "SessionReport") -> str:
    """Name the owed work. Whether a process is at work on it cannot be read from the journal."""
    from holdfast.state_words import owed_words

    if not report.owes:
        return ""
    resume = options.typed(f"resume {report.session}")
    return f"{owed_words(report.owes)}; where no process does it, `{resume}` does"


def _facts_of_delegates(report: "SessionReport") -> list[tuple[str, str]]:
    return [
        (
            "works for",
            (
                f"{report.parent.session}, {report.parent.turn} ({' > '.join(report.parent.path)})"
                if report.parent
                else ""
            ),
        ),
        *(
            (
                "delegate",
                (
                    f"{each.session} ({each.agent}, {each.turn}): "
                    f"{each.outcome or 'at work, or waits'}"
                ),
            )
            for each in report.delegates
        ),
    ]


def _facts_of_memory_and_reminders(report: "SessionReport") -> list[tuple[str, str]]:
    from holdfast.cli.output.prompt_text import local_time

    return [
        *(
            (
                "memory",
                f"{each.turn}: {', '.join(each.items) or 'nothing'}"
                + (f" ({each.degraded})" if each.degraded else ""),
            )
            for each in report.memory
        ),
        *(
            ("reminder", f"{each.id}, next {local_time(each.next_at)}, {each.when}: {each.text}")
            for each in report.reminders
        ),
    ]


def _retry_text(report: "SessionReport") -> str:
    retry = report.retry
    if retry is None:
        return ""
    from holdfast.cli.output.prompt_text import local_time
    from holdfast.cli.output.turn_output import failure_words

    tries = "1 try" if retry.tries == 1 else f"{retry.tries} tries"
    return (
        f"{failure_words(retry.kind)}, {tries} since {local_time(retry.since)}. The next try is at "
        f"{local_time(retry.next_at)}. `holdfast sessions cancel {report.session}` stops it."
    )
