"""
Retention: what is old and idle goes, journalled; what waits, is owed or was written to meanwhile
stays.
"""

from collections.abc import AsyncIterator

import pytest

from holdfast.home import Home
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Draft, Record
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.lifecycle.prune import Old, delete_old, old_sessions
from holdfast.session.codec import encode
from holdfast.session.events import ModelGiven
from holdfast.session.home.events import SessionDeleted, decode_home_event
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice
from tests.acceptance.runtime.test_pause_and_answer import act

DAY = 24 * 3_600


async def deletions(home: Home) -> list[tuple[str, str]]:
    """(session, by) of every deletion that the home's journal has."""
    records: list[Record] = []
    journal = await home.service.runtime.world.store.home()
    await journal.load(records.append)
    events = [
        decode_home_event(each.type, each.version, each.body)
        for each in records
        if each.type == "session_deleted"
    ]
    return [(each.session, each.by) for each in events if isinstance(each, SessionDeleted)]


@in_loop
async def test_pruning_deletes_old_idle_sessions_and_journals_each_deletion(stage: Stage) -> None:
    async with stage.open(stage.agent([{"say": "ok"}, *act("it")])) as home:
        await home.send("ops/old", "hello", source=alice)
        await home.send("ops/waits", "hello", source=alice)
        await home.send("ops/waits", "do it", source=alice)
        stage.clock.advance(2 * DAY)
        await home.send("ops/new", "hello", source=alice)
        before = stage.clock.now_ms() - DAY * 1_000
        old = await old_sessions(home.service.runtime, before_ms=before)
        assert [each.session for each in old] == ["ops/old"]
        assert await delete_old(home.service.runtime, old, by="retention") == ["ops/old"]
        assert [line.session for line in await home.service.sessions()] == ["ops/new", "ops/waits"]
        assert await deletions(home) == [("ops/old", "retention")]
        assert await delete_old(home.service.runtime, old, by="retention") == []


@in_loop
async def test_a_session_that_was_written_to_since_it_was_looked_at_stays(stage: Stage) -> None:
    async with stage.open(stage.agent([{"say": "ok"}, {"say": "back again"}])) as home:
        await home.send("ops/a", "hello", source=alice)
        stage.clock.advance(2 * DAY)
        old = await old_sessions(home.service.runtime, before_ms=stage.clock.now_ms() - DAY * 1_000)
        assert [each.session for each in old] == ["ops/a"]
        turn = await home.send("ops/a", "are you there?", source=alice)
        assert await delete_old(home.service.runtime, old, by="retention") == []
        assert (await home.service.turn("ops/a", turn.turn)).reply == "back again"
        assert (
            await old_sessions(home.service.runtime, before_ms=stage.clock.now_ms() - DAY * 1_000)
            == []
        )


@in_loop
async def test_a_row_that_calls_a_parked_session_idle_lets_nothing_go(stage: Stage) -> None:
    """The index says who may be old; only the journal says that nothing waits."""
    async with stage.open(stage.agent([{"say": "ok"}, *act("it")])) as home:
        await home.send("ops/a", "hello", source=alice)
        index = home.service.runtime.world.index
        idle = await index.get(SessionId("ops/a"))
        assert idle is not None
        await home.send("ops/a", "do it", source=alice)
        stage.clock.advance(2 * DAY)

        class Stubborn:
            """Says what it said before the prompt, whatever it is told."""

            def __getattr__(self, name: str) -> object:
                return getattr(index, name)

            async def rows(self, **_: object) -> AsyncIterator[object]:
                yield idle

        home.service.runtime.world.index = Stubborn()  # type: ignore[assignment]
        assert (
            await old_sessions(home.service.runtime, before_ms=stage.clock.now_ms() - DAY * 1_000)
            == []
        )


@in_loop
async def test_one_go_is_bounded(stage: Stage) -> None:
    async with stage.open(stage.agent([{"say": "ok"}] * 3)) as home:
        for name in ("a", "b", "c"):
            await home.send(f"ops/{name}", "hello", source=alice)
        stage.clock.advance(2 * DAY)
        found = await old_sessions(
            home.service.runtime, before_ms=stage.clock.now_ms() - DAY * 1_000, most=2
        )
        assert [each.session for each in found] == ["ops/a", "ops/b"]
        assert all(isinstance(each, Old) and each.seq > 0 for each in found)


@in_loop
async def test_a_session_stays_that_somebody_wrote_to_in_the_moment_it_was_looked_at(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Durable in its thread, and not folded yet by the task that appended it: what is looked at is
    older than the journal.
    """
    async with stage.open(stage.agent([{"say": "ok"}])) as home:
        await home.send("ops/a", "hello", source=alice)
        stage.clock.advance(2 * DAY)
        catch_up = Ledger.catch_up

        async def and_somebody_writes(ledger: Ledger) -> None:
            await catch_up(ledger)
            given = Draft(*encode(ModelGiven(model="demo", by="alice")))
            await ledger.journal.append(lambda _: [given], since=ledger.attempt.position)

        monkeypatch.setattr(Ledger, "catch_up", and_somebody_writes)
        old = await old_sessions(home.service.runtime, before_ms=stage.clock.now_ms() - DAY * 1_000)
        monkeypatch.undo()
        assert [each.session for each in old] == ["ops/a"]
        assert await delete_old(home.service.runtime, old, by="retention") == []
