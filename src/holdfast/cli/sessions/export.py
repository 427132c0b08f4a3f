"""`holdfast sessions export`: a session as it is stored, or for people."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import completing
from holdfast.cli.options import Options, command, options_of
from holdfast.cli.running import looking_service, run
from holdfast.cli.sessions import unknown
from holdfast.errors import Unusable


def register(app: typer.Typer) -> None:
    @command(app, "export", example="holdfast sessions export ops/api > api.jsonl\nholdfast sessions export ops/api --markdown -o api.md")
    def export(
        ctx: typer.Context,
        session: Annotated[
            str, typer.Argument(metavar="SESSION", help="CHANNEL/THREAD; a bare NAME means local/NAME.", autocompletion=completing.sessions)
        ],
        output: Annotated[
            str | None, typer.Option("--output", "-o", metavar="FILE", help="Write here; never over an existing file. [default: stdout]")
        ] = None,
        markdown: Annotated[bool, typer.Option("--markdown", help="The conversation for people, instead of the records.")] = False,
    ) -> None:
        """
        Write a session out: every record as stored, line by line.

        The lines can be verified without Holdfast, from docs/journal-format.md and the key. Works on a sealed session too, and says where it stops being true.
        """
        options = options_of(ctx)
        run(lambda: _export(options, session, output, markdown))


async def _export(options: Options, session: str, output: str | None, markdown: bool) -> int:
    from holdfast.ids import session_id
    from holdfast.runtime.lives import export_lines, export_markdown

    name = session_id(session)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        data = [(await export_markdown(service, name)).encode()] if markdown else [line async for line in export_lines(service, name)]
        sealed = (await service.show(name)).sealed
    _write(data, output)
    if sealed is not None:
        options.out.note(f"{name} is sealed ({sealed.code}: {sealed.detail}); `holdfast verify {name}` says up to where the records hold")
    if output is not None:
        options.out.result({"session": name, "file": output, "lines": sum(each.count(b"\n") for each in data)}, f"wrote {output}")
    return 0


def _write(data: list[bytes], output: str | None) -> None:
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(data)
        sys.stdout.buffer.flush()
        return
    try:
        with Path(output).open("xb") as file:
            file.writelines(data)
    except FileExistsError:
        raise Unusable(f"{output} is there already", code="exists", hint="name another file") from None
