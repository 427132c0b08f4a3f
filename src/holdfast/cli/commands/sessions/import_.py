"""
`holdfast sessions import`: a conversation from another program's file or from a Holdfast export.
"""

import os
import stat
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.shared.arguments import RecordedAs
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import home_of, making_service, run
from holdfast.cli.shared.standard_input import STDIN, read_stdin
from holdfast.errors import Refused, Unusable


def register(app: typer.Typer) -> None:
    @command(
        app,
        "import",
        example="holdfast sessions import ~/.agent/sessions/2026-11-16.jsonl notes/old\nholdfast "
        "sessions import api.jsonl ops/api-copy",
    )
    def import_(
        ctx: typer.Context,
        file: Annotated[
            str,
            typer.Argument(
                metavar="FILE",
                help="JSON Lines: of a coding agent or a personal gateway, or of `sessions "
                "export`; `-` is stdin.",
            ),
        ],
        into: Annotated[
            str | None,
            typer.Argument(
                metavar="[SESSION]",
                help="Its name here. [default: import/ and the file's name]",
            ),
        ] = None,
        as_: RecordedAs = None,
    ) -> None:
        """
        Make a session from a file: the branch that was visible there, with its summary. Text only,
        marked as imported: nothing in it is owed, allowed or approved.

        A damaged file is imported as far as it can be read. Unreadable lines are reported one by
        one.
        """
        options = options_of(ctx)
        run(lambda: _import(options, Path(file), into, as_))


async def _import(options: Options, file: Path, into: str | None, asserted: str | None) -> int:
    from holdfast.cli.shared.identity import owner_only, who
    from holdfast.ids import session_id
    from holdfast.runtime.lifecycle.import_file import FILE_BYTES_MAX

    source = "stdin" if str(file) == STDIN else file.name
    name = session_id(into or f"import/{_thread(Path(source).stem)}")
    me = who(home_of(options), asserted)
    if not me.is_owner:
        raise owner_only("import a session")
    data = _bytes(file, FILE_BYTES_MAX)
    async with making_service(options) as service:
        report = await service.lifecycle.import_file(name, data, source=source, by=me.person)
    for each in report.skipped[:20]:
        options.out.note(f"line {each.line}: {each.reason}")
    said = f"{name} has {report.turns} turns from {source}" + (
        f"; left out: {len(report.skipped)} (see above)" if report.skipped else ""
    )
    options.out.result(report, said)
    return 0


def _bytes(file: Path, most: int) -> bytes:
    """
    Read at most the allowed size. A pipe is read only as stdin: a path that is a pipe could block
    for ever.
    """
    try:
        data = read_stdin(most) if str(file) == STDIN else _of_plain_file(file, most + 1)
    except OSError as exc:
        raise Unusable(
            f"{file} can't be read: {exc.strerror}",
            code="no_file",
            hint="name a file of JSON Lines",
        ) from exc
    if len(data) > most:
        raise Refused(f"{file} is larger than {most} bytes", code="too_large", hint="split it")
    return data


def _of_plain_file(file: Path, most: int) -> bytes:
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(fd, "rb") as opened:  # noqa: PTH123  a descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unusable(
                f"{file} is not a plain file",
                code="no_file",
                hint="name a file of JSON Lines, or `-` to read it from stdin",
            )
        return opened.read(most)


def _thread(stem: str) -> str:
    letters = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-"
        for letter in stem.lower()
    )
    return (letters.lstrip("._-") or "file")[:64]
