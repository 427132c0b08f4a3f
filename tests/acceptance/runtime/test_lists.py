"""Lists: page by page, true to the journals after any crash, sealed ones by the home's word."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.adapters.inmemory import Crashed, InMemoryIndex
from holdfast.errors import Busy, Refused
from holdfast.home import Agent
from holdfast.ids import ApprovalId, SessionId
from holdfast.ports.journal_store import Draft
from holdfast.runtime.jobs.verbs import Viewer, list_jobs
from holdfast.runtime.lifecycle import delete
from holdfast.runtime.reports.announcer import write_row
from holdfast.runtime.reports.session_list import is_seen
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.codec import encode
from holdfast.session.events import ModelCallStarted, ModelGiven
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_home import Disk, crash_after, open_in_memory
from tests.acceptance.runtime.conftest import Stage, alice, bob
from tests.acceptance.runtime.test_instances import break_it
from tests.acceptance.runtime.test_pause_and_answer import act


@in_loop
async def test_pages_follow_on_each_other_and_miss_nothing(stage: Stage) -> None:
    async with stage.open(stage.agent([{"say": "ok"}] * 9)) as home:
        for number in range(7):
            await home.send(f"ops/s{number}", "hello", source=alice)
        everything = [line.session for line in await home.service.sessions()]
        paged: list[SessionId] = []
        while page := await home.service.sessions(after=paged[-1] if paged else None, limit=3):
            assert len(page) <= 3
            paged += [line.session for line in page]
        assert paged == everything == [f"ops/s{number}" for number in range(7)]
        seen = await home.service.sessions(limit=2, sees=lambda _: False)
        assert seen == ()


@in_loop
async def test_a_session_without_a_row_is_opened_not_called_sealed(stage: Stage) -> None:
    async with stage.open(stage.agent(act("it"))) as home:
        await home.send("ops/a", "do it", source=alice)
        await home.service.runtime.world.index.forget(SessionId("ops/a"))
        [line] = await home.service.sessions()
        assert (line.phase, line.waiting, line.sealed) == ("parked", 1, None)


@in_loop
async def test_a_row_that_is_written_while_an_append_comes_back_claims_nothing_of_it(
    stage: Stage,
) -> None:
    """
    Durable in its thread, and not folded yet: a row that said it knew this record would be believed
    after a crash, and what it began forgotten.
    """
    async with stage.open(stage.agent([{"say": "ok"}])) as home:
        await home.send("ops/a", "hello", source=alice)
        world = home.service.runtime.world
        async with home.service.runtime.sessions.use(SessionId("ops/a")) as ledger:
            assert (
                await world.index.stale(
                    [(ledger.session, ledger.instance, ledger.journal.head.seq)]
                )
                == []
            )
            given = Draft(*encode(ModelGiven(model="demo", by="alice")))
            done = await ledger.journal.append(lambda _: [given], since=ledger.attempt.position)
            await write_row(world, ledger)
            assert await world.index.stale([(ledger.session, ledger.instance, done.head.seq)]) == [
                "ops/a"
            ]


@in_loop
async def test_a_row_that_says_running_is_not_believed() -> None:
    """After a power cut nobody may drive it any more: the journal is asked."""
    disk = Disk()
    ops = Agent("ops", model=ScriptModel(["hello"]), tools=[])
    index: Any = InMemoryIndex()
    with pytest.raises(Crashed):  # noqa: PT012
        async with open_in_memory(
            agents=[ops], disk=disk, crash=crash_after(ModelCallStarted)
        ) as home:
            home.service.runtime.world.index = index
            await home.send("ops/a", "hi", source=alice)
    async with open_in_memory(agents=[ops], disk=disk) as home:
        [line] = await home.service.sessions()
        assert (line.phase, line.owes) == ("calling_model", ("AwaitModel",))
        assert await home.service.owing() == ["ops/a"]


@in_loop
async def test_a_sealed_session_is_listed_as_the_homes_journal_says(tmp_path: Path) -> None:
    stage = Stage("files", tmp_path / "home")
    async with stage.open(stage.agent([{"say": "ok"}])) as home:
        await home.send("ops/a", "hello", source=alice)
    break_it(stage.folder / "sessions" / "ops" / "a", b"hello", b"HELLO")
    async with stage.open() as home:
        assert (await home.service.show("ops/a")).phase == "sealed"
    (stage.folder / "index.db").unlink()
    async with stage.open() as home:
        [line] = await home.service.sessions()
        assert line.phase == "sealed"
        assert line.sealed is not None
        assert line.sealed.code == "broken"


@in_loop
async def test_approvals_json_equals_the_list_of_approvals(stage: Stage) -> None:
    """Also when one prompt of a session is past its time and another is not."""
    lines = [
        {"call": [{"tool": "act", "args": {"what": "early"}}]},
        {"call": [{"tool": "act", "args": {"what": "late"}}]},
    ]
    async with stage.open(stage.agent(lines)) as home:
        await home.send("ops/a", "do it", source=alice)
        stage.clock.advance(3_600)
        await home.send("ops/b", "do it", source=alice)
        listed = await home.approvals()
        assert [each.session for each in listed] == ["ops/a", "ops/b"]
        assert msgspec.json.encode(await home.service.approvals_json()) == msgspec.json.encode(
            listed
        )
        stage.clock.advance(7 * 24 * 3_600 - 1_800)
        [left] = await home.approvals()
        assert left == listed[1]
        assert msgspec.json.encode(await home.service.approvals_json()) == msgspec.json.encode(
            [left]
        )


@in_loop
async def test_a_prompt_is_listed_although_the_index_was_never_updated(stage: Stage) -> None:
    """
    A crash between append and index: the row is missing or behind its head, and the journal is
    asked.
    """
    async with stage.open(stage.agent([{"say": "ok"}, *act("it")])) as home:
        await home.send("ops/a", "hello", source=alice)
        before = await home.service.runtime.world.index.get(SessionId("ops/a"))
        assert before is not None
        await home.send("ops/a", "do it", source=alice)
        asked = await home.approvals()
        assert len(asked) == 1
        index = home.service.runtime.world.index
        await index.forget(SessionId("ops/a"))
        assert await home.approvals() == asked
        await index.forget(SessionId("ops/a"))
        await index.put(before)
        assert await home.approvals() == asked
        await index.forget(SessionId("ops/a"))
        await index.put(before)
        assert msgspec.json.encode(await home.service.approvals_json()) == msgspec.json.encode(
            asked
        )


@in_loop
async def test_a_sealed_session_lists_no_prompt_even_if_its_index_row_has_one(
    tmp_path: Path,
) -> None:
    """
    Its row still has the prompt; the journal is not believed, and nothing of it can be answered.
    """
    stage = Stage("files", tmp_path / "home")
    async with stage.open(stage.agent(act("it"))) as home:
        await home.send("ops/a", "do it", source=alice)
        row = await home.service.runtime.world.index.get(SessionId("ops/a"))
        assert row is not None
    break_it(stage.folder / "sessions" / "ops" / "a", b"do it", b"DO IT")
    async with stage.open() as home:
        await home.service.show("ops/a")
        await home.service.runtime.world.index.put(msgspec.structs.replace(row, seq=row.seq - 1))
        await home.service.runtime.world.index.forget(SessionId("ops/a"))
        await home.service.runtime.world.index.put(msgspec.structs.replace(row, seq=row.seq - 1))
        assert await home.approvals() == ()


@in_loop
async def test_a_page_is_right_after_sessions_came_and_went(tmp_path: Path) -> None:
    stage = Stage("files", tmp_path / "home")
    async with stage.open(stage.agent([{"say": "ok"}] * 9)) as home, stage.open() as other:
        for name in ("ops/b", "ops/d"):
            await home.send(name, "hello", source=alice)
        assert [line.session for line in await other.service.sessions(limit=5)] == [
            "ops/b",
            "ops/d",
        ]
        await home.send("ops/a", "hello", source=alice)
        assert [line.session for line in await other.service.sessions(limit=5)] == [
            "ops/a",
            "ops/b",
            "ops/d",
        ]
        await home.service.runtime.world.store.delete(SessionId("ops/d"), by="alice")
        assert [line.session for line in await other.service.sessions(limit=5)] == [
            "ops/a",
            "ops/b",
        ]
        await home.send("ops/c", "hello", source=alice)
        assert [line.session for line in await other.service.sessions(limit=2)] == [
            "ops/a",
            "ops/b",
        ]
        assert [
            line.session for line in await other.service.sessions(limit=2, after=SessionId("ops/b"))
        ] == ["ops/c"]


@in_loop
async def test_a_prompt_past_its_time_is_reported_as_closed_before_anyone_journals_it(
    stage: Stage,
) -> None:
    """
    P5: no answer to it counts any more, so nothing that looks says that it waits. Looking journals
    nothing.
    """
    async with stage.open(stage.agent(act("it"))) as home:
        (asked,) = (await home.send("ops/a", "do it", source=alice)).approvals
        report = await home.service.show("ops/a")
        assert (report.phase, report.waiting, report.expired) == ("parked", 1, 0)
        stage.clock.advance(8 * 24 * 3_600)
        shown = await home.approval(asked.id)
        assert (shown.state, shown.closed_as) == ("closed", "expired")
        [told] = await home.service.approvals(everything=True)
        assert (told.state, told.closed_as) == ("closed", "expired")
        later = await home.service.show("ops/a")
        assert (later.phase, later.waiting, later.expired) == ("parked", 0, 1)
        [line] = await home.service.sessions()
        assert line.waiting == 0
        assert later.seq == report.seq


async def settled(service: Service, name: SessionId) -> None:
    ledger = service.runtime.sessions.get(name)
    assert ledger is not None
    await service.runtime.announcer.settle_undriven(ledger)


@in_loop
async def test_the_index_learns_of_an_undriven_message_soon_and_at_the_end(
    stage: Stage,
) -> None:
    """
    Late is never wrong: the list opens what the index does not know yet. Work that is owed to it is never left owed.
    """
    name = SessionId("ops/a")
    async with stage.open(stage.agent([{"say": "ok"}] * 9)) as home:
        service, index = home.service, home.service.runtime.world.index
        await service.send(name, Incoming(text="hello", source=alice), wait=False)
        assert await index.get(name) is None
        assert [line.session for line in await service.sessions()] == [name]
        first = await index.get(name)
        await service.send(name, Incoming(text="and again", source=alice), wait=False)
        assert await index.get(name) == first
        await settled(service, name)  # what the timer does
        second = await index.get(name)
        assert first is not None
        assert second is not None
        assert second.seq > first.seq
        await service.send(name, Incoming(text="for the third time", source=alice), wait=False)
    if stage.kind == "files":
        async with stage.open(stage.agent([])) as home:
            third = await home.service.runtime.world.index.get(name)
            assert third is not None
            assert third.seq > second.seq


@in_loop
async def test_a_drive_pays_what_is_owed_to_the_index(stage: Stage) -> None:
    """One row for a turn: that of its end, and not one of its middle after it."""
    name = SessionId("ops/a")
    async with stage.open(stage.agent([{"say": "ok"}])) as home:
        service = home.service
        await service.send(name, Incoming(text="hello", source=alice), wait=False)
        await service.drive_all(name)
        done = await service.runtime.world.index.get(name)
        assert done is not None
        assert (done.phase, done.owes) == ("idle", False)
        await service.runtime.world.index.forget(name)
        await settled(service, name)
        assert await service.runtime.world.index.get(name) is None


@in_loop
async def test_a_reader_of_a_deleted_session_does_not_see_its_namesake(tmp_path: Path) -> None:
    """An open handle on the earlier instance proves nothing about this one."""
    stage, name = Stage("files", tmp_path), SessionId("ops/a")
    async with stage.open(stage.agent([{"say": "ok"}] * 3)) as here:
        await here.send(name, "mine", source=alice)
        world, opened = here.service.runtime.world, here.service.runtime.sessions
        assert await is_seen(
            world, opened, name, lambda readers: any(each.person == "alice" for each in readers)
        )
        async with stage.open(stage.agent([{"say": "ok"}] * 3)) as elsewhere:
            await delete.delete(elsewhere.service.runtime, name, by="alice")
            await elsewhere.send(name, "bob's", source=bob)
        assert opened.get(name) is not None
        assert not await is_seen(
            world, opened, name, lambda readers: any(each.person == "alice" for each in readers)
        )
        assert await is_seen(
            world, opened, name, lambda readers: any(each.person == "bob" for each in readers)
        )


@in_loop
async def test_a_busy_session_is_not_opened_by_any_list(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Opening it would wait for whoever keeps its lock, and again for the next one: what the index
    knows is told instead, and who may not see it sees nothing.
    """
    async with stage.open(stage.agent([*act("it"), {"say": "ok"}])) as home:
        await home.send("ops/a", "do it", source=alice)
        await home.send("ops/b", "hello", source=alice)
    async with stage.open(stage.agent([])) as home:
        service = home.service
        store: Any = service.runtime.world.store
        await service.sessions()
        row = await service.runtime.world.index.get(SessionId("ops/a"))
        assert row is not None
        for each in ("ops/a", "ops/b"):
            await service.runtime.world.index.forget(SessionId(each))
        await service.runtime.world.index.put(msgspec.structs.replace(row, seq=row.seq - 1))

        async def held_by(session: SessionId, *, wait_seconds: float | None = None) -> Busy:
            return Busy(f"{session} is being written", holder="pid 4711", held_seconds=wait_seconds)

        async def never(session: SessionId) -> Any:
            raise AssertionError(f"{session} was opened")

        monkeypatch.setattr(store, "held_by", held_by)
        monkeypatch.setattr(store, "open", never)
        monkeypatch.setattr(service.runtime.sessions, "_take", never)
        everyone = Viewer.local("alice", may_all=True)
        lines = await service.sessions()
        assert [
            (line.session, line.phase, line.waiting, line.busy is not None) for line in lines
        ] == [
            ("ops/a", "parked", 1, True),
            ("ops/b", "busy", 0, True),
        ]
        assert lines[0].seq == row.seq
        assert [line.session for line in await service.sessions(sees=bool)] == ["ops/a"]
        patience = service.patience()
        [waiting] = await service.approvals(patience=patience)
        assert (waiting.session, list(patience.found)) == ("ops/a", ["ops/a", "ops/b"])
        patience = service.patience()
        assert (
            await list_jobs(service.runtime, everyone, everything=True, patience=patience),
            list(patience.found),
        ) == ((), ["ops/a", "ops/b"])
        patience = service.patience()
        assert (await service.reminders.list(patience=patience), list(patience.found)) == (
            (),
            ["ops/a", "ops/b"],
        )
        assert await service.owing() == []


