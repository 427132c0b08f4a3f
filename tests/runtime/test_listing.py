"""Lists: page by page, true to the journals after any crash, sealed ones by the home's word."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.inmemory import Crashed, InMemoryIndex
from holdfast.home import Agent
from holdfast.ids import SessionId
from holdfast.session.events import ModelCallStarted
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_home import Disk, crash_after, open_in_memory
from tests.runtime.conftest import Stage, alice
from tests.runtime.test_lives import break_it
from tests.runtime.test_pause_and_answer import act


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
        home.service.world.index.forget(SessionId("ops/a"))
        [line] = await home.service.sessions()
        assert (line.phase, line.waiting, line.sealed) == ("parked", 1, None)


@in_loop
async def test_a_row_that_says_running_is_not_believed() -> None:
    """After a power cut nobody may drive it any more: the journal is asked."""
    disk = Disk()
    ops = Agent("ops", model=ScriptModel(["hello"]), tools=[])
    index: Any = InMemoryIndex()
    with pytest.raises(Crashed):  # noqa: PT012
        async with open_in_memory(agents=[ops], disk=disk, crash=crash_after(ModelCallStarted)) as home:
            home.service.world.index = index
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
