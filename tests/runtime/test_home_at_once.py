"""The home's journal is folded once, however many ask for it at the same moment."""

import asyncio

from holdfast.adapters.inmemory import InMemoryDisk, InMemoryStore
from holdfast.gateway.tokens import TokenBook
from holdfast.ports.journal_store import Journal
from holdfast.runtime.home_ledger import HomeLedger


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
        await asyncio.gather(*(book.add(f"t{number}", person="alice", scopes=("read",), by="a", now=0) for number in range(10)))
        assert sorted((await home.refresh()).tokens) == sorted(f"t{number}" for number in range(10))
        again = HomeLedger(store)
        assert (await again.refresh()).tokens == home.state.tokens
        await again.close()
        await home.close()
        await store.close()

    asyncio.run(story())
