"""
100,000 sessions, 10,000 of them waiting: the first page, a page from the middle, everything that
waits.

They are made by the store's own creations, five hundred to a commit of the home's journal and with
syncs switched off; their rows are put by the index itself. Whole turns for all of them would take a
quarter of an hour, and lists read neither journals nor anything else that a turn leaves.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.ground import Ground, Row, Times, told, under, without_syncs
from bench.parked import ONE_PARKED, specs
from bench.turns import SOURCE
from holdfast.adapters.files import FileStore
from holdfast.adapters.files.session.create import create_instance
from holdfast.assembly.service import open_service
from holdfast.ids import SessionId, new_instance
from holdfast.journal.record import Draft
from holdfast.ports.index import IndexRow
from holdfast.ports.journal_store import Section
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.codec import encode
from holdfast.session.events import SessionBorn
from holdfast.session.home.events import SessionCreated, encode_home_event

PART = "sessions list"
SESSIONS = 100_000
WAITING = 10  # one in ten
COMMIT = 500
PAGE = 50
TIMES = 9


def measure(ground: Ground) -> list[Row]:
    sessions = ground.count(SESSIONS, 1_000)
    home = ground.fresh("listing") / "home"
    with without_syncs():
        building = asyncio.run(_build(home, sessions))
    return asyncio.run(_measured(home, sessions, building))


async def _measured(home: Path, sessions: int, building: float) -> list[Row]:
    started = time.perf_counter()
    async with _opened(home) as service:
        opening = time.perf_counter() - started
        first = await _timed(lambda: service.sessions(limit=PAGE))
        pages = Times([await _timed(lambda: service.sessions(limit=PAGE)) for _ in range(TIMES)])
        middle = Times(
            [
                await _timed(lambda: service.sessions(limit=PAGE, after=SessionId("bench/p5")))
                for _ in range(TIMES)
            ]
        )
        waiting = Times([await _timed(service.approvals) for _ in range(3)])
        assert len(await service.approvals()) == -(-sessions // WAITING)
    told_ = f"{sessions:,} sessions, {sessions // WAITING:,} waiting"
    return [
        under(
            PART,
            f"first page of {PAGE}, {told_}",
            pages.p50,
            0.05,
            note=f"the first of a process: {told(first)}, once it has opened the home: {told(opening)}",
        ),
        under(PART, f"a page of {PAGE} from the middle", middle.p50, 0.05),
        Row(
            PART,
            "everything that waits",
            told(waiting.p50),
            note="looks at every anchor and every row, since any may have been missed in a crash",
        ),
        Row(
            PART,
            "made",
            f"{building / sessions * 1e6:.0f} us each",
            note="creations and index rows in bulk, with syncs switched off while building only",
        ),
    ]


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


@asynccontextmanager
async def _opened(home: Path) -> AsyncIterator[Service]:
    agents, tools, models = specs()
    async with open_service(home, agents=agents, tools=tools, models=models) as service:
        yield service


async def _build(home: Path, sessions: int) -> float:
    async with _opened(home) as service:
        await service.send(ONE_PARKED, Incoming(text="restart the api", source=SOURCE))
        parked = await service.runtime.world.index.get(ONE_PARKED)
        assert parked is not None
        await service.runtime.world.store.delete(ONE_PARKED, by="bench")
        await service.runtime.world.index.forget(ONE_PARKED)
        store = service.runtime.world.store
        assert isinstance(store, FileStore)
        started = time.perf_counter()
        for start in range(0, sessions, COMMIT):
            made = _create_all(
                store,
                [
                    SessionId(f"bench/p{number}")
                    for number in range(start, min(start + COMMIT, sessions))
                ],
            )
            for number, created in enumerate(made, start):
                await service.runtime.world.index.put(
                    _row(parked, created, waits=number % WAITING == 0)
                )
        return time.perf_counter() - started


def _create_all(store: FileStore, names: Sequence[SessionId]) -> list[SessionCreated]:
    """As `FileStore.create` does, many to one commit."""
    made: list[SessionCreated] = []
    folders = store._directory._folders

    def decide(section: Section) -> Sequence[Draft]:
        slot = store._own.registry.state.slots_used
        for offset, session in enumerate(names):
            instance = new_instance(os.urandom)
            files = store._files.at(session, instance, slot + offset)
            first = [
                Draft(
                    *encode(
                        SessionBorn(
                            session=session, instance=instance, origin="created", by="bench"
                        )
                    )
                )
            ]
            instance_made = create_instance(
                files, folders, first, at=section.now, writer=store.writer
            )
            made.append(
                SessionCreated(
                    session=session,
                    instance=instance,
                    first_mac=instance_made.first_mac,
                    slot=slot + offset,
                    origin="created",
                    by="bench",
                )
            )
        return [Draft(*encode_home_event(each)) for each in made]

    store._own.append(decide)
    store._own.registry.refresh()
    if (due := store._own.registry.snapshot_if_due()) is not None:
        store.keep_snapshot(store._own.files, due)
    return made


def _row(parked: IndexRow, created: SessionCreated, *, waits: bool) -> IndexRow:
    row = msgspec.structs.replace(parked, session=created.session, instance=created.instance)
    return (
        row
        if waits
        else msgspec.structs.replace(
            row, approvals=(), waiting_for=(), expires_at=None, phase="idle"
        )
    )