class Opened:
    """A store that counts the journals it opens."""

    def __init__(self, store: Any) -> None:
        self._store, self.sessions = store, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self, session: SessionId) -> Any:
        self.sessions.append(session)
        return await self._store.open(session)


async def code_of(home: Any, approval: str) -> str:
    with pytest.raises(Refused) as refused:
        await home.service.answer(
            ApprovalId(approval), "approve_once", by="alice", answer_id="another"
        )
    return refused.value.code


def counting(stage: Stage, stores: list[Opened]) -> Any:
    def wrap(store: Any) -> Opened:
        stores.append(Opened(store))
        return stores[-1]

    return stage.open(
        stage.agent([line for what in ("it", "that") for line in act(what, say="ok")]), wrap=wrap
    )


@in_loop
async def test_a_prompt_that_is_not_there_is_looked_for_in_the_index_and_in_no_journal(
    stage: Stage,
) -> None:
    """
    However many sessions there are: whoever guesses ids makes nobody read journals. The first look
    enters what the index was never told.
    """
    stores: list[Opened] = []
    async with counting(stage, stores) as home:
        for number in range(5):
            await home.send(f"ops/s{number}", "go", source=alice)
        assert await code_of(home, "a-nosuch") == "unknown"
        stores[0].sessions.clear()
        for guess in range(5):
            assert await code_of(home, f"a-guess{guess}") == "unknown"
        assert stores[0].sessions == []
        await home.send("ops/new", "go", source=alice)
        stores[0].sessions.clear()
        assert await code_of(home, "a-nosuch") == "unknown"
        assert set(stores[0].sessions) <= {"ops/new"}, "only what came since"


