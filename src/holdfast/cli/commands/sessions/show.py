"""`holdfast sessions show`."""

from typing import TYPE_CHECKING

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import SessionArgument
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import looking_service, run

if TYPE_CHECKING:
    from holdfast.runtime.reports.types import SessionReport


def register(app: typer.Typer) -> None:
    @command(app, "show", example="holdfast sessions show ops/api")
    def show(
        ctx: typer.Context,
        session: SessionArgument,
    ) -> None:
        """
        One session: where it stands, what it owes, where its journal lies, why it is sealed if it
        is.
        """
        options = options_of(ctx)
        run(lambda: _show(options, session))


async def _show(options: Options, session: str) -> int:
    from holdfast.ids import session_id

    name = session_id(session)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        report = await service.show(name)
    options.out.result(report, _text(report))
    return 0


def _text(report: "SessionReport") -> str:
    facts = [
        ("session", report.session),
        ("instance", report.instance),
        ("phase", report.phase),
        ("records", str(report.seq)),
        ("turns", str(report.turns)),
        ("queued", str(report.queued)),
        ("parked", ", ".join(report.parked)),
        ("waiting", f"{report.waiting} for an answer" if report.waiting else ""),
        (
            "expired",
            f"{report.expired} not answered in time; `holdfast resume {report.session}` goes on "
            "without"
            if report.expired
            else "",
        ),
        ("owes", ", ".join(report.owes)),
        *(
            (
                "job",
                f"{job.id} {job.tool}, since {job.submitted_at}"
                + (", asked to end" if job.cancelled_by else ""),
            )
            for job in report.jobs
        ),
        ("agent", f"{report.agent} ({report.model})" if report.agent else ""),
        ("tokens", f"{report.usage.input_tokens} in, {report.usage.output_tokens} out"),
        (
            "works for",
            f"{report.parent.session}, {report.parent.turn} ({' > '.join(report.parent.path)})"
            if report.parent
            else "",
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
        ("sealed", f"{report.sealed.code}: {report.sealed.detail}" if report.sealed else ""),
        *(
            (
                "memory",
                (
                    f"{each.turn}: "
                    f"{', '.join(each.items) or 'nothing'}{f' ({each.degraded})' if each.degraded else ''}"
                ),
            )
            for each in report.memory
        ),
        *(
            ("reminder", f"{each.id}, next {each.next_at}, {each.when}: {each.text}")
            for each in report.reminders
        ),
        *(("journal", path) for path in report.journal),
        *(("quarantine", path) for path in report.quarantine),
    ]
    return "\n".join(f"{name.ljust(10)}  {value}" for name, value in facts if value)
