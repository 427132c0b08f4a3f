"""`holdfast config explain`: which rule would decide a call, and whom it would ask."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared.arguments import SessionArgument, json_object
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, run

if TYPE_CHECKING:
    from holdfast.runtime.reports.explain import Explanation


def register(config: typer.Typer) -> None:
    @command(
        config,
        "explain",
        example="holdfast config explain ops/api shell\nholdfast config explain ops/api shell "
        '\'{"command": "ls"}\'',
    )
    def explain(
        ctx: typer.Context,
        session: SessionArgument,
        tool: Annotated[
            str, typer.Argument(metavar="TOOL", help="The tool's name, as the model calls it.")
        ],
        arguments: Annotated[
            str | None,
            typer.Argument(metavar="[ARGUMENTS]", help="The call's arguments, as a JSON object."),
        ] = None,
        as_: Annotated[
            str | None,
            typer.Option("--as", metavar="WHO", help="Explain it for this requester."),
        ] = None,
    ) -> None:
        """
        Say which rule would decide a call, on which line, with which verdict, and whom it asks.

        Nothing runs. Without ARGUMENTS the answer holds for any call that stays in the workspace.
        """
        options = options_of(ctx)
        run(lambda: _explain(options, session, tool, arguments, as_))


async def _explain(
    options: Options, session: str, tool: str, arguments: str | None, asserted: str | None
) -> int:
    from holdfast.cli.commands.send import workspace_at
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.cli.shared.identity import who
    from holdfast.cli.shared.service import driving_service, no_home
    from holdfast.session.authority.context import MessageSource

    json_object(arguments, name="ARGUMENTS")  # a slip of the reader is not a verdict
    options.speaks_as = asserted
    me = who(home_of(options), asserted)
    async with driving_service(options) as service:
        if service is None:
            raise no_home(home_of(options))
        found = await service.explain(
            await whole_session(service, session),
            tool,
            None if arguments is None else arguments.encode(),
            source=MessageSource.local(me.person),
            workspace=workspace_at(Path.cwd()),
        )
    people = " or ".join(found.may_answer) or "nobody"
    not_begun = f"session   {found.session} has not begun; this holds for its first message"
    lines = [
        *([] if found.begun else [not_begun]),
        f"verdict   {found.verdict}",
        f"why       {found.reason}",
        f"rule      {found.rule}",
        f"for       {found.requester}, {found.audience}",
        *(_asking(found, people) if found.verdict == "ask" else []),
    ]
    options.out.result(found, "\n".join(lines))
    return 0


def _asking(found: "Explanation", people: str) -> list[str]:
    """Say who is asked, and for how much an answer may stand."""
    everywhere = f"all conversations of {found.requester}"
    scopes = {
        "never": "never: every call asks",
        "session": "in this conversation only",
        "any": f"at most in this conversation, for a folder, or in {everywhere}; "
        "the prompt offers those that fit the call",
    }
    return [f"asks      {people}", f"remember  {scopes[found.remember or 'never']}"]
