"""
Read memory from outside of a turn: list, show, forget, export. For people at the home;
`memory/recall.py` recalls for a turn.

The home's owner sees every row, but only the id of a row that does not verify. Other people see
their own items only. Names are compared byte for byte. An item of another person is reported as
missing.
"""

from collections.abc import AsyncIterator
from functools import partial

import msgspec

from holdfast.errors import Busy, Refused, Unusable
from holdfast.ids import SessionId
from holdfast.ports.memory import CannotRecall, Memory, MemoryRow
from holdfast.runtime.reports.types import iso
from holdfast.runtime.runtime import Runtime
from holdfast.secrecy import Secrecy, secrecy_of
from holdfast.threads import BLOCKING

_PAGE = 500


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    One remembered item. A row that does not verify has only its id, since nothing else in it can be
    believed.
    """

    id: str
    verifies: bool
    text: str | None = None
    audience: str | None = None
    boundary: str | None = None
    person: str | None = None
    tainted: bool | None = None
    authenticity: str | None = None
    kind: str | None = None
    session: str | None = None
    instance: str | None = None
    turn: str | None = None
    call: str | None = None
    created_at: str | None = None


class MemoryList(msgspec.Struct, frozen=True, kw_only=True):
    memory: tuple[MemoryReport, ...]
    next: str | None  # `--after` for the next page; None on the last page


async def memory_list(
    runtime: Runtime,
    *,
    person: str | None,
    session: SessionId | None = None,
    limit: int = 100,
    after: str | None = None,
) -> MemoryList:
    """
    List items, oldest first. With `person` None, list everything: for the home's owner at the home
    itself.
    """
    found: list[MemoryReport] = []
    async for report in memory_items(runtime, person=person, session=session, after=after):
        if len(found) == limit:
            return MemoryList(memory=tuple(found), next=found[-1].id)
        found.append(report)
    return MemoryList(memory=tuple(found), next=None)


async def memory_items(
    runtime: Runtime,
    *,
    person: str | None,
    session: SessionId | None = None,
    after: str | None = None,
) -> AsyncIterator[MemoryReport]:
    memory, secrecy = _memory(runtime), secrecy_of(runtime.world.secrets)
    while True:
        rows = await BLOCKING.call(partial(_page, memory, after))
        for row in rows:
            if _sees(row, person) and (
                session is None or (row.item is not None and row.item.session == session)
            ):
                yield _report(row, secrecy)
        if len(rows) < _PAGE:
            return
        after = rows[-1].id


async def memory_item(runtime: Runtime, name: str, *, person: str | None) -> MemoryReport:
    return _report(
        await BLOCKING.call(lambda: _row(_memory(runtime), name, person)),
        secrecy_of(runtime.world.secrets),
    )


async def forget_memory(runtime: Runtime, name: str, *, person: str | None) -> None:
    """Remove an item: durable on return. Its records in the sessions' journals stay."""
    memory = _memory(runtime)
    await BLOCKING.call(lambda: _row(memory, name, person))
    if not await BLOCKING.call(lambda: memory.forget(name)):
        raise _unknown(name)


def _memory(runtime: Runtime) -> Memory:
    if runtime.world.memory is None:
        raise Unusable("this home has no memory", hint="it is in homes of files")
    return runtime.world.memory


def _page(memory: Memory, after: str | None) -> list[MemoryRow]:
    try:
        return list(memory.rows(after=after, limit=_PAGE))
    except CannotRecall as exc:
        raise _not_now(exc) from exc


def _row(memory: Memory, name: str, person: str | None) -> MemoryRow:
    """
    Return the row of that id, if the person may see it. Only the owner learns of rows that do not
    verify.
    """
    try:
        item = memory.get(name)
        row = MemoryRow(name, item)
        if item is None and not (person is None and any(each.id == name for each in memory.rows())):
            raise _unknown(name)
    except CannotRecall as exc:
        raise _not_now(exc) from exc
    if not _sees(row, person):
        raise _unknown(name)
    return row


def _sees(row: MemoryRow, person: str | None) -> bool:
    return person is None or (row.item is not None and row.item.person == person)


def _not_now(exc: CannotRecall) -> Busy:
    return Busy(
        f"memory can't be read: {exc}",
        code="io",
        hint="`holdfast doctor` looks for the reason",
    )


def _unknown(name: str) -> Refused:
    return Refused(
        f"no memory {name}",
        code="unknown",
        hint="`holdfast memory list` shows them",
    )


def _report(row: MemoryRow, secrecy: Secrecy) -> MemoryReport:
    item = row.item
    if item is None:
        return MemoryReport(id=row.id, verifies=False)
    return MemoryReport(
        id=item.id,
        verifies=True,
        text=secrecy.hidden(item.text),
        audience=item.audience,
        boundary=item.boundary,
        person=item.person,
        tainted=item.tainted,
        authenticity=item.authenticity,
        kind=item.kind,
        session=item.session,
        instance=item.instance,
        turn=item.turn,
        call=item.call,
        created_at=iso(item.created_at),
    )
