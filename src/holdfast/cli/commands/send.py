"""`holdfast send`: accept one message and drive its turn to its end or to a pause."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared.arguments import SessionArgument, WorkspaceOption, acting_as
from holdfast.cli.shared.options import Options, command, options_of, refuse_blank
from holdfast.cli.shared.service import home_of, making_service, run
from holdfast.cli.shared.standard_input import STDIN, read_stdin
from holdfast.errors import HoldfastError, Unusable

if TYPE_CHECKING:
    from holdfast.session.authority.context import MessageSource, Workspace


class MessageChannel(StrEnum):
    local = "local"
    webhook = "webhook"
    reminder = "reminder"
    none = "none"


def register(app: typer.Typer) -> None:
    @command(
        app,
        "send",
        example='holdfast send ops/api "what time is it?"\nholdfast send ops/api "shell '
        "command='ls -l'\" --workspace .",
    )
    def send(
        ctx: typer.Context,
        session: SessionArgument,
        text: Annotated[
            str, typer.Argument(metavar="TEXT", help="The message; - reads it from stdin.")
        ],
        as_: Annotated[str | None, acting_as("Speak as this person")] = None,
        model: Annotated[
            str | None,
            typer.Option(
                "--model",
                metavar="M",
                help="demo, script:FILE, or PROVIDER:NAME. Remembered by the session.",
            ),
        ] = None,
        agent: Annotated[
            str | None,
            typer.Option(
                "--agent", metavar="NAME", help="Which agent to talk to. Remembered by the session."
            ),
        ] = None,
        dedup: Annotated[
            str | None,
            typer.Option(
                "--dedup", metavar="KEY", help="The same key and text again is the same message."
            ),
        ] = None,
        workspace: WorkspaceOption = None,
        channel: Annotated[
            MessageChannel,
            typer.Option(
                "--channel",
                metavar="C",
                help="local, webhook, reminder, or none: whom it comes from.",
            ),
        ] = MessageChannel.local,
        no_wait: Annotated[
            bool,
            typer.Option(
                "--no-wait", help="Return at once; the server or `holdfast resume` runs the turn."
            ),
        ] = False,
    ) -> None:
        """
        Send a message; wait for the reply or for an approval.

        Exits 0 when the turn is completed, 3 when it waits for an approval (printed in full), 1
        when it failed.
        """
        options = options_of(ctx)
        refuse_blank(model=model, agent=agent, dedup=dedup, workspace=workspace)
        run(
            lambda: _send(
                options,
                session,
                _text(text),
                as_,
                agent,
                model,
                dedup,
                workspace,
                channel,
                wait=not no_wait,
            )
        )


def _text(given: str) -> str:
    if given != STDIN:
        return given
    from holdfast.limits import INPUT_TEXT_BYTES_MAX

    data = read_stdin(INPUT_TEXT_BYTES_MAX)
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        if len(data) > INPUT_TEXT_BYTES_MAX:
            return data.decode(errors="replace")  # refused as too large
        raise Unusable(
            "stdin is not UTF-8",
            code="malformed",
            hint="send well-formed Unicode text",
        ) from exc


async def _send(
    options: Options,
    session: str,
    text: str,
    asserted: str | None,
    agent: str | None,
    model: str | None,
    dedup: str | None,
    workspace: str | None,
    channel: MessageChannel,
    *,
    wait: bool,
) -> int:
    from holdfast.cli.output.call_text import prompts_in_brief
    from holdfast.cli.output.turn_output import (
        print_turn,
        print_turn_error,
        tell_doubts,
        waits_shown,
    )
    from holdfast.ids import session_id
    from holdfast.runtime.verbs.accept import Incoming

    options.speaks_as = asserted
    name = session_id(session)
    source = _source(options, asserted, channel)
    given, default = _workspaces(workspace, channel)
    async with making_service(options) as service:
        incoming = Incoming(
            text=text,
            source=source,
            agent=agent,
            model=model,
            dedup=dedup,
            workspace=given,
            default_workspace=default,
            kind="reminder" if channel is MessageChannel.reminder else "message",
        )
        try:
            async with waits_shown(options, service, name):
                turn = await service.send(name, incoming, wait=wait)
        except HoldfastError as exc:
            return print_turn_error(options, name, exc)
        await tell_doubts(options, service, turn)
        closed = "" if options.out.json else await prompts_in_brief(service, turn.superseded)
    if closed:
        options.out.text(f"Your message closed what waited, and it did not run: {closed}\n")
    return print_turn(options, turn)


def _source(
    options: Options, asserted: str | None, channel: MessageChannel
) -> "MessageSource | None":
    import msgspec

    from holdfast.cli.shared.identity import who
    from holdfast.session.authority.context import MessageSource

    if channel is MessageChannel.none:
        return None
    me = who(home_of(options), asserted)
    if channel is MessageChannel.local:
        return MessageSource.local(me.person, asserted_by=me.asserted_by)
    return msgspec.structs.replace(
        MessageSource.automation(me.person, channel=channel.value), asserted_by=me.asserted_by
    )


def _workspaces(
    given: str | None, channel: MessageChannel
) -> "tuple[Workspace | None, Workspace | None]":
    """Return the requested workspace, and the default for a session that remembers none."""
    if given is not None:
        return workspace_at(Path(given)), None
    return None, None if channel is MessageChannel.none else workspace_at(Path.cwd())


def workspace_at(path: Path) -> "Workspace":
    from holdfast.assembly.home_path import folder_identity
    from holdfast.session.authority.context import Workspace

    folder = str(Path(os.path.expanduser(path)).resolve())  # noqa: PTH111  # an unknown ~user is left as it is and reported below
    identity = folder_identity(folder)
    if identity is None:
        raise Unusable(
            f"{folder} is not a folder",
            code="no_workspace",
            hint="name an existing folder with --workspace",
        )
    return Workspace(folder, identity)
