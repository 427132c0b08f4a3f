"""
`holdfast doctor`: find problems and name their fixes. It changes nothing, except with
`--accept-clock`.

Every finding is ok, a warning (it works, with limits) or a problem. This is the only command that
names adapters. It checks their foundations even if the adapters refuse to open.
"""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.commands.doctor.channel_checks import check_channels
from holdfast.cli.commands.doctor.finding import Finding
from holdfast.cli.commands.doctor.home_checks import check_home, check_inside, check_settings
from holdfast.cli.commands.doctor.machine_checks import (
    check_clients,
    check_confinement,
    check_consent,
    check_program,
    check_python,
)
from holdfast.cli.commands.doctor.session_checks import check_sessions
from holdfast.cli.commands.doctor.storage_checks import check_storage
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import run


def register(app: typer.Typer) -> None:
    @command(
        app,
        "doctor",
        example="holdfast doctor\nholdfast --json doctor\nholdfast doctor --accept-clock",
    )
    def doctor(
        ctx: typer.Context,
        accept: Annotated[
            bool,
            typer.Option(
                "--accept-clock",
                help="Confirm that the clock is right. If the journal is ahead of the clock, "
                "grants and tokens that have an end are dropped.",
            ),
        ] = False,
    ) -> None:
        """
        Check the installation, and say how to mend each fault: Python, the home, its keys, the
        disk, settings, confinement, the index, memory, sessions and the clock.

        Exits 0 when nothing is wrong (warnings included), 1 when something is.
        """
        options = options_of(ctx)
        run(lambda: _accept_clock(options) if accept else _doctor(options))


async def _accept_clock(options: Options) -> int:
    """Accept the clock. Only the home's owner may; a tool never may."""
    from holdfast.assembly.home_path import home_path
    from holdfast.cli.commands.restore import dropped_lines
    from holdfast.cli.shared.identity import owner_only, refuse_tools, who
    from holdfast.cli.shared.service import looking_service, no_home

    refuse_tools("accepting the clock")
    home = home_path(options.home)
    me = who(home, None)
    if not me.is_owner:
        raise owner_only("say that the clock is right")
    async with looking_service(options) as service:
        if service is None:
            raise no_home(home)
        done = await service.accept_clock(by=me.person)
    if done is None:
        options.out.result({"accepted": False}, "nothing disputes the clock; nothing was changed")
        return 0
    said = (
        f"the clock ({done.clock}) is accepted; the newest time in the home's journal was"
        f" {done.journal}"
    )
    options.out.result(
        {"accepted": True, "clock": done.clock, "journal": done.journal, "dropped": done.dropped},
        "\n".join([said, *dropped_lines(done.dropped)]),
    )
    return 0


async def _doctor(options: Options) -> int:
    from holdfast.assembly.home_path import home_path

    findings = await examine(home_path(options.home), app=options.app)
    problems = sum(each.state == "problem" for each in findings)
    if options.out.json:
        options.out.object({"checks": [each._asdict() for each in findings], "problems": problems})
    else:
        for each in findings:
            options.out.text(
                f"{each.state.ljust(7)}  {each.check}: {each.detail}"
                + (f"\n         {each.hint}" if each.hint else "")
            )
    return 1 if problems else 0


async def examine(home: Path, *, app: str | None = None) -> list[Finding]:
    settings, about_settings = check_settings(home, app=app)
    seen = [
        check_python(),
        *check_program(settings),
        *check_home(home),
        *about_settings,
        check_consent(settings),
        *check_clients(home, settings),
        *check_confinement(home, settings),
        *check_channels(settings, home),
    ]
    inside = [*check_inside(home), *await check_storage(settings)]
    return [*seen, *inside, *await check_sessions(home, settings)]
