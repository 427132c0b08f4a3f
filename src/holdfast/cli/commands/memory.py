"""
`holdfast memory list | show | forget | export`: remembered items, their person and their origin.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared import completion as completing
from holdfast.cli.shared.arguments import acting_as, id_argument
from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, looking_service, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.ids import SessionId
    from holdfast.runtime.memory.admin import MemoryReport
    from holdfast.runtime.service import Service

_As = Annotated[str | None, acting_as("Use this person's memories")]
_Id = Annotated[
    str,
    id_argument("memory", completing.memories),
]
_Session = Annotated[
    str | None,
    typer.Option("--session", metavar="SESSION", help="Only memories that this session made."),
]
_TEXT_CHARS = 100


def register(app: typer.Typer) -> None:
    memory = group(
        "memory",
        "Facts that outlive a session: whose they are, and where they came from.",
        example="holdfast memory list\nholdfast memory forget m-7kq2",
    )
    app.add_typer(memory)
    _register_looking(memory)

    @command(memory, "forget", example="holdfast memory forget m-7kq2c5x3jz4mw6n8p9r0s1t2vb")
    def forget(ctx: typer.Context, memory: _Id, as_: _As = None) -> None:
        """
        Delete one memory for good. Its person and the home's owner may. Journals keep what they say
        of it.
        """
        options = options_of(ctx)
        run(lambda: _forget(options, memory, as_))


def _register_looking(memory: typer.Typer) -> None:
    @command(
        memory,
        "list",
        example="holdfast memory list\nholdfast memory list --session ops/api --as alice",
    )
    def list_(
        ctx: typer.Context,
        session: _Session = None,
        limit: Annotated[
            int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many at most.")
        ] = 100,
        after: Annotated[
            str | None,
            typer.Option(
                "--after", metavar="ID", help="Go on after this one: the `next` of an earlier page."
            ),
        ] = None,
        as_: _As = None,
    ) -> None:
        """
        List memories, the oldest first.

        The home's owner sees all memories, also rows that do not verify. Other people, and the
        person of `--as`, see their own.
        """
        options = options_of(ctx)
        run(lambda: _list(options, session, limit, after, as_))

    @command(memory, "show", example="holdfast memory show m-7kq2c5x3jz4mw6n8p9r0s1t2vb")
    def show(ctx: typer.Context, memory: _Id, as_: _As = None) -> None:
        """
        Show one memory: its text, its readers, the turn that it came from, and whether it is
        tainted.
        """
        options = options_of(ctx)
        run(lambda: _show(options, memory, as_))

    @command(
        memory,
        "export",
        example="holdfast memory export > memory.jsonl\nholdfast memory export --as alice",
    )
    def export(ctx: typer.Context, session: _Session = None, as_: _As = None) -> None:
        """Print all memories, one JSON object per line."""
        options = options_of(ctx)
        run(lambda: _export(options, session, as_))


def _person(options: Options, asserted: str | None) -> str | None:
    """Return the reader, or None for the home's owner, who sees everything."""
    from holdfast.cli.shared.identity import who

    me = who(home_of(options), asserted)
    return None if me.may_all else me.person


async def _list(
    options: Options, session: str | None, limit: int, after: str | None, asserted: str | None
) -> int:
    from holdfast.runtime.memory.admin import MemoryList

    person = _person(options, asserted)
    async with looking_service(options) as service:
        found = MemoryList(memory=(), next=None)
        if service is not None:
            only = await _session(service, session)
            found = await service.memory.list(person=person, session=only, limit=limit, after=after)
    if options.out.json:
        options.out.object(found)
    elif not found.memory:
        options.out.text("nothing is remembered")
    else:
        options.out.table(
            ("ID", "FOR", "FROM", "SINCE", "TEXT"), [_row(each) for each in found.memory]
        )
        if found.next is not None:
            options.out.note(f"there is more: --after {found.next}")
    return 0


def _row(item: "MemoryReport") -> tuple[str, ...]:
    if not item.verifies:
        return item.id, "nobody", "", "", "(does not verify: it is not ours, and is never recalled)"
    text = " ".join((item.text or "").split())
    shown = text if len(text) <= _TEXT_CHARS else text[: _TEXT_CHARS - 3] + "..."
    return (
        item.id,
        _whom(item),
        f"{item.session} {item.turn}",
        (item.created_at or "")[:16],
        ("(tainted) " if item.tainted else "") + shown,
    )


def _whom(item: "MemoryReport") -> str:
    return f"{item.person} ({item.boundary})" if item.audience == "personal" else f"{item.boundary}"


async def _show(options: Options, memory: str, asserted: str | None) -> int:
    from holdfast.cli.shared.id_prefix import whole_memory

    person = _person(options, asserted)
    async with looking_service(options) as service:
        there = _there(service, memory)
        memory = await whole_memory(there, memory, person=person)
        report = await there.memory.show(memory, person=person)
    options.out.result(report, _text(report))
    return 0


def _text(item: "MemoryReport") -> str:
    if not item.verifies:
        return (
            f"id          {item.id}\nverifies    no: it was not written by this home, and is never"
            f" recalled; `holdfast memory forget {item.id}` removes it"
        )
    facts = [
        ("id", item.id),
        ("text", item.text),
        ("for", f"{_whom(item)}, {item.audience}"),
        (
            "tainted",
            "yes: tools or other people may have written it" if item.tainted else "no",
        ),
        ("asked by", f"{item.person} ({item.authenticity}, {item.kind})"),
        ("from", f"{item.session}, turn {item.turn}, call {item.call}"),
        ("since", item.created_at),
    ]
    return "\n".join(f"{name.ljust(10)}  {value}" for name, value in facts)


async def _forget(options: Options, memory: str, asserted: str | None) -> int:
    from holdfast.cli.shared.consent import require_person
    from holdfast.cli.shared.id_prefix import whole_memory

    require_person("forgetting", home_of(options))
    person = _person(options, asserted)
    async with looking_service(options) as service:
        there = _there(service, memory)
        memory = await whole_memory(there, memory, person=person)
        await there.memory.forget(memory, person=person)
    options.out.result({"memory": memory, "forgotten": True}, f"{memory} is forgotten")
    return 0


async def _session(service: "Service", given: str | None) -> "SessionId | None":
    """Return the session's name. It may be deleted: its memories outlive it."""
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.ids import session_id

    return None if given is None else session_id(await whole_session(service, given))


async def _export(options: Options, session: str | None, asserted: str | None) -> int:
    person = _person(options, asserted)
    left_out = 0
    async with looking_service(options) as service:
        if service is not None:
            only = await _session(service, session)
            async for item in service.memory.items(person=person, session=only):
                if item.verifies:
                    options.out.object(item)
                left_out += not item.verifies
    if left_out:
        options.out.note(
            f"{left_out} rows do not verify, and are left out; `holdfast memory list` names them"
        )
    return 0


def _there(service: "Service | None", memory: str) -> "Service":
    if service is None:
        raise Refused(
            f"no memory {memory}",
            code="unknown",
            hint="`holdfast memory list` shows them",
        )
    return service
