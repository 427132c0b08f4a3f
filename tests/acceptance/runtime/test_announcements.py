"""
The ledger announces its commits: other processes are notified, the index and the anchor follow. No
verb and no driver has to remember any of it.
"""

import asyncio
from contextlib import AsyncExitStack

from holdfast.home import Home
from holdfast.ids import SessionId
from holdfast.runtime.context import Tuning
from holdfast.runtime.lifecycle import delete
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.commands import GiveModel
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice

NAME = SessionId("ops/a")
SECONDS = 30


async def heard(elsewhere: Home, stack: AsyncExitStack) -> "asyncio.Queue[SessionId]":
    """Every notice that another process gets from now on."""
    notices: asyncio.Queue[SessionId] = asyncio.Queue()
    listening = await stack.enter_async_context(elsewhere.service.runtime.world.notifier.listen())

    async def listen() -> None:
        async for session in listening:
            notices.put_nowait(session)

    task = asyncio.ensure_future(listen())
    stack.callback(task.cancel)
    return notices


@in_loop
async def test_a_bare_commit_is_notified_at_once_and_indexed_in_a_moment(stage: Stage) -> None:
    """The code that commits does nothing else."""
    stage.tuning = Tuning(row_delay_seconds=0.01)
    async with (
        stage.open(stage.agent([{"say": "ok"}])) as home,
        stage.open(stage.agent([])) as elsewhere,
        AsyncExitStack() as stack,
        asyncio.timeout(SECONDS),
    ):
        await home.send(NAME, "hello", source=alice)
        notices = await heard(elsewhere, stack)
        async with home.service.runtime.sessions.use(NAME) as ledger:
            await ledger.commit(GiveModel(model="demo", by="alice"))
            assert await notices.get() == NAME
            if stage.kind != "postgres":  # there the two may be sent as one
                assert await notices.get() == NAME  # again, once the row is written
            index = home.service.runtime.world.index
            while (row := await index.get(NAME)) is None or row.seq < ledger.state.seq:
                assert stage.kind == "postgres"
                await asyncio.sleep(0.01)
            assert (row.seq, ledger.announced_seq) == (ledger.state.seq, ledger.state.seq)


@in_loop
async def test_a_commit_that_appends_nothing_is_not_announced(stage: Stage) -> None:
    """Otherwise two processes that catch up with each other would never rest."""
    async with (
        stage.open(stage.agent([{"say": "ok"}])) as home,
        stage.open(stage.agent([])) as elsewhere,
        AsyncExitStack() as stack,
    ):
        await home.send(NAME, "hello", source=alice)
        notices = await heard(elsewhere, stack)
        home.service.runtime.world.notifier.notify(SessionId("ops/first"))
        while await notices.get() != SessionId("ops/first"):
            pass  # a notice of the message may come late
        async with home.service.runtime.sessions.use(NAME) as ledger:
            await ledger.catch_up()
            await ledger.settle()
        home.service.runtime.world.notifier.notify(SessionId("ops/last"))
        assert await notices.get() == SessionId("ops/last")


@in_loop
async def test_a_prompt_is_notified_while_its_sibling_still_runs(stage: Stage) -> None:
    """An approver does not wait for a tool that takes long."""
    both = [{"tool": "slow", "args": {"what": "x"}}, {"tool": "act", "args": {"what": "y"}}]
    async with (
        stage.open(stage.agent([{"call": both}, {"say": "done"}])) as home,
        stage.open(stage.agent([])) as elsewhere,
        AsyncExitStack() as stack,
        asyncio.timeout(SECONDS),
    ):
        await home.service.create(NAME, by="alice")
        notices = await heard(elsewhere, stack)
        sending = asyncio.ensure_future(home.send(NAME, "go", source=alice))
        while not (waiting := await elsewhere.approvals()):
            assert await notices.get() == NAME
        assert stage.effects.done == ["began x"]
        assert waiting[0].tool == "act"
        stage.effects.gates["x"].set()
        assert (await sending).outcome == "waiting"


@in_loop
async def test_a_deleted_session_is_not_put_back_into_the_index(stage: Stage) -> None:
    """Its row was still owed when it was deleted."""
    async with stage.open(stage.agent([{"say": "ok"}])) as home:
        service = home.service
        await service.send(NAME, Incoming(text="hello", source=alice), wait=False)
        ledger = service.runtime.sessions.get(NAME)
        assert ledger is not None
        await delete.delete(service.runtime, NAME, by="alice")
        await service.runtime.announcer.settle_undriven(ledger)
        assert await service.runtime.world.index.get(NAME) is None
