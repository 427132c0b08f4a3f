"""The server's log has each decision that follows its beginning, once."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import holdfast
from holdfast.errors import Busy
from holdfast.gateway.server.decision_log import DecisionLog
from holdfast.ids import SessionId
from holdfast.session.authority.context import MessageSource
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_home import open_in_memory

ALICE = MessageSource.local("alice")


@holdfast.tool
def act() -> str:
    return "done"


def an_agent() -> holdfast.Agent:
    calls = [{"call": [{"tool": "act", "args": {}}]}, {"say": "ok"}] * 4
    return holdfast.Agent("a", model=ScriptModel(calls), tools=[act])


class Lines(logging.Handler):
    """Keeps the lines of the log, and wakes whoever waits for the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._news.set()

    async def until(self, count: int) -> list[str]:
        async with asyncio.timeout(60):
            while len(self.lines) < count:
                self._news.clear()
                await self._news.wait()
        return self.lines


@asynccontextmanager
async def logged(log: DecisionLog) -> AsyncGenerator[Lines, None]:
    lines, logger = Lines(), logging.getLogger("holdfast.gateway.decisions")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    running = asyncio.create_task(log.run())
    try:
        yield lines
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        logger.removeHandler(lines)
        logger.setLevel(level)


async def decided(home: holdfast.Home, option: str = "deny") -> str:
    [asked] = (await home.send("ops/api", "act", source=ALICE)).approvals
    await home.answer(asked, option, by=ALICE)
    return str(asked.id)


@in_loop
async def test_a_decision_between_the_beginning_and_the_first_look_is_logged() -> None:
    async with open_in_memory(agents=[an_agent()]) as home:
        await decided(home)
        log = DecisionLog(home.service)
        await log.begin()
        second = await decided(home, "approve_once")
        log.notice(SessionId("ops/api"))
        async with logged(log) as lines:
            assert await lines.until(1) == [
                f"alice approved it once: {second} in ops/api, by a script"
            ]


@in_loop
async def test_a_decision_of_a_session_that_was_busy_is_logged_without_another_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_in_memory(agents=[an_agent()]) as home:
        log = DecisionLog(home.service)
        await log.begin()
        denied = await decided(home)
        live, looks = home.service.live, []
        use = live.use

        @asynccontextmanager
        async def busy_once(session: SessionId) -> AsyncGenerator[Any, None]:
            looks.append(session)
            if len(looks) == 1:
                raise Busy(f"{session} is held")
            async with use(session) as ledger:
                yield ledger

        monkeypatch.setattr(live, "use", busy_once)
        log.notice(SessionId("ops/api"))
        async with logged(log) as lines:
            assert await lines.until(1) == [f"alice denied it: {denied} in ops/api, by a script"]
        assert len(looks) == 2
