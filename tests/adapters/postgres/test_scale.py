"""
Lists cost their own length, not the number of sessions: each statement that a list, the due work,
the inbox or a follower runs is explained by the server over tens of thousands of rows.
"""

import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

import pytest
from proof.rigs.cutting_proxy import CuttingProxy
from proof.rigs.postgres_cluster import Cluster
from proof.rigs.postgres_world import PostgresWorld

import holdfast
from holdfast.adapters.postgres.lists.index import COMPARE_SECONDS, PostgresIndex
from holdfast.adapters.postgres.server import DatabaseAddress, Wire
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.assembly.service import open_service
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.inbox_hub import InboxHub
from holdfast.gateway.streams.registry import Streams
from holdfast.home import Agent, specs_from_agents
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Draft
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.home.events import SessionCreated, TokenAdded, encode_home_event
from holdfast.testing import ScriptModel
from holdfast.testing.journal_notes import says_drafts
from holdfast.testing.loop import in_loop

OTHERS = 20_000  # rows of sessions that nobody asks for
DO = Incoming(text="do", source=holdfast.MessageSource.local("alice"))
EXAMINED_MAX = 500  # rows that one statement may look at; the home itself has a dozen sessions


@pytest.fixture
def world(
    postgres_world: Callable[[], PostgresWorld],
) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    (world.folder / "holdfast.toml").write_text(
        f'[storage]\nurl = "{world.place.url}"\nschema = "{world.place.schema}"\n'
    )
    yield world
    world.close()


def _agent() -> Agent:
    @holdfast.tool
    def act(what: str) -> str:
        """Do something."""
        return what

    line = {"call": [{"tool": "act", "args": {"what": "it"}, "id": "c1"}]}
    return Agent("ops", model=ScriptModel([line] * 20), tools=[act])


def _opened(world: PostgresWorld) -> Any:
    specs, tools, models = specs_from_agents([_agent()])
    return open_service(world.folder, agents=specs, tools=tools, models=models)


def _crowd(world: PostgresWorld) -> None:
    """Fill the tables as a home of many sessions has them. These rows are of nobody's sessions."""
    world.rows(
        "insert into head (session, instance, seq, mac, at, segment_seq) "
        "select 'crowd/' || n, 'i' || n, 9, '\\x00', 0, 1 from generate_series(1, %s) n",
        OTHERS,
    )
    world.rows(
        "insert into standing select 'crowd/' || n, 'i' || n, 9, 0, 0, 0, 0, 0, '', '\\x00', '', "
        "'\\x00' from generate_series(1, %s) n",
        OTHERS,
    )
    for table in ("head", "standing", "record", "belongs"):
        world.rows(f"analyze {table}")  # as autovacuum does
    # It counted `moved` while many sessions moved: a plan that expects that many reads every head.
    world.rows("insert into moved (journal, seq) select -n, 1 from generate_series(1, 4000) n")
    world.rows("analyze moved")
    world.rows("delete from moved where journal < 0")


class Statements:
    """The statements that readers run, with their values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, Any]] = []
        rows = Wire.rows

        def watched(wire: Wire, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
            self.seen.append((sql, values))
            return rows(wire, sql, values)

        monkeypatch.setattr(Wire, "rows", watched)

    async def during(self, work: Awaitable[Any]) -> list[tuple[str, Any]]:
        self.seen.clear()
        await work
        return [(sql, values) for sql, values in self.seen if _reads_tables(sql)]


def _reads_tables(sql: str) -> bool:
    return sql.startswith("select") and ("hf.head" in sql or "hf.standing" in sql or "hf.m" in sql)


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(each for below in plan.get("Plans", ()) for each in _nodes(below))]


def _wrong_with_plan(world: PostgresWorld, sql: str, values: Any) -> list[str]:
    """Why the statement's cost grows with the number of sessions, if it does."""
    text = sql.replace("hf.", f'"{world.place.schema}".')
    found = world.outsider.execute(f"explain (analyze, format json) {text}", values)
    (plan,) = found.fetchone() or ({},)
    plan = plan if isinstance(plan, list) else json.loads(plan)
    wrong = []
    for node in _nodes(plan[0]["Plan"]):
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
        examined = (node["Actual Rows"] + removed) * node["Actual Loops"]
        table = node.get("Relation Name")
        if node["Node Type"] in {"Hash Join", "Merge Join"}:  # it stops early only by luck
            wrong.append(f"reads all of a table to join it: {sql}")
        if node["Node Type"] == "Seq Scan" and table != "moved":
            wrong.append(f"reads all of {table}: {sql}")
        if examined > EXAMINED_MAX:
            wrong.append(f"{node['Node Type']} looks at {examined} rows of {table}: {sql}")
    return wrong


def _bearer() -> Bearer:
    return Bearer.of(
        TokenAdded(
            name="t", digest="d", person="alice", scopes=("read",), audience="personal",
            expires_at=None, by="alice",
        )
    )  # fmt: skip


