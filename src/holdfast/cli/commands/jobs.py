"""`holdfast jobs list | show | follow | cancel`: calls that run in the background."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.output.busy_output import busy_fields, tell_busy
from holdfast.cli.output.result import encoded
from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.arguments import ActAs, id_argument, one_session
from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, looking_service, run

if TYPE_CHECKING:
    from holdfast.runtime.jobs.reports import JobReport
    from holdfast.runtime.jobs.verbs import Viewer

_ID = Annotated[
    str,
    id_argument("job", completing.jobs),
]
_EXIT_OF_OUTCOME = {"ok": 0, "error": 1, "timed_out": 1, "in_doubt": 5}
_EXAMPLE_ID = "j-7kq2c5x3jz4mw6n2p4r6s5t2vb"


def register(app: typer.Typer) -> None:
    jobs = group(
        "jobs",
        "Calls that go on in the background: list, show, follow or stop them.",
        example="holdfast jobs list\nholdfast jobs follow j-7kq2",
    )
    app.add_typer(jobs)

    @command(jobs, "list", example="holdfast jobs list\nholdfast jobs list ops/api --all")
    def list_(
        ctx: typer.Context,
        session: Annotated[
            str | None, one_session("Only its jobs. [default: every session's]")
        ] = None,
        everything: Annotated[
            bool, typer.Option("--all", help="Also those that ended lately.")
        ] = False,
        as_: ActAs = None,
    ) -> None:
        """
        List the jobs that run. Jobs that have ended are reported as well; `holdfast resume` drives
        what follows.
        """
        options = options_of(ctx)
        run(lambda: _list(options, session, as_, everything=everything))

    @command(jobs, "show", example=f"holdfast jobs show {_EXAMPLE_ID}")
    def show(ctx: typer.Context, job: _ID, as_: ActAs = None) -> None:
        """Show one job: the call, the requester, and the result when it has ended."""
        options = options_of(ctx)
        run(lambda: _show(options, job, as_))

    @command(jobs, "follow", example=f"holdfast jobs follow {_EXAMPLE_ID}")
    def follow(ctx: typer.Context, job: _ID, as_: ActAs = None) -> None:
        """
        Print a job's output as it comes, until the job ends.

        Exits 0 if it ended well, 1 if it failed or ran out of time, 5 if its outcome is in doubt.
        """
        options = options_of(ctx)
        run(lambda: _follow(options, job, as_))

    @command(jobs, "cancel", example=f"holdfast jobs cancel {_EXAMPLE_ID}")
    def cancel(ctx: typer.Context, job: _ID, as_: ActAs = None) -> None:
        """
        Stop a job. The request is durable before anything stops. The job ends with its real
        outcome, or in doubt.
        """
        options = options_of(ctx)
        run(lambda: _cancel(options, job, as_))


def _viewer(options: Options, asserted: str | None) -> "Viewer":
    from holdfast.cli.shared.identity import who
    from holdfast.runtime.jobs.verbs import Viewer

    me = who(home_of(options), asserted)
    return Viewer.local(me.person, may_all=me.may_all)


async def _list(
    options: Options, session: str | None, asserted: str | None, *, everything: bool
) -> int:
    from holdfast.cli.shared.id_prefix import existing_session

    async with looking_service(options) as service:
        viewer = _viewer(options, asserted)
        if session is not None:
            session = await existing_session(service, session)
        patience = service.patience() if service is not None else None
        found = (
            await service.jobs.list(
                viewer, session=session, everything=everything, patience=patience
            )
            if service is not None
            else ()
        )
    if options.out.json:
        options.out.object({"jobs": found, **busy_fields(patience)})
    elif not found:
        options.out.text("no job runs" if not everything else "there was no job")
    else:
        options.out.table(
            ("ID", "SESSION", "TOOL", "STATE", "FOR", "SINCE", "ARGUMENTS"),
            [_row(each) for each in found],
        )
    tell_busy(options, patience)
    return 0


def _row(job: "JobReport") -> tuple[str, ...]:
    arguments = encoded(job.arguments)[:60] if job.arguments is not None else ""
    return (
        job.id,
        job.session,
        job.tool,
        state_of(job),
        job.boundary or "(lost)",
        job.submitted_at[:19],
        arguments,
    )


def state_of(job: "JobReport") -> str:
    if job.state != "running":
        return _outcome_words(job) + (" (refused)" if job.refused else "")
    return f"asked to end by {job.cancelled_by}" if job.cancelled_by else "runs"


def _outcome_words(job: "JobReport") -> str:
    from holdfast.state_words import job_words

    return job_words(job.outcome or "ended")


async def _show(options: Options, job: str, asserted: str | None) -> int:
    from holdfast.cli.shared.id_prefix import whole_job
    from holdfast.runtime.jobs.verbs import unknown

    async with looking_service(options) as service:
        if service is None:
            raise unknown(job)
        job = await whole_job(service, job, _viewer(options, asserted))
        found = await service.jobs.show(job, _viewer(options, asserted))
    options.out.result(found, text_of(found))
    return 0


def text_of(job: "JobReport") -> str:
    facts = [
        ("job", job.id),
        ("session", f"{job.session} {job.turn}"),
        ("tool", job.tool),
        ("arguments", encoded(job.arguments) if job.arguments is not None else ""),
        ("state", state_of(job)),
        (
            "for",
            job.boundary or "nobody: its authority was lost, and its result was reported to nobody",
        ),
        ("submitted", job.submitted_at),
        ("ended", job.ended_at or ""),
        ("at most", f"{job.seconds_max:g} s" if job.seconds_max is not None else ""),
        ("output", job.output or ""),
    ]
    lines = [f"{name.ljust(10)}  {value}" for name, value in facts if value]
    return "\n".join([*lines, *(["", job.text] if job.text else [])])


async def _follow(options: Options, job: str, asserted: str | None) -> int:
    from contextlib import aclosing

    from holdfast.cli.shared.id_prefix import whole_job
    from holdfast.runtime.jobs.verbs import unknown

    async with looking_service(options) as service:
        if service is None:
            raise unknown(job)
        job = await whole_job(service, job, _viewer(options, asserted))
        code = 0
        async with aclosing(service.jobs.follow(job, _viewer(options, asserted))) as said:  # type: ignore[type-var]
            async for piece in said:
                code = _print_result(options, job, piece)
                if options.out.closed:
                    return 0
    return code


def _print_result(options: Options, job: str, piece: "str | JobReport") -> int:
    if isinstance(piece, str):
        if options.out.json:
            options.out.object({"job": job, "output": piece})
        else:
            options.out.piece(piece)
        return 0
    if options.out.json:
        options.out.object(piece)
    else:
        options.out.note(f"{piece.id} {_outcome_words(piece)}")
    return _EXIT_OF_OUTCOME.get(piece.outcome or "", 1)


async def _cancel(options: Options, job: str, asserted: str | None) -> int:
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.id_prefix import whole_job
    from holdfast.runtime.jobs.verbs import unknown

    require_person("cancelling a job", home_of(options))
    async with looking_service(options) as service:
        if service is None:
            raise unknown(job)
        job = await whole_job(service, job, _viewer(options, asserted))
        found = await service.jobs.cancel(job, _viewer(options, asserted))
    options.out.result(
        found,
        f"{found.id} {_outcome_words(found)}"
        if found.state == "ended"
        else f"{found.id} is asked to end",
    )
    return 0
