"""`holdfast reminders list | show | add | cancel`: turns that start later by themselves."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.output.busy_output import busy_fields, tell_busy
from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.arguments import (
    ActAs,
    SessionArgument,
    WorkspaceOption,
    id_argument,
    one_session,
)
from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, looking_service, making_service, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.ids import SessionId
    from holdfast.runtime.reminders import ReminderRequest
    from holdfast.runtime.reports.types import ReminderReport
    from holdfast.runtime.service import Service
    from holdfast.runtime.verbs.accept import Incoming


def register(app: typer.Typer) -> None:
    reminders = group(
        "reminders",
        "Turns that start by themselves: once, at a fixed interval, or by cron in a time zone.",
        example='holdfast reminders add ops/api "look again" --in 10m\nholdfast reminders list',
    )
    app.add_typer(reminders)
    _register_looking(reminders)
    _register_add(reminders)
    _register_cancel(reminders)


def _register_looking(reminders: typer.Typer) -> None:
    @command(reminders, "list", example="holdfast reminders list\nholdfast reminders list ops/api")
    def list_(
        ctx: typer.Context,
        session: Annotated[str | None, one_session("Only those of this one.")] = None,
    ) -> None:
        """List every reminder, the next one first."""
        options = options_of(ctx)
        run(lambda: _list(options, session))

    @command(reminders, "show", example="holdfast reminders show r-7kq2c5x3jz4mw6n8p9r0s1t2vb")
    def show(
        ctx: typer.Context,
        reminder: Annotated[
            str,
            id_argument("reminder", completing.reminders),
        ],
    ) -> None:
        """Show one reminder: its text, when it is due next, and under whose authority it runs."""
        options = options_of(ctx)
        run(lambda: _show(options, reminder))


def _register_add(reminders: typer.Typer) -> None:
    @command(
        reminders,
        "add",
        example=(
            'holdfast reminders add ops/api "check the backups" --at 2027-01-04T09:00 --tz '
            "Europe/Berlin\n"
            'holdfast reminders add ops/api "look at the queue" --every 2h\n'
            "holdfast reminders add ops/api \"weekly report\" --cron '0 9 * * MON' --tz "
            "Europe/Berlin --allow-prompts"
        ),
    )
    def add(
        ctx: typer.Context,
        session: SessionArgument,
        text: Annotated[
            str, typer.Argument(metavar="TEXT", help="The message that starts the turn.")
        ],
        at: Annotated[
            str | None,
            typer.Option(
                "--at",
                metavar="WHEN",
                help="Once: 2027-01-04T09:00:00Z, or 2027-01-04T09:00 with --tz.",
            ),
        ] = None,
        in_: Annotated[
            str | None,
            typer.Option("--in", metavar="DURATION", help="This long from now: 10m, 2h, 3d."),
        ] = None,
        every: Annotated[
            str | None,
            typer.Option(
                "--every",
                metavar="SPAN",
                help="At a fixed interval, such as 90m or 1d; at least a minute.",
            ),
        ] = None,
        cron: Annotated[
            str | None,
            typer.Option(
                "--cron",
                metavar="EXPR",
                help="Five fields: minute hour day-of-month month day-of-week; with --tz.",
            ),
        ] = None,
        tz: Annotated[
            str | None,
            typer.Option(
                "--tz", metavar="ZONE", help="A time zone's name, such as Europe/Berlin or UTC."
            ),
        ] = None,
        allow_prompts: Annotated[
            bool,
            typer.Option(
                "--allow-prompts",
                help="Its turns may ask you. Without it, what needs an approval is denied.",
            ),
        ] = False,
        as_: ActAs = None,
        agent: Annotated[
            str | None,
            typer.Option("--agent", metavar="NAME", help="Which agent. [default: the session's]"),
        ] = None,
        model: Annotated[
            str | None,
            typer.Option("--model", metavar="M", help="Which model. [default: the session's]"),
        ] = None,
        workspace: WorkspaceOption = None,
    ) -> None:
        """
        Set a reminder: TEXT becomes a turn of its own, under your authority, when it is due and
        `serve` or `resume` runs.

        Exactly one of --at, --in, --every and --cron. A reminder that was missed while nothing ran
        fires once, late, and says so.
        """
        options = options_of(ctx)
        run(
            lambda: _add(
                options,
                session,
                (text, _moment(at, in_, every, cron), every, cron, tz),
                as_,
                agent,
                model,
                workspace,
                may_prompt=allow_prompts,
            )
        )


def _register_cancel(reminders: typer.Typer) -> None:
    @command(reminders, "cancel", example="holdfast reminders cancel r-7kq2c5x3jz4mw6n8p9r0s1t2vb")
    def cancel(
        ctx: typer.Context,
        reminder: Annotated[
            str,
            id_argument("reminder", completing.reminders),
        ],
        as_: ActAs = None,
    ) -> None:
        """Cancel a reminder, durably. The person who set it and the home's owner may."""
        options = options_of(ctx)
        run(lambda: _cancel(options, reminder, as_))


