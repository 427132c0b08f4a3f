"""
Messages to chats: queued with what they tell of, in order, confirmed, postponed, settled by asking,
or in doubt. Over every store where a restart is needed, else in memory.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal

import msgspec
import pytest

from holdfast.adapters.inmemory import Crashed
from holdfast.home import Agent
from holdfast.ports.chat.messages import ChatParcel, ChatReceipt
from holdfast.ports.chat.platform import ChatInbox, ConfiguredChat
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered
from holdfast.session.authority.context import MessageSource
from holdfast.session.events import (
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryPostponed,
    DeliveryQueued,
    DeliverySent,
)
from holdfast.testing import ManualClock, ScriptModel
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_home import Disk, crash_after, open_in_memory
from tests.acceptance.runtime.conftest import Stage
from tests.acceptance.runtime.test_pause_and_answer import act

ALICE = msgspec.structs.replace(MessageSource.local("alice"), channel="chat")
HERE = "chat/in-1"


class Platform:
    """A platform that does as it is told, and remembers what it has."""

    def __init__(self) -> None:
        self.is_up = True
        self.has: list[ChatParcel] = []
        self.updated: list[ChatParcel] = []
        self.troubles: list[BaseException] = []
        self.found: Literal["absent", "unknown"] | None = None
        self.before_answer: Any = None

    async def send(self, parcel: ChatParcel) -> ChatReceipt:
        if self.troubles:
            raise self.troubles.pop(0)
        self.has.append(parcel)
        if self.before_answer is not None:
            await self.before_answer()
        return self._receipt(parcel)

    def _receipt(self, parcel: ChatParcel) -> ChatReceipt:
        return ChatReceipt(f"m-{parcel.delivery}", "whole" if parcel.prompt else None)

    async def update(self, parcel: ChatParcel) -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        self.updated.append(parcel)

    async def find(self, parcel: ChatParcel) -> ChatReceipt | Literal["absent", "unknown"]:
        return self._receipt(parcel) if self.found is None else self.found

    async def run(self, inbox: ChatInbox) -> None:
        raise NotImplementedError

    async def check(self) -> str:
        return "me"


def chatting(home: Any, platform: Platform | None, **fields: Any) -> None:
    chat = ConfiguredChat(
        name="chat",
        kind="telegram",
        identities={"alice": "7"},
        part_size_max=100,
        size=len,
        platform=platform,
    )
    chats: Mapping[str, ConfiguredChat] = {"chat": msgspec.structs.replace(chat, **fields)}
    home.service.runtime.world.chats = lambda: chats


@contextlib.asynccontextmanager
async def passing_time(home: Any) -> AsyncGenerator[None, None]:
    """Let the clock go on by itself whenever somebody waits for it."""
    clock: ManualClock = home.service.runtime.world.clock

    async def tick() -> None:
        while True:
            if (wait := clock.next_wake_seconds) is not None:
                clock.advance(wait)
            await asyncio.sleep(0.01)

    task = asyncio.ensure_future(tick())
    try:
        yield
    finally:
        task.cancel()


async def told(stage: Stage, kind: type) -> list[Any]:
    return [event for event in await stage.events(HERE) if isinstance(event, kind)]


@in_loop
async def test_a_long_reply_arrives_in_parts_in_order_where_the_question_was(stage: Stage) -> None:
    platform = Platform()
    async with stage.open(stage.agent([{"say": "x" * 250}])) as home:
        chatting(home, platform)
        await home.send(HERE, "hi", source=ALICE)
    assert {each.to for each in platform.has} == {"in-1"}
    assert [each.text[:5] for each in platform.has] == ["(1/3)", "(2/3)", "(3/3)"]
    order = [type(event) for event in await stage.events(HERE)]
    marks = [each for each in order if each in (DeliverySent, DeliveryConfirmed)]
    assert marks == [DeliverySent, DeliveryConfirmed] * 3


@in_loop
async def test_a_prompt_goes_to_its_thread_and_its_approvers_and_each_message_is_updated_once(
    stage: Stage,
) -> None:
    platform = Platform()
    async with stage.open(stage.agent(act("it"))) as home:
        chatting(home, platform)
        turn = await home.send(HERE, "do it", source=ALICE)
        assert sorted(each.to for each in platform.has) == ["dm-7", "in-1"]
        assert {each.prompt.display for each in platform.has if each.prompt} == {
            turn.approvals[0].display
        }
        platform.troubles = [DeliveryInDoubt("a reset"), NotDelivered("busy", may_pass=True)]
        async with passing_time(home):
            await home.answer(turn.approvals[0], "deny", by=ALICE)
        shown = {f"m-{each.delivery}" for each in platform.has if each.kind == "prompt"}
        assert {each.replaces for each in platform.updated} == shown
        assert all(each.text.startswith("Denied by alice.") for each in platform.updated)
        assert (await home.service.show(HERE)).owes == ()


@in_loop
async def test_a_prompt_that_closes_while_its_message_is_on_its_way_is_updated_too(
    stage: Stage,
) -> None:
    platform = Platform()
    async with stage.open(stage.agent(act("it"))) as home:
        chatting(home, platform, identities={})

        async def deny() -> None:
            platform.before_answer = None
            [prompt] = await home.service.approvals()
            await home.service.answer(prompt.id, "deny", by="alice", wait=False)

        platform.before_answer = deny
        await home.send(HERE, "do it", source=ALICE)
        await home.service.resume(HERE, by="alice")
    [prompt] = [each for each in platform.has if each.kind == "prompt"]
    assert [each.replaces for each in platform.updated] == [f"m-{prompt.delivery}"]


@in_loop
async def test_a_chat_that_is_away_or_elsewhere_keeps_its_messages_owed(stage: Stage) -> None:
    platform = Platform()
    async with stage.open(stage.agent([{"say": "one"}])) as home:
        chatting(home, None)
        await home.send(HERE, "hi", source=ALICE)
        assert await home.service.owing() == [HERE]
        platform.is_up = False
        chatting(home, platform)
        await home.service.drive_all(HERE)
        assert platform.has == []
        platform.is_up = True
        await home.service.drive_all(HERE)
        assert [each.text for each in platform.has] == ["one"]
        assert await home.service.owing() == []


@in_loop
async def test_too_many_requests_are_waited_out_and_a_refusal_is_final(stage: Stage) -> None:
    platform = Platform()
    platform.troubles = [
        NotDelivered("too many", may_pass=True, wait_seconds=0.2),
        NotDelivered("no connection", may_pass=True),
    ]
    async with stage.open(stage.agent([{"say": "one"}, {"say": "two"}])) as home:
        chatting(home, platform)
        async with passing_time(home):
            await home.send(HERE, "1", source=ALICE)
        assert [each.text for each in platform.has] == ["one"]
        platform.troubles = [NotDelivered("blocked", may_pass=False)]
        await home.send(HERE, "2", source=ALICE)
    assert [each.reason for each in await told(stage, DeliveryPostponed)] == [
        "too many",
        "no connection",
    ]
    [failed] = await told(stage, DeliveryFailed)
    assert (failed.code, failed.message) == ("failed", "blocked")


@in_loop
@pytest.mark.parametrize(
    ("found", "arrived", "states"),
    [(None, 0, []), ("absent", 1, []), ("unknown", 0, ["in_doubt"])],
)
@pytest.mark.parametrize("event", [DeliveryQueued, DeliverySent])
async def test_after_a_crash_the_platform_is_asked_and_only_what_it_lacks_is_sent_again(
    event: Any, found: Any, arrived: int, states: list[str]
) -> None:
    disk, platform = Disk(), Platform()
    ops = Agent("ops", model=ScriptModel([{"say": "hello"}]), tools=[])
    with contextlib.suppress(Crashed):
        async with open_in_memory(agents=[ops], disk=disk, crash=crash_after(event)) as home:
            chatting(home, platform)
            await home.send(HERE, "hi", source=ALICE)
    assert platform.has == []
    platform.found = found
    async with open_in_memory(agents=[ops], disk=disk) as home:
        chatting(home, platform)
        await home.service.resume(HERE, by="alice")
        await home.service.resume(HERE, by="alice")
        report = await home.service.show(HERE)
    if event is DeliveryQueued:  # nothing had left
        arrived, states = 1, []
    assert (len(platform.has), [each.state for each in report.deliveries]) == (arrived, states)


@in_loop
async def test_a_reset_is_settled_at_once_by_asking(
    stage: Stage,
) -> None:
    platform = Platform()
    platform.troubles = [DeliveryInDoubt("a reset")]
    platform.found = "absent"
    async with stage.open(stage.agent([{"say": "one"}])) as home:
        chatting(home, platform)
        await home.send(HERE, "1", source=ALICE)
        assert (await home.service.show(HERE)).deliveries == ()
    assert [each.text for each in platform.has] == ["one"]
    assert len(await told(stage, DeliverySent)) == 1
