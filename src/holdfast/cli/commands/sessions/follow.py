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
    from collections.abc import Callable

    from holdfast.journal.record import Record
    from holdfast.runtime.service import Service


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
                show_default=False,
                help="Start after this record. [default: from the beginning]",
            ),
        ] = 0,
        forever: Annotated[
            bool, typer.Option("--forever", help="Don't end with the turn.")
        ] = False,
        raw: Annotated[
            bool, typer.Option("--raw", help="Print each record as it is stored, as JSON.")
        ] = False,
    ) -> None:
        """
        Print what was said and done in a session, and follow it until its turn has ended.

        With --json or --raw, each record is printed as it is stored.
        """
        options = options_of(ctx)
        options.out.json = options.out.json or raw
        run(lambda: _follow(options, session, after, forever=forever))


async def _follow(options: Options, session: str, after: int, *, forever: bool) -> int:
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.ids import session_id

    name = session_id(session)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        name = session_id(await whole_session(service, session))
        show = _shown_as_json(options) if options.out.json else _shown_as_text(options)
        await _print_records(options, service, name, after, show, forever=forever)
    return 0


def _shown_as_json(options: Options) -> "Callable[[Record], None]":
    return lambda record: options.out.object(fields_of(record))


def _shown_as_text(options: Options) -> "Callable[[Record], None]":
    """Print a transcript, in the words that chat uses."""
    from holdfast.cli.commands.chat.news import News
    from holdfast.cli.commands.chat.screen import Screen

    screen = Screen()
    news = News(screen, person="")
    news.names_agents = True

    def show(record: "Record") -> None:
        with screen.console.capture() as captured:
            news.record(record)
        options.out.styled(captured.get())

    return show


async def _print_records(
    options: Options,
    service: "Service",
    session: str,
    after: int,
    show: "Callable[[Record], None]",
    *,
    forever: bool,
) -> None:
    from contextlib import aclosing

    from holdfast.journal.record import Record

    report = await service.show(session)
    if after > report.seq:
        raise Refused(
            f"{session} has no record {after} yet in this instance; the last one is {report.seq}",
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
            show(record)
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
            hint=f"`holdfast sessions unseal {session}` goes on from the last record that verifies",
        )


def fields_of(record: "Record") -> dict[str, object]:
    """Return the record's stored fields, with the same names in the same order."""
    import msgspec

    return {
        "seq": record.seq,
        "at": record.at,
        "epoch": record.epoch,
        "writer": record.writer,
        "type": record.type,
        "version": record.version,
        **({"more": True} if record.more else {}),
        "body": msgspec.Raw(record.body),
        "mac": record.mac.hex(),
    }
