"""
`holdfast chat`: talk in the terminal, approve inline.

The journal is the conversation. This process only shows it and appends to it. Another process may
answer, cancel or drive meanwhile; the screen then reports that the shown prompt is closed. Ctrl-C
cancels the running turn durably. Ctrl-D leaves, and open prompts keep waiting. While a turn runs,
the keyboard is not read.
"""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.commands.chat.conversation import Chat
from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.arguments import SESSION_HELP, acting_as
from holdfast.cli.shared.identity import refuse_tools, who
from holdfast.cli.shared.options import command, options_of
from holdfast.cli.shared.service import home_of, making_service, run


def register(app: typer.Typer) -> None:
    command(
        app, "chat", example="holdfast chat ops/api\nholdfast chat notes --model script:story.jsonl"
    )(chat)


def chat(
    ctx: typer.Context,
    session: Annotated[
        str,
        typer.Argument(metavar="[SESSION]", help=SESSION_HELP, autocompletion=completing.sessions),
    ] = "chat",
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="NAME", help="Which agent; else the one this session had last."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="M", help="Which model; the session keeps it.")
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace", metavar="DIR", help="The folder it works in. [default: the current one]"
        ),
    ] = None,
    as_: Annotated[str | None, acting_as("Speak as this person")] = None,
) -> None:
    """
    Talk in the terminal; approve inline.

    A bare Enter never approves: type an option's name or number. Ctrl-C cancels the running turn,
    Ctrl-D leaves. Prompts that stood before still stand.
    """
    from holdfast.cli.commands.chat.keyboard import Keyboard, check_terminal
    from holdfast.ids import session_id

    options = options_of(ctx)
    home = home_of(options)
    person = who(home, as_)
    current = str(Path.cwd())
    chosen = str(Path(workspace).resolve()) if workspace is not None else None

    async def work() -> int:
        refuse_tools("chat")
        name = session_id(session)
        check_terminal()
        async with making_service(options) as service:
            live = service.live
            live.check_agent(agent, model)
            given = live.workspace(chosen) if chosen is not None else None
            here = live.workspace(current)
            await Chat(
                service,
                Keyboard(home, live.secrets),
                person,
                name,
                agent=agent,
                model=model,
                workspace=given,
                here=here,
            ).talk()
        return 0

    run(work)
