"""`holdfast sessions export`: a session as stored, or as Markdown for people."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.output.result import encoded
from holdfast.cli.output.terminal import printable
from holdfast.cli.shared.arguments import SessionArgument
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import looking_service, run
from holdfast.errors import Unusable


def register(app: typer.Typer) -> None:
    @command(
        app,
        "export",
        example=(
            "holdfast sessions export ops/api > api.jsonl\nholdfast sessions export ops/api "
            "--markdown -o api.md"
        ),
    )
    def export(
        ctx: typer.Context,
        session: SessionArgument,
        output: Annotated[
            str | None,
            typer.Option(
                "--output",
                "-o",
                metavar="FILE",
                help="Write here; never over an existing file. [default: stdout]",
            ),
        ] = None,
        markdown: Annotated[
            bool,
            typer.Option("--markdown", help="The conversation for people, instead of the records."),
        ] = False,
    ) -> None:
        """
        Write a session out: every record as stored, line by line.

        The lines can be verified without Holdfast, with docs/reference/journal-format.md and the
        key. Works on a sealed session too, and reports the first record that does not verify.
        """
        options = options_of(ctx)
        run(lambda: _export(options, session, output, markdown))


async def _export(options: Options, session: str, output: str | None, markdown: bool) -> int:
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.ids import session_id

    name = session_id(session)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        name = session_id(await whole_session(service, session))
        data = (
            [_printed(options, name, await service.lifecycle.export_markdown(name), output)]
            if markdown
            else [line async for line in service.lifecycle.export_lines(name)]
        )
        doubt = await service.lifecycle.doubt_about(name)
    _write(options, data, output)
    if doubt is not None:
        options.out.note(f"{name} {doubt}")
    if output is not None:
        options.out.result(
            {"session": name, "file": output, "lines": sum(each.count(b"\n") for each in data)},
            f"wrote {output}",
        )
    return 0


def _printed(options: Options, session: str, markdown: str, output: str | None) -> bytes:
    """
    Return the output. With --json, stdout is JSON, so the text is a field of it. A file may be
    printed later, so it contains nothing that a terminal interprets.
    """
    if options.out.json and output is None:
        return (encoded({"session": session, "markdown": markdown}) + "\n").encode()
    return printable(markdown).encode()


def _write(options: Options, data: Iterable[bytes], output: str | None) -> None:
    if output is None:
        options.out.stored(data)
        return
    try:
        file = Path(output).open("xb")  # noqa: SIM115  closed below, or removed
    except FileExistsError:
        raise Unusable(
            f"{output} is there already", code="exists", hint="name another file"
        ) from None
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise Unusable(
            f"{output!r} can't be written: {exc.strerror}",
            hint="name a file in a folder that exists",
        ) from exc
    try:
        with file:
            file.writelines(data)
    except BaseException:
        Path(output).unlink(
            missing_ok=True
        )  # half an export would pass for a whole one and block the next
        raise