@pytest.mark.parametrize("index", ["deleted", "of yesterday", "of before everything"])
@in_loop
async def test_a_prompt_is_found_whatever_became_of_the_index(tmp_path: Path, index: str) -> None:
    """
    Answered long ago or open: deleted, an older copy or an empty one, the index is made good once,
    and then misses are cheap again.
    """
    stage = Stage("files", tmp_path / "home")
    stores: list[Opened] = []
    path = stage.folder / "index.db"
    async with counting(stage, stores) as home:
        pass
    created = path.read_bytes() if path.exists() else b""
    async with counting(stage, stores) as home:
        (first,) = (await home.send("ops/a", "go", source=alice)).approvals
        await home.answer(first, "deny", by=alice)
        (second,) = (await home.send("ops/b", "go", source=alice)).approvals
        assert await code_of(home, "a-nosuch") == "unknown"
    older = path.read_bytes()
    async with counting(stage, stores) as home:
        (third,) = (await home.send("ops/c", "go", source=alice)).approvals
        (fourth,) = (await home.send("ops/a", "go", source=alice)).approvals
        await home.answer(fourth, "deny", by=alice)
    for each in stage.folder.glob("index.db*"):
        each.unlink()
    if index != "deleted":
        path.write_bytes(older if index == "of yesterday" else created)
        path.chmod(0o600)
    async with counting(stage, stores) as home:
        assert await code_of(home, first.id) == "already_answered"
        assert await code_of(home, fourth.id) == "already_answered"
        assert await code_of(home, "a-nosuch") == "unknown"
        stores[-1].sessions.clear()
        assert await code_of(home, "a-nosuch-either") == "unknown"
        assert stores[-1].sessions == []
        for each in (second, third):
            assert (
                await home.service.answer(ApprovalId(each.id), "deny", by="alice")
            ).result is not None
