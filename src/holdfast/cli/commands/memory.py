"""
`holdfast memory list | show | forget | export`: remembered items, their person and their origin.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, looking_service, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.runtime.memory.admin import MemoryReport
    from holdfast.runtime.service import Service

_As = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="WHO", help="Only what is this person's: an assertion by the home's owner."
    ),
]
_Id = Annotated[
    str, typer.Argument(metavar="ID", help="The whole id of one remembered thing (m-...).")
]
_Session = Annotated[
    str | None,
    typer.Option("--session", metavar="SESSION", help="Only what was formed in this session."),
]
_TEXT_CHARS = 100


def register(app: typer.Typer) -> None:
    memory = group(
        "memory", "What is remembered beyond a session, for whom, and where it came from."
    )
    app.add_typer(memory)
    _register_looking(memory)

    @command(memory, "forget", example="holdfast memory forget m-7kq2c5x3jz4mw6n8p9r0s1t2vb")
    def forget(ctx: typer.Context, memory: _Id, as_: _As = None) -> None:
        """
        Forget one thing for good. Its person and the home's owner may; what journals say of it
        stays in them.
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
        What is remembered, oldest first.

        The home's owner sees everything, rows that do not verify too; anybody else, and whoever
        `--as` names, only what is their own.
        """
        options = options_of(ctx)
        run(lambda: _list(options, session, limit, after, as_))

    @command(memory, "show", example="holdfast memory show m-7kq2c5x3jz4mw6n8p9r0s1t2vb")
    def show(ctx: typer.Context, memory: _Id, as_: _As = None) -> None:
        """
        One remembered thing, whole: for whom it may be recalled, whether it is tainted, the turn it
        came from.
        """
        options = options_of(ctx)
        run(lambda: _show(options, memory, as_))

    @command(
        memory,
        "export",
        example="holdfast memory export > memory.jsonl\nholdfast memory export --as alice",
    )
    def export(ctx: typer.Context, session: _Session = None, as_: _As = None) -> None:
        """Everything that is remembered, one JSON object a line."""
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
    from holdfast.ids import session_id
    from holdfast.runtime.memory.admin import MemoryList, memory_list

    person = _person(options, asserted)
    only = session_id(session) if session is not None else None
    async with looking_service(options) as service:
        found = MemoryList(memory=(), next=None)
        if service is not None:
            found = await memory_list(
                service, person=person, session=only, limit=limit, after=after
            )
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
    from holdfast.runtime.memory.admin import memory_item

    person = _person(options, asserted)
    async with looking_service(options) as service:
        report = await memory_item(_there(service, memory), memory, person=person)
    options.out.result(report, _text(report))
    return 0


def _text(item: "MemoryReport") -> str:
    if not item.verifies:
        return f"id          {item.id}\nverifies    no: it was not written by this home, and is never recalled; `holdfast memory forget {item.id}` removes it"
    facts = [
        ("id", item.id),
        ("text", item.text),
        ("for", f"{_whom(item)}, {item.audience}"),
        (
            "tainted",
            "yes: it may come from content that nobody vouches for" if item.tainted else "no",
        ),
        ("asked by", f"{item.person} ({item.authenticity}, {item.kind})"),
        ("from", f"{item.session}, turn {item.turn}, call {item.call}"),
        ("since", item.created_at),
    ]
    return "\n".join(f"{name.ljust(10)}  {value}" for name, value in facts)


async def _forget(options: Options, memory: str, asserted: str | None) -> int:
    from holdfast.cli.shared.consent import require_person
    from holdfast.runtime.memory.admin import forget_memory

    require_person("forgetting", home_of(options))
    person = _person(options, asserted)
    async with looking_service(options) as service:
        await forget_memory(_there(service, memory), memory, person=person)
    options.out.result({"memory": memory, "forgotten": True}, f"{memory} is forgotten")
    return 0


async def _export(options: Options, session: str | None, asserted: str | None) -> int:
    from holdfast.ids import session_id
    from holdfast.runtime.memory.admin import memory_items

    person = _person(options, asserted)
    only = session_id(session) if session is not None else None
    left_out = 0
    async with looking_service(options) as service:
        if service is not None:
            async for item in memory_items(service, person=person, session=only):
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
            f"there is no memory {memory}",
            code="unknown",
            hint="`holdfast memory list` shows what there is",
        )
    return service
