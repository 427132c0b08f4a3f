"""
The home's journal is folded once, however many ask for it at the same moment; and it is closed,
whatever becomes of the sessions beside it.
"""

import asyncio

import pytest

from holdfast.adapters.inmemory import InMemoryDisk, InMemoryStore
from holdfast.errors import NotSaved
from holdfast.gateway.server.tokens import TokenBook
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Journal
from holdfast.runtime.ledger.attempt import AttemptState
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice


class Counting(InMemoryStore):
    opened = 0

    async def home(self) -> Journal:
        self.opened += 1
        await asyncio.sleep(0)
        return await super().home()


def test_many_at_once_open_it_once_and_see_the_same() -> None:
    async def story() -> None:
        store = Counting(InMemoryDisk())
        home = HomeLedger(store)
        book = TokenBook(home)
        await asyncio.gather(*(home.refresh() for _ in range(20)))
        assert store.opened == 1
        await asyncio.gather(
            *(
                book.add(f"t{number}", person="alice", scopes=("read",), by="a", now=0)
                for number in range(10)
            )
        )
        assert sorted((await home.refresh()).tokens) == sorted(f"t{number}" for number in range(10))
        again = HomeLedger(store)
        assert (await again.refresh()).tokens == home.state.tokens
        await again.close()
        await home.close()
        await store.close()

    asyncio.run(story())


@in_loop
async def test_a_session_that_can_not_be_closed_keeps_nothing_else_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = stage.open(stage.agent([{"say": "ok"}, {"say": "ok"}]))
    with pytest.raises(NotSaved):  # noqa: PT012  # it is raised where the home is left
        async with home:
            service = home.service
            for name in ("ops/a", "ops/b"):
                await home.send(name, "hello", source=alice)
            await home.grants()
            first, second = (
                service.runtime.sessions.get(SessionId(name)) for name in ("ops/a", "ops/b")
            )
            assert first is not None
            assert second is not None

            async def not_saved() -> None:
                raise NotSaved("the disk is full")

            monkeypatch.setattr(first, "close", not_saved)
    assert (second.attempt.phase, service.home._attempt) == (AttemptState.OVER, None)
