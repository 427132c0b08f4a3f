"""`holdfast sessions fork`: a copy up to one of its records, under another name."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.arguments import RecordedAs
from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.service import driving_service, home_of, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.runtime.service import Service


def register(app: typer.Typer) -> None:
    @command(app, "fork", example="holdfast sessions fork ops/api ops/api-again --at 42")
    def fork(
        ctx: typer.Context,
        session: Annotated[
            str,
            typer.Argument(
                metavar="SESSION", help="The one to copy.", autocompletion=completing.sessions
            ),
        ],
        into: Annotated[
            str | None,
            typer.Argument(
                metavar="[NEW]", help="The name of the copy. [default: SESSION-fork-SEQ]"
            ),
        ] = None,
        at: Annotated[
            int | None,
            typer.Option(
                "--at",
                metavar="SEQ",
                help="The last record to copy. [default: the end of the last turn]",
            ),
        ] = None,
        as_: RecordedAs = None,
    ) -> None:
        """
        Copy a session up to one of its records. The copy is an instance of its own: no consent, no
        prompt and nothing owed comes along. A turn that is open there ends in the copy.
        """
        options = options_of(ctx)
        run(lambda: _fork(options, session, into, at, as_))


async def _fork(
    options: Options, session: str, into: str | None, at: int | None, asserted: str | None
) -> int:
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.cli.shared.identity import who
    from holdfast.ids import session_id

    name = session_id(session)
    me = who(home_of(options), asserted)
    async with driving_service(options) as service:
        if service is None:
            raise unknown(name)
        name = session_id(await whole_session(service, session))
        if at is None:
            at = await _last_end(service, name)
        target = session_id(into or f"{name}-fork-{at}")
        report = await service.lifecycle.fork(name, target, at_seq=at, by=me.person)
    options.out.result(report, f"{target} is a copy of {name} up to record {at}")
    return 0


async def _last_end(service: "Service", session: str) -> int:
    """Return the record that ended the last turn."""
    from contextlib import aclosing

    from holdfast.journal.record import Record

    head, seq, found = (await service.show(session)).seq, 0, 0
    async with aclosing(service.follow(session, after=0)) as records:  # type: ignore[type-var]  # a generator, which can be closed
        while seq < head:
            record = await anext(records)
            if isinstance(record, Record):
                seq = record.seq
                found = seq if record.type == "turn_ended" else found
    if not found:
        raise Refused(
            f"no turn of {session} has ended yet",
            code="not_ended",
            hint="wait for its first reply, or name a record with --at",
        )
    return found