def _moment(at: str | None, after: str | None, every: str | None, cron: str | None) -> str | None:
    """
    Return the moment of `--at`, or the one that lies the duration of `--in` from now. Check that
    exactly one schedule is given.
    """
    from holdfast.errors import Unusable

    schedules = (("--at", at), ("--in", after), ("--every", every), ("--cron", cron))
    given = [name for name, value in schedules if value is not None]
    if len(given) != 1:
        raise Unusable(
            f"{' and '.join(given)} exclude each other" if given else "no time is given",
            code="malformed",
            hint="give exactly one of --at, --in, --every and --cron, as in --in 10m",
        )
    if after is None:
        return at
    from datetime import UTC, datetime, timedelta

    from holdfast.settings.values import Wrong, duration_seconds

    try:
        # In whole seconds, and never earlier than asked for.
        moment = datetime.now(UTC) + timedelta(seconds=duration_seconds(after) + 1)
    except (Wrong, OverflowError) as exc:
        why = exc if isinstance(exc, Wrong) else f"{after} is too long"
        raise Unusable(f"--in {why}", code="malformed", hint="for example --in 10m") from exc
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


async def _list(options: Options, session: str | None) -> int:
    from holdfast.cli.shared.id_prefix import existing_session

    name: str | None = None
    async with looking_service(options) as service:
        if session is not None:
            name = await existing_session(service, session)
        patience = service.patience() if service is not None else None
        found = await service.reminders.list(patience=patience) if service is not None else ()
    found = tuple(each for each in found if name in (None, each.session))
    if options.out.json:
        options.out.object({"reminders": found, **busy_fields(patience)})
    elif not found:
        options.out.text("no reminders are set")
    else:
        options.out.table(
            ("ID", "SESSION", "NEXT", "WHEN", "BY", "TEXT"), [_row(each) for each in found]
        )
    tell_busy(options, patience)
    return 0


def _row(each: "ReminderReport") -> tuple[str, ...]:
    return (
        each.id,
        each.session,
        each.next_at[:16] if each.state == "waiting" else each.state,
        each.when,
        each.by,
        each.text[:60],
    )


async def _show(options: Options, reminder: str) -> int:
    from holdfast.cli.shared.id_prefix import whole_reminder

    async with looking_service(options) as service:
        if service is None:
            raise _unknown(reminder)
        reminder = await whole_reminder(service, reminder)
        found = await service.reminders.show(reminder)
    options.out.result(found, reminder_text(found))
    return 0


def reminder_text(each: "ReminderReport") -> str:
    facts = [
        ("id", each.id),
        ("session", each.session),
        ("next", each.next_at if each.state == "waiting" else ""),
        ("when", each.when),
        ("set", f"by {each.by} at {each.set_at}" + (f", in {each.set_in}" if each.set_in else "")),
        ("runs as", f"{each.by} ({each.boundary})" if each.boundary else ""),
        (
            "prompts",
            f"go to {each.by}"
            if each.may_prompt
            else "go only to approvers whom your settings name; without them, the call is denied",
        ),
        ("agent", f"{each.agent} ({each.model})"),
        ("fired", f"{each.fired} times, the last at {each.fired_at}" if each.fired else ""),
        ("never fires", each.reason or ""),
    ]
    return "\n".join(
        [each.text, "", *(f"  {name.ljust(11)}  {value}" for name, value in facts if value)]
    )


async def _add(
    options: Options,
    session: str,
    wanted: tuple[str, str | None, str | None, str | None, str | None],
    asserted: str | None,
    agent: str | None,
    model: str | None,
    workspace: str | None,
    *,
    may_prompt: bool,
) -> int:
    from pathlib import Path

    from holdfast.cli.commands.send import workspace_at
    from holdfast.cli.output.prompt_text import local_time
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.identity import who
    from holdfast.ids import session_id
    from holdfast.runtime.reminders import ReminderRequest
    from holdfast.runtime.verbs.accept import Incoming
    from holdfast.session.authority.context import MessageSource

    require_person("setting a reminder", home_of(options))
    name = session_id(session)
    text, at, every, cron, zone = wanted
    me = who(home_of(options), asserted)
    async with making_service(options) as service:
        made = await _set(
            service,
            name,
            ReminderRequest(
                text=text, at=at, every=every, cron=cron, time_zone=zone, may_prompt=may_prompt
            ),
            Incoming(
                text=text,
                kind="reminder",
                source=MessageSource.local(me.person, asserted_by=me.asserted_by),
                agent=agent,
                model=model,
                workspace=workspace_at(Path(workspace)) if workspace is not None else None,
                default_workspace=workspace_at(Path.cwd()),
            ),
        )
    options.out.result(made, f"{made.id} is set; it is due on {local_time(made.next_at)}")
    return 0


async def _set(
    service: "Service", session: "SessionId", wanted: "ReminderRequest", incoming: "Incoming"
) -> "ReminderReport":
    """Set it. An error names the option to mend, where a tool's call would name its argument."""
    from holdfast.errors import Unusable

    try:
        return await service.reminders.set(session, wanted, incoming)
    except Unusable as exc:
        message = re.sub(r"^(at|every|cron):", r"--\1:", exc.message).replace("time_zone", "--tz")
        raise Unusable(message, code=exc.code, hint=exc.hint.replace("time_zone", "--tz")) from exc


async def _cancel(options: Options, reminder: str, asserted: str | None) -> int:
    from holdfast.cli.shared.id_prefix import whole_reminder
    from holdfast.cli.shared.identity import who

    me = who(home_of(options), asserted)
    async with looking_service(options) as service:
        if service is None:
            raise _unknown(reminder)
        reminder = await whole_reminder(service, reminder)
        found = await service.reminders.cancel(reminder, by=me.person, may_all=me.may_all)
    options.out.result(
        {"reminder": found.id, "session": found.session, "cancelled": True},
        f"{found.id} is cancelled",
    )
    return 0


def _unknown(reminder: str) -> Refused:
    return Refused(
        f"no reminder {reminder}",
        code="unknown",
        hint="`holdfast reminders list` shows them",
    )
