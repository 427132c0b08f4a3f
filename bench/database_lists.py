"""
100,000 sessions in PostgreSQL, a hundred of them waiting: the first page, the due work, the prompts
and the inbox's look, each against one append in the same home.

The home's records and the rows are written in bulk. No list here opens a session, so the journals
of the others have no records. A server has compared every row before, once.
"""

import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import psycopg

from bench.ground import Ground, Row, Times, compared, told
from bench.journals import new_journal, one
from bench.parked import ONE_PARKED, specs
from bench.turns import SOURCE, instant_service
from holdfast.adapters.sqlite.index_rows import COLUMNS, values_of
from holdfast.assembly.service import open_service
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.inbox_hub import InboxHub
from holdfast.gateway.streams.registry import Streams
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Draft
from holdfast.ports.index import IndexRow
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.home.events import SessionCreated, TokenAdded, encode_home_event

PART = "PostgreSQL"
SESSIONS, WAITING, COMMIT, PAGE, TIMES = 100_000, 100, 200, 50, 40


async def lists(ground: Ground, home: Any, facts: str, other: Any) -> list[Row]:
    """`other` is a home for the append that each is compared with: a list looks at no record of it."""
    sessions = ground.count(SESSIONS, 1_000)
    agents, tools, models = specs()
    async with open_service(home.folder, agents=agents, tools=tools, models=models) as service:
        await service.send(ONE_PARKED, Incoming(text="restart the api", source=SOURCE))
        parked = await service.runtime.world.index.get(ONE_PARKED)
        assert parked is not None
    started = time.perf_counter()
    async with home.store() as store:
        names = [SessionId(f"bench/p{number:06}") for number in range(sessions)]
        for start in range(0, sessions, COMMIT):
            await _create(store, names[start : start + COMMIT])
        with psycopg.connect(f"{facts} dbname=postgres", autocommit=True) as owner:
            owner.execute(f'set search_path to "{home.place.schema}"')
            _fill(owner, store, names, parked)
    building = time.perf_counter() - started
    async with instant_service(home.folder) as service, other.store() as store:
        return await _measured(service, await new_journal(store, "beside"), sessions, building)


async def _create(store: Any, names: Sequence[SessionId]) -> None:
    """Records of the home that name them, many to one commit."""
    own = await store.home()
    slot = store.registry.state.slots_used
    drafts = [
        Draft(*encode_home_event(created))
        for created in (
            SessionCreated(
                session=name,
                instance=_instance(name),
                first_mac="0" * 64,
                slot=slot + offset,
                origin="created",
                by="bench",
            )
            for offset, name in enumerate(names)
        )
    ]
    await own.append(lambda _: drafts, since=own.head)
    await own.close()


def _instance(name: SessionId) -> InstanceId:
    return InstanceId(f"i-{name.rpartition('p')[2]}")


def _fill(owner: Any, store: Any, names: Sequence[SessionId], parked: IndexRow) -> None:
    key = store.index_keys()[0]
    with owner.cursor() as cursor:
        with cursor.copy(
            "copy head (session, instance, seq, mac, at, segment_seq) from stdin"
        ) as rows:
            for name in names:
                rows.write_row((name, _instance(name), 9, os.urandom(32), 1, 1))
        with cursor.copy(f"copy standing ({COLUMNS}) from stdin") as rows:
            for number, name in enumerate(names):
                waits = number % (len(names) // WAITING) == 0
                row = values_of(_row(parked, name, waits=waits), key)
                assert row is not None
                rows.write_row(row)
    for table in ("head", "standing"):
        owner.execute(f"vacuum analyze {table}")


def _row(parked: IndexRow, name: SessionId, *, waits: bool) -> IndexRow:
    given = {"session": name, "instance": _instance(name), "seq": 9}
    if not waits:
        return msgspec.structs.replace(
            parked, **given, approvals=(), waiting_for=(), expires_at=None, phase="idle"
        )
    prompt = json.loads(bytes(parked.approvals[0])) | {"session": name, "id": f"a-{name[-6:]}"}
    return msgspec.structs.replace(
        parked, **given, approvals=(msgspec.Raw(msgspec.json.encode(prompt)),)
    )


async def _measured(service: Service, journal: Any, sessions: int, building: float) -> list[Row]:
    none: Any = None
    hub = InboxHub(
        service,
        Streams(none, none, streams_max=9, streams_per_token_max=9, streams_per_person_max=9),
    )
    started = time.perf_counter()
    await service.owing()
    comparing = time.perf_counter() - started
    works: dict[str, Callable[[], Awaitable[object]]] = {
        "append": lambda: journal.append(one, since=journal.head),
        f"first page of {PAGE}": lambda: service.sessions(limit=PAGE),
        "due work": service.owing,
        "prompts that wait": service.approvals_json,
        "the inbox's look": hub.look,
    }
    found: dict[str, list[float]] = {name: [] for name in works}
    async with hub.open(_bearer(), after=None):
        for _ in range(TIMES):
            for name, work in works.items():
                began = time.perf_counter()
                await work()
                found[name].append(time.perf_counter() - began)
    await journal.close()
    append = Times(found.pop("append"))
    notes = {
        "due work": f"comparing every row, at the start and every ten minutes: {told(comparing)}",
        "prompts that wait": f"{WAITING} of them, with their texts",
        f"first page of {PAGE}": f"made: {building / sessions * 1e6:.0f} us each, in bulk",
    }
    return [
        compared(
            PART,
            f"{name}, {sessions:,} sessions, against one append, p50",
            Times(each).p50,
            append.p50,
            at_most=1,
            note=notes.get(name, ""),
        )
        for name, each in found.items()
    ]


def _bearer() -> Bearer:
    return Bearer.of(
        TokenAdded(
            name="t",
            digest="d",
            person="alice",
            scopes=("read",),
            audience="personal",
            expires_at=None,
            by="bench",
        )
    )
