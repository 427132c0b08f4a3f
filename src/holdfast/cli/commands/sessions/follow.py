"""
`holdfast sessions follow`: stored records, live.

It starts at the beginning or after a cursor. It ends once it has seen a turn end and no turn is
open. So a cursor at the head of an idle session waits for the next turn. Streamed text is not a
record; `chat` shows it.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import SessionArgument
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import looking_service, run
from holdfast.errors import Refused, Untrusted

if TYPE_CHECKING:
    from holdfast.journal.record import Record
    from holdfast.runtime.service import Service

_TEXT_CHARS = 140


def register(app: typer.Typer) -> None:
    @command(
        app,
        "follow",
        example="holdfast sessions follow ops/api\nholdfast --json sessions follow ops/api --after "
        "12 --forever",
    )
    def follow(
        ctx: typer.Context,
        session: SessionArgument,
        after: Annotated[
            int,
            typer.Option(
                "--after",
                metavar="SEQ",
                min=0,
                help="Go on after this record. [default: from the beginning]",
            ),
        ] = 0,
        forever: Annotated[
            bool, typer.Option("--forever", help="Don't end with the turn.")
        ] = False,
    ) -> None:
        """
        Print each record of a session as it is stored, and those to come, until its turn has ended.
        """
        options = options_of(ctx)
        run(lambda: _follow(options, session, after, forever=forever))


async def _follow(options: Options, session: str, after: int, *, forever: bool) -> int:
    from holdfast.ids import session_id

    name = session_id(session)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        await _print_records(options, service, name, after, forever=forever)
    return 0


async def _print_records(
    options: Options, service: "Service", session: str, after: int, *, forever: bool
) -> None:
    from contextlib import aclosing

    from holdfast.journal.record import Record

    report = await service.show(session)
    if after > report.seq:
        raise Refused(
            f"there is no record {after} yet in this life of {session}: its last is {report.seq}",
            code="cursor_ahead",
            hint="follow from the beginning, without --after",
        )
    head, saw_an_end, ended = report.seq, False, False
    async with aclosing(service.follow(session, after=after)) as records:  # type: ignore[type-var]
        while True:
            if (report.sealed is not None or (ended and not forever)) and after >= head:
                break
            record = await anext(records)
            if not isinstance(record, Record):
                continue
            _print(options, record)
            after = record.seq
            if options.out.closed:
                return
            saw_an_end = saw_an_end or record.type == "turn_ended"
            if saw_an_end and after >= head:
                report = await service.show(session)
                head, ended = report.seq, report.phase == "idle"
    if report.sealed is not None:
        raise Untrusted(
            f"{session} is sealed ({report.sealed.code}: {report.sealed.detail})",
            hint=f"`holdfast sessions unseal {session}` goes on from what verifies",
        )


def _print(options: Options, record: "Record") -> None:
    if options.out.json:
        options.out.object(fields_of(record))
    else:
        body = record.body.decode()
        options.out.text(
            f"{record.seq:>6}  {record.type:<20}  "
            f"{body if len(body) <= _TEXT_CHARS else body[:_TEXT_CHARS] + '...'}"
        )


def fields_of(record: "Record") -> dict[str, object]:
    """Return the record's stored fields, with the same names in the same order."""
    import msgspec
    from blake3 import blake3

    return {
        "seq": record.seq,
        "at": record.at,
        "epoch": record.epoch,
        "writer": record.writer,
        "type": record.type,
        "version": record.version,
        "more": record.more,
        "digest": blake3(record.body).hexdigest(),
        "body": msgspec.Raw(record.body),
        "mac": record.mac.hex(),
    }
