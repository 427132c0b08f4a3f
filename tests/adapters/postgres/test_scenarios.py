"""
Every scenario of the story book over two nodes, the second writing every other step: each node
decides on exactly what the other one wrote. A fixed share runs in `make test`, the others in
`make test-postgres`.
"""

import asyncio
import itertools
import shutil
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld
from proof.scenarios.pure_session import Stored
from proof.scenarios.teller import SEPARATOR, Teller

from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Draft, Record
from holdfast.ports.journal_store import Check, Journal, Section
from holdfast.testing.loop import in_loop

FILES = sorted((Path(__file__).parents[2] / "proof" / "scenarios").rglob("*.txt"))
SHARE = 5  # one of so many runs in `make test`
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def nodes(
    postgres: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[PostgresStore, PostgresStore], None, None]:
    folder = tmp_path_factory.mktemp("nodes")
    world = PostgresWorld(postgres.url(), "hf_scenarios", folder / "one")
    (folder / "two").mkdir(mode=0o700)
    shutil.copytree(folder / "one" / "keys", folder / "two" / "keys")
    init_home(world.place, folder / "two")
    first = asyncio.run(world.store())
    second = asyncio.run(PostgresStore.open_home(world.place, folder / "two", ahead_ms=None))
    yield first, second
    asyncio.run(second.close())
    world.close()


class Mirror:
    """One session in the database, and both nodes' handles on it."""

    def __init__(self, nodes: tuple[PostgresStore, PostgresStore]) -> None:
        self._nodes = nodes
        self._written: list[Stored] = []
        self._turns = itertools.cycle((0, 1))
        self._handles: list[Journal] = []
        self._known: list[list[tuple[str, int, bytes]]] = []

    async def take(self, records: Sequence[Stored]) -> None:
        """Write what came since, by the node whose turn it is. A crash may have lost the end."""
        if records[: len(self._written)] != self._written or not self._written:
            await self._begin(records)
        elif len(records) > len(self._written):
            node = next(self._turns)
            await self._append(node, records[len(self._written) :])
        self._written = list(records)

    async def _begin(self, records: Sequence[Stored]) -> None:
        number = next(_NUMBERS)
        session, instance = SessionId(f"told/s{number}"), InstanceId(f"i{number}")
        first = await self._nodes[0].create(
            session, instance, _drafts(records), origin="created", by="tests"
        )
        self._handles = [first, await self._nodes[1].open(session)]
        self._known = [[], []]
        for node in (0, 1):
            await self._load(node)

    async def _load(self, node: int) -> None:
        known = self._known[node]
        known.clear()
        await self._handles[node].load(lambda record: known.append(_facts(record)))

    async def _append(self, node: int, records: Sequence[Stored]) -> None:
        handle, known = self._handles[node], self._known[node]
        expected = [each[:3] for each in self._written]

        seen: list[list[tuple[str, int, bytes]]] = []

        def decide(section: Section) -> Sequence[Draft]:
            seen.append([*known, *map(_facts, section.suffix)])
            return _drafts(records)

        appended = await handle.append(decide, since=handle.head, check=Check.FENCE)
        assert seen[-1] == expected, "the kept decision was made on something else"
        known += map(_facts, appended.suffix)

    async def check(self, records: Sequence[Stored]) -> None:
        for node in (0, 1):
            await self._load(node)
            assert self._known[node] == [each[:3] for each in records]
        verdicts = [await store.verify_session(self._handles[0].session) for store in self._nodes]
        assert [each.verdict for each in verdicts] == ["holds", "holds"]


def _drafts(records: Sequence[Stored]) -> list[Draft]:
    return [Draft(each.type, each.version, each.body) for each in records]


def _facts(record: Record) -> tuple[str, int, bytes]:
    return record.type, record.version, record.body


def _steps(path: Path) -> list[str]:
    blocks = path.read_text().rstrip("\n").split("\n\n")
    told = [block.partition(f"\n{SEPARATOR}") for block in blocks]
    return [step for steps, separator, _ in told if separator for step in steps.split("\n")]


def _params() -> list[object]:
    return [
        pytest.param(
            path, id=path.stem, marks=() if number % SHARE == 0 else pytest.mark.beyond_share
        )
        for number, path in enumerate(FILES)
    ]


@pytest.mark.parametrize("path", _params())
@in_loop
async def test_two_nodes_tell_the_scenario_in_turn(
    nodes: tuple[PostgresStore, PostgresStore], path: Path
) -> None:
    teller, mirror = Teller(), Mirror(nodes)
    await mirror.take(teller.pure.records)
    for step in _steps(path):
        teller.tell([step])
        await mirror.take(teller.pure.records)
    await mirror.check(teller.pure.records)


def test_there_are_scenarios() -> None:
    assert len(FILES) > 100
