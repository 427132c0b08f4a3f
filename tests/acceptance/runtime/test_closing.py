"""
Leaving a home: whatever is in flight ends in order and is told so; nothing waits for threads that
have gone, and nothing durable is lost.
"""

import asyncio
import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import blocking
from holdfast.adapters.files import FileStore
from holdfast.errors import InvariantBroken
from holdfast.testing import open_in_memory

ALICE = holdfast.MessageSource.local("alice")


class Fleet:
    """One tool that has begun when `begun` is set, and ends by itself never."""

    def __init__(self, path: Path, kept: str) -> None:
        self.path, self.kept = path, kept
        self.begun = threading.Event()
        self.heard: asyncio.Event | None = None
        self.runs = 0
        self.agent = holdfast.Agent(
            "ops", model="demo", tools=[holdfast.tool(mode="auto")(self.restart)]
        )

    async def restart(self, service: str) -> str:
        """Restart one service."""
        self.runs += 1
        self.begun.set()
        if self.heard is not None:
            self.heard.set()
        await asyncio.Event().wait()
        return service

    def home(self) -> holdfast.Home:
        return (
            holdfast.open(self.path / "home", agents=[self.agent])
            if self.kept == "in files"
            else open_in_memory(agents=[self.agent])
        )


@pytest.fixture(params=["in files", "in memory"])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Fleet:
    return Fleet(tmp_path, request.param)


@pytest.fixture
def on_disk(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, "in files")


def test_a_message_in_flight_is_stopped_and_its_caller_gets_the_reason(fleet: Fleet) -> None:
    """
    It waited for ever, and could not even be cancelled: a program that left its home early never
    ended.
    """

    async def story() -> None:
        fleet.heard = asyncio.Event()
        async with fleet.home() as home:
            sending = asyncio.ensure_future(
                home.send("ops/api", "restart service=api", source=ALICE)
            )
            await fleet.heard.wait()
        with pytest.raises(holdfast.Unusable, match="the home was closed meanwhile"):
            await sending
        if fleet.kept == "in files":
            async with fleet.home() as home:
                (turn,) = await home.resume()
                assert "in doubt" in (turn.reply or "")

    asyncio.run(story())
    assert fleet.runs == 1


def test_a_cancellation_of_the_callers_own_stays_one(fleet: Fleet) -> None:
    async def story() -> None:
        fleet.heard = asyncio.Event()
        async with fleet.home() as home:
            sending = asyncio.ensure_future(
                home.send("ops/api", "restart service=api", source=ALICE)
            )
            await fleet.heard.wait()
            sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()

    asyncio.run(story())


def test_a_loop_of_ones_own_is_stopped_with_its_home(fleet: Fleet) -> None:
    async def story() -> None:
        begun = asyncio.Event()

        async def own_loop(home: holdfast.Home) -> None:
            async with home.turn("ops/api", "how is it?", source=ALICE):
                begun.set()
                await asyncio.Event().wait()

        async with fleet.home() as home:
            running = asyncio.ensure_future(own_loop(home))
            await begun.wait()
        with pytest.raises(holdfast.Unusable, match="the home was closed meanwhile"):
            await running
        if fleet.kept == "in files":
            async with fleet.home() as home:
                assert (await home.session("ops/api")).phase == "parked"

    asyncio.run(story())


def test_followers_end_with_their_home(fleet: Fleet) -> None:
    """One that waits, one that was left in the middle, and one that is asked again afterwards."""

    async def story() -> None:
        async with fleet.home() as home:
            await home.send("ops/api", "help", source=ALICE)
            waiting = asyncio.ensure_future(anext(aiter(home.follow("ops/api"))))
            left = home.follow("ops/api", after=0)
            first = await anext(left)
            assert isinstance(first, holdfast.Record)
        assert [each async for each in left] == []
        with pytest.raises(StopAsyncIteration):
            await waiting

    asyncio.run(story())


def test_an_open_home_is_opened_once(fleet: Fleet) -> None:
    """The second opening took the place of the first, which nobody closed any more."""

    async def story() -> None:
        home = fleet.home()
        async with home:
            with pytest.raises(holdfast.Unusable, match="the home is open already"):
                await home.__aenter__()
            assert (await home.send("ops/api", "help", source=ALICE)).outcome == "completed"
        async with home:
            assert (await home.send("ops/web", "help", source=ALICE)).outcome == "completed"

    asyncio.run(story())
    synchronous = blocking.BlockingHome(fleet.home())
    with synchronous:
        with pytest.raises(holdfast.Unusable, match="the home is open already"):
            synchronous.__enter__()
        assert synchronous.send("ops/api", "help", source=ALICE).outcome == "completed"


def test_an_opening_that_failed_may_be_tried_again(on_disk: Fleet) -> None:
    async def story() -> None:
        home = on_disk.home()
        (on_disk.path / "home").write_text("in the way")
        with pytest.raises(holdfast.HoldfastError):
            await home.__aenter__()
        (on_disk.path / "home").unlink()
        async with home:
            assert (await home.send("ops/api", "help", source=ALICE)).outcome == "completed"

    asyncio.run(story())


def test_a_closed_store_is_not_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        store = await FileStore.open_home(tmp_path / "home")
        journal = await store.home()
        await store.close()
        for late in (store.heads, store.unsettled, journal.sync_anchor):
            with pytest.raises(InvariantBroken, match="the store is closed"):
                await late()
        await journal.close()

    asyncio.run(story())


def test_threads_hear_that_the_home_was_closed(on_disk: Fleet) -> None:
    heard: list[Any] = []

    def follow(home: blocking.BlockingHome, begun: threading.Event) -> None:
        for record in home.follow("ops/api", after=0):
            heard.append(type(record))
            begun.set()
        heard.append("ended")

    def send(home: blocking.BlockingHome) -> None:
        try:
            home.send("ops/api", "restart service=api", source=ALICE)
        except holdfast.Unusable as exc:
            heard.append(exc.message)

    with blocking.BlockingHome(on_disk.home()) as home:
        sender = threading.Thread(target=send, args=(home,))
        sender.start()
        assert on_disk.begun.wait(60)
        following = threading.Event()
        follower = threading.Thread(target=follow, args=(home, following))
        follower.start()
        assert following.wait(60)
        left = home.follow("ops/api", after=0)
        next(left)
    for thread in (sender, follower):
        thread.join(60)
        assert not thread.is_alive()
    assert {"ended", "the home was closed meanwhile"} <= set(heard)
    del left
    gc.collect()  # an error in there would be a warning, and warnings are errors


INTERRUPTED = """
import asyncio, os, signal, sys, holdfast
from holdfast import blocking

@holdfast.tool(mode="auto")
async def restart(service: str) -> str:
    "Restart one service."
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()

alice = holdfast.MessageSource.local("alice")
with blocking.open(sys.argv[1], agents=[holdfast.Agent("ops", tools=[restart])]) as home:
    try:
        home.send("ops/api", "restart service=api", source=alice)
    except KeyboardInterrupt:
        print("in doubt" in home.resume("ops/api")[0].reply)
"""


def test_an_interrupt_stops_what_it_interrupts(tmp_path: Path) -> None:
    """As it would in an event loop: the turn went on unseen behind a prompt that looked idle."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "home")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
