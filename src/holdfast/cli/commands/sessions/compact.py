"""`holdfast sessions compact`: shorten the view, so that the model has room."""

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import SessionArgument
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import driving_service, run


def register(app: typer.Typer) -> None:
    @command(
        app,
        "compact",
        example="holdfast sessions compact ops/api\nholdfast --json sessions compact ops/api",
    )
    def compact(
        ctx: typer.Context,
        session: SessionArgument,
    ) -> None:
        """
        Replace all but the last turns by a summary in what the model sees. The journal keeps every
        word.

        The session's own model writes the summary. The command exits 0 also if a summary would save
        nothing, and says so. A summary that fails changes nothing.
        """
        options = options_of(ctx)
        run(lambda: _compact(options, session))


async def _compact(options: Options, session: str) -> int:
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.ids import session_id

    name = session_id(session)
    async with driving_service(options) as service:
        if service is None:
            raise unknown(name)
        name = session_id(await whole_session(service, session))
        report = await service.compact(name)
    said = (
        f"{report.turns} turns summarised, about {report.tokens_before} -> {report.tokens_after} "
        "tokens"
        if report.turns
        else f"{report.result}: {report.reason}"
    )
    options.out.result(report, said)
    return 1 if report.result == "failed" else 0
