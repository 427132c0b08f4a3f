"""
Equal commands give equal outcomes and equal journals, whichever store keeps them (D10): in memory,
in files and in PostgreSQL, each used by two processes at once.

Handles lag, drivers come and go, clocks jump, sessions are sealed, replaced and deleted. Every
command is given to all three; its outcome, the records and the home's facts must be the same.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.files import FileStore
from holdfast.adapters.inmemory import InMemoryDisk, InMemoryStore
from holdfast.errors import HoldfastError
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Appended, Check, Claim, Head, Journal, Record, SealMark
from holdfast.testing import ManualClock
from holdfast.testing.conformance.store import everything, note, says

HANDLES = (0, 0, 1)  # two of one process, one of another
_NAMES = itertools.count(1)


class Kind:
    """One store, opened by two processes, and one session in it."""

    def __init__(self, name: str, stores: list[Any], *, headers: int) -> None:
        self.name, self.stores = name, stores
        self.headers = headers  # records of its own that a journal begins with
        self.handles: list[Journal] = []
        self.heads: list[list[Head]] = []  # that each handle ever had
        self.claims: dict[int, Claim] = {}
        self.epochs = [0]  # that were ever claimed

    async def open(self, session: SessionId, who: int) -> None:
        handle = await self.stores[HANDLES[who]].open(session)
        await handle.load(lambda _: None)
        self.claims.pop(who, None)
        self.handles[who], self.heads[who] = handle, [handle.head]

    def facts(self, record: Record) -> tuple[Any, ...]:
        seq = record.seq - self.headers
        return seq, record.at, record.epoch, record.type, record.version, record.body

    async def outcome(self, work: Awaitable[Any]) -> Any:
        try:
            found = await work
        except HoldfastError as exc:
            return type(exc).__name__, exc.code
        if isinstance(found, Appended):
            return found.head.seq - self.headers, [self.facts(each) for each in found.suffix]
        return found


class StoreMachine(RuleBasedStateMachine):
    def __init__(self, runner: asyncio.Runner, kinds: list[Kind], clock: ManualClock) -> None:
        super().__init__()
        self.runner, self.kinds, self.clock = runner, kinds, clock
        number = next(_NAMES)
        self.session = SessionId(f"ops/s{number}")
        self.instances = (InstanceId(f"i{number}-{each}") for each in itertools.count())
        self.count = 0

    def all(self, work: Callable[[Kind], Awaitable[Any]]) -> Any:
        """Give a command to every store; return its outcome, which is the same everywhere."""

        async def run() -> list[Any]:
            return [await kind.outcome(work(kind)) for kind in self.kinds]

        outcomes = self.runner.run(run())
        told = {kind.name: each for kind, each in zip(self.kinds, outcomes, strict=True)}
        assert all(each == outcomes[0] for each in outcomes), told
        return outcomes[0]

    def texts(self, many: int) -> list[str]:
        self.count += many
        return [f"{self.count - each}" for each in range(many)]

    @initialize()
    def begin(self) -> None:
        self.create("created")
        for kind in self.kinds:
            kind.handles, kind.heads, kind.claims = [None] * 3, [[], [], []], {}  # type: ignore[list-item]
            kind.epochs = [0]
        for who in range(len(HANDLES)):
            self.all(lambda kind, who=who: kind.open(self.session, who))

    def create(self, origin: str) -> None:
        instance = next(self.instances)

        async def work(kind: Kind) -> None:
            first = [note("born")]
            made = await kind.stores[0].create(
                self.session, instance, first, origin=origin, by="tests"
            )
            await made.close()

        self.all(work)

    async def is_living(self, kind: Kind, who: int) -> bool:
        """No contract says what anything but an append and a load does after the end."""
        return bool(await kind.stores[0].current(self.session) == kind.handles[who].instance)

    async def is_open(self, kind: Kind, who: int) -> bool:
        is_sealed = self.session in await kind.stores[0].seals()
        return not is_sealed and await self.is_living(kind, who)

    # --- Writing

    @rule(
        who=st.integers(0, 2),
        many=st.integers(0, 3),
        check=st.sampled_from(Check),
        behind=st.integers(0, 3),
    )
    def append(self, who: int, many: int, check: Check, behind: int) -> None:
        """As anyone may, since any head that this handle ever had: the rest comes back first."""
        said = self.texts(many)

        async def work(kind: Kind) -> Appended:
            heads = kind.heads[who]
            since = heads[-1 - min(behind, len(heads) - 1)]
            done = await kind.handles[who].append(says(*said), since=since, check=check)
            heads.append(done.head)
            return done

        self.all(work)

    @rule(who=st.integers(0, 2), at=st.integers(0, 5), many=st.integers(1, 2))
    def drive(self, who: int, at: int, many: int) -> None:
        """With any epoch that was ever claimed here."""
        said = self.texts(many)

        async def work(kind: Kind) -> Appended:
            epoch = kind.epochs[-1 - at % len(kind.epochs)]
            since = kind.heads[who][-1]
            done = await kind.handles[who].append(says(*said), since=since, epoch=epoch)
            kind.heads[who].append(done.head)
            return done

        self.all(work)

    @rule(who=st.integers(0, 2))
    def claim(self, who: int) -> None:
        async def work(kind: Kind) -> int | None:
            claim = await kind.handles[who].claim() if await self.is_open(kind, who) else None
            if claim is None:
                return None
            kind.claims[who] = claim
            kind.epochs.append(claim.epoch)
            return claim.epoch

        self.all(work)

    @rule(who=st.integers(0, 2))
    def release(self, who: int) -> None:
        async def work(kind: Kind) -> None:
            if who in kind.claims:
                await kind.claims.pop(who).release()

        self.all(work)

    @rule(who=st.integers(0, 2))
    def reopen(self, who: int) -> None:
        async def work(kind: Kind) -> None:
            if who in kind.claims:
                await kind.claims.pop(who).release()
            await kind.open(self.session, who)

        self.all(work)

    @rule(milliseconds=st.integers(-5_000, 5_000))
    def tick(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)

    # --- Ends

    @rule(who=st.integers(0, 2))
    def seal(self, who: int) -> None:
        async def work(kind: Kind) -> None:
            if await self.is_living(kind, who):
                await kind.handles[who].seal(SealMark("broken", "it contradicts itself"))

        self.all(work)

    @rule(origin=st.sampled_from(["restore", "unseal"]))
    def replace(self, origin: str) -> None:
        self.create(origin)

    @rule(is_made_again=st.booleans())
    def delete(self, is_made_again: bool) -> None:
        self.all(lambda kind: kind.stores[0].delete(self.session, by="tests"))
        if is_made_again:
            self.create("created")

    # --- Beside the journal

    @rule(who=st.integers(0, 2), text=st.sampled_from(["one", "two"]))
    def keep(self, who: int, text: str) -> None:
        async def work(kind: Kind) -> tuple[str, bytes, int] | None:
            handle = kind.handles[who]
            if not await self.is_living(kind, who):
                return None
            digest = await handle.keep_output(text.encode())
            await handle.quarantine("reply", json.dumps({"text": text}).encode())
            return digest, await handle.output(digest), len(await handle.quarantined())

        self.all(work)

    # --- What must be the same

    @rule(who=st.integers(0, 2))
    def look(self, who: int) -> None:
        """
        Whether the caller has everything. A refused append may have moved the handle's own head.
        """

        async def work(kind: Kind) -> bool:
            handle, known = kind.handles[who], kind.heads[who][-1]
            is_open = await self.is_open(kind, who)
            return is_open and await handle.is_at_head() and handle.head == known

        self.all(work)

    @rule()
    def read_from_the_beginning(self) -> None:
        async def work(kind: Kind) -> Any:
            handle = await kind.stores[1].open(self.session)
            records = [kind.facts(each) for each in await everything(handle)]
            lines = [json.loads(each) async for each in handle.lines()][kind.headers :]
            names = ("type", "at", "epoch", "body")
            told = [[each["seq"] - kind.headers, *map(each.get, names)] for each in lines]
            await handle.close()
            # Nothing follows the head of a sealed handle, so it may be any.
            return records, told, handle.sealed or handle.head.seq - kind.headers

        self.all(work)

    @invariant()
    def homes_know_the_same(self) -> None:
        async def work(kind: Kind) -> Any:
            store = kind.stores[0]
            seals = await store.seals()
            heads = await store.heads_of([self.session])
            return (
                await store.current(self.session),
                [(instance, seq - kind.headers) for _, instance, seq in heads],
                seals[self.session].code if self.session in seals else None,
            )

        self.all(work)

    def teardown(self) -> None:
        async def work(kind: Kind) -> None:
            for claim in kind.claims.values():
                await claim.release()

        self.all(work)


@pytest.mark.timeout(3600)
def test_equal_commands_give_equal_outcomes_and_journals_in_every_store(
    postgres: Cluster, tmp_path: Path
) -> None:
    clock, disk, home = ManualClock(), InMemoryDisk(), tmp_path / "home"
    world = PostgresWorld(postgres.url(), f"hf_{uuid4().hex[:12]}", tmp_path / "node", clock=clock)

    async def opened() -> list[Kind]:
        return [
            Kind("memory", [InMemoryStore(disk, clock=clock) for _ in "ab"], headers=0),
            Kind("files", [await FileStore.open_home(home, clock=clock) for _ in "ab"], headers=1),
            Kind("postgres", [await world.store(clock=clock) for _ in "ab"], headers=1),
        ]

    with asyncio.Runner() as runner:
        kinds = runner.run(opened())
        try:
            run_state_machine_as_test(
                lambda: StoreMachine(runner, kinds, clock),
                settings=settings(
                    stateful_step_count=25,
                    phases=set(Phase) - {Phase.shrink},  # it takes minutes over real stores
                ),
            )
        finally:
            for store in kinds[1].stores:
                runner.run(store.close())
    world.close()