@in_loop
async def test_no_list_costs_more_because_of_sessions_that_it_does_not_show(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page, a later page, due work, prompts, the inbox's look, a follower's look, jobs."""
    names = [SessionId(f"ops/{number:02}") for number in range(12)]
    async with _opened(world) as service:
        for name in names:
            await service.send(name, DO)
        assert len(await service.approvals()) == len(names)
        _crowd(world)
        statements = Statements(monkeypatch)
        none: Any = None
        hub = InboxHub(
            service,
            Streams(none, none, streams_max=9, streams_per_token_max=9, streams_per_person_max=9),
        )
        async with hub.open(_bearer(), after=None):
            works: dict[str, Callable[[], Awaitable[Any]]] = {
                "first page": lambda: service.sessions(limit=5),
                "later page": lambda: service.sessions(limit=5, after=names[5]),
                "due": service.owing,
                "prompts": service.approvals,
                "reminders": service.reminders.list,
                "inbox": hub.look,
                "followers": lambda: service.live.heads_of(names[:3]),
                "jobs": service.jobs.running,
            }
            for what, work in works.items():
                seen = await statements.during(work())
                assert seen, what
                assert [
                    wrong for sql, values in seen for wrong in _wrong_with_plan(world, sql, values)
                ] == [], what


@in_loop
async def test_a_plan_that_reads_every_row_is_seen(world: PostgresWorld) -> None:
    """The check itself: what lists did before does not pass."""
    _crowd(world)
    every = "select session, instance, seq from hf.head where not ended"
    assert any("reads all of head" in each for each in _wrong_with_plan(world, every, ()))
    page = "select session from hf.standing order by session limit 1024"
    assert any("looks at" in each for each in _wrong_with_plan(world, page, ()))


# --- what the index lacks


async def _behind(index: PostgresIndex) -> list[str]:
    async def refused() -> Any:
        raise AssertionError("all heads were read")

    return list(await index.behind(refused))


@in_loop
async def test_a_session_that_moved_without_its_row_is_known_until_the_row_is_put(
    world: PostgresWorld,
) -> None:
    """So a crash between an append and the index loses nothing, at the cost of what moved."""
    async with _opened(world) as service:
        runtime = service.runtime.world
        index: Any = runtime.index
        await service.send("ops/a", DO)
        await service.send("ops/b", DO)
        await service.approvals()
        assert await _behind(index) == []
        row = await index.get(SessionId("ops/a"))
        world.rows(
            "update moved set listed = listed - 1 where journal = %s", world.journal("ops/a")
        )
        assert await _behind(index) == ["ops/a"]
        await index.put(row)
        assert await _behind(index) == []
        await index.forget(SessionId("ops/b"))
        assert await _behind(index) == ["ops/b"]
        assert len(await service.approvals()) == 2
        assert await _behind(index) == []


@in_loop
async def test_rows_that_a_superuser_removed_are_found_at_the_next_comparison(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node compares all of them when it starts, and then every ten minutes."""
    async with _opened(world) as service:
        await service.send("ops/a", DO)
        assert len(await service.approvals()) == 1
        world.rows("truncate standing, moved")
        assert len(await service.approvals()) == 0
        monkeypatch.setattr("holdfast.adapters.postgres.lists.index.COMPARE_SECONDS", 0.0)
        assert len(await service.approvals()) == 1
        world.rows("truncate standing, moved")
    monkeypatch.setattr("holdfast.adapters.postgres.lists.index.COMPARE_SECONDS", COMPARE_SECONDS)
    async with _opened(world) as service:
        assert len(await service.approvals()) == 1


@in_loop
async def test_rows_of_sessions_that_rest_are_swept_and_others_stay(world: PostgresWorld) -> None:
    async with _opened(world) as service:
        for name in ("ops/rests", "ops/unlisted", "ops/fresh"):
            await service.send(name, DO)
        await service.approvals()
        old = "update moved set at = at - interval '3 minutes' where journal = %s"
        for name in ("ops/rests", "ops/unlisted"):
            world.rows(old, world.journal(SessionId(name)))
        await service.runtime.world.index.forget(SessionId("ops/unlisted"))
        world.rows("select sweep_moved()")
        left = world.rows("select h.session from moved join head h using (journal) order by 1")
        assert [name for (name,) in left if name != "_home"] == ["ops/fresh", "ops/unlisted"]


@in_loop
async def test_the_home_is_not_read_again_when_it_opens_a_segment(
    world: PostgresWorld, postgres: Cluster
) -> None:
    """A process folds what was added since, however long the home's journal is."""
    proxy = CuttingProxy(postgres.port)
    place = DatabaseAddress(postgres.url(port=proxy.port), world.place.schema)
    store = await PostgresStore.open_home(place, world.folder, ahead_ms=None)
    trips = []
    try:
        for batch in range(6):
            own = await store.home()
            created = [_created(f"many/s{batch}-{number}") for number in range(200)]
            before = proxy.requests
            await own.append(says_drafts(created), since=own.head)
            assert len(await store.sessions()) == 200 * (batch + 1)
            trips.append(proxy.requests - before)
    finally:
        await store.close()
        proxy.close()
    assert world.rows("select count(*) from segment") > [(4,)]
    # The lease is kept meanwhile, which takes a few trips now and then.
    assert min(trips[-3:]) <= min(trips[:3]) + 1, trips


def _created(name: str) -> Draft:
    event = SessionCreated(
        session=SessionId(name),
        instance=InstanceId("i"),
        first_mac="0" * 64,
        slot=int(name.rpartition("-")[2]),
        origin="created",
        by="tests",
    )
    return Draft(*encode_home_event(event))
