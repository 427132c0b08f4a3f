"""Conversations of Pydantic AI in the journal."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.integrations.pydantic_ai import HoldfastConversations, Under

alice = holdfast.MessageSource.local("alice")


def said(text: str) -> ModelRequest:
    return ModelRequest.user_text_prompt(text)


def texts(conversation: Conversation | None) -> list[str]:
    assert conversation is not None
    parts = [part for each in conversation.messages for part in each.parts]
    return [str(getattr(part, "content", "")) for part in parts]


def test_the_first_of_two_savers_wins_and_the_second_gets_a_conflict(tmp_path: Path) -> None:
    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            first, second = HoldfastConversations(home), HoldfastConversations(home)
            await first.save(Conversation(conversation_id="c", messages=[said("one")]), scope="a")
            mine, other = await first.load("c"), await second.load("c")
            assert mine is not None
            assert other is not None
            mine.messages.append(said("two"))
            other.messages.append(said("three"))
            await first.save(mine)
            with pytest.raises(ConversationConflict):
                await second.save(other)
            with pytest.raises(ConversationConflict):
                await second.save(Conversation(conversation_id="c", messages=[said("new")]))
            late = ConversationRecord(conversation_id="c", head_id=None)
            for stale in (None, other.revision):  # read before the other wrote, written after
                with pytest.raises(ConversationConflict):
                    await second.write_record(late, expected_revision=stale)
            assert texts(await second.load("c")) == ["one", "two"]
        async with holdfast.open(tmp_path) as home:
            store = HoldfastConversations(home)
            assert texts(await store.load("c")) == ["one", "two"]
            assert await store.load("c", scope="b") is None
            fork = await store.fork("c", at=1, new_conversation_id="d")
            assert texts(fork) == ["one"]
            listed = await store.list_conversations(scope="a")
            assert [each.conversation_id for each in listed] == ["d", "c"]
            await store.delete("c")
            assert (await store.load("c"), texts(await store.load("d"))) == (None, ["one"])

    asyncio.run(story())


def test_two_writers_at_the_very_same_time_never_both_win(tmp_path: Path) -> None:
    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            stores = [HoldfastConversations(home) for _ in range(4)]
            tries = [
                each.save(Conversation(conversation_id="c", messages=[said(str(n))]))
                for n, each in enumerate(stores)
            ]
            ended = await asyncio.gather(*tries, return_exceptions=True)
            assert sum(isinstance(each, ConversationConflict) for each in ended) == 3
            found = {tuple(texts(await each.load("c"))) for each in stores}
            assert len(found) == 1

    asyncio.run(story())


def test_a_turn_is_saved_once_with_its_end_and_a_paused_one_is_not(tmp_path: Path) -> None:
    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        count = sum(isinstance(each, ModelRequest) for each in messages)
        if count == 1:
            return ModelResponse([ToolCallPart("restart", {}, "c1")])
        return ModelResponse([TextPart(f"done after {count} requests")])

    agent: Agent[None, Any] = Agent(FunctionModel(answer), output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def restart() -> str:
        return "restarted"

    async def line(home: holdfast.Home, text: str, dedup: str) -> tuple[bool, Any]:
        store = HoldfastConversations(home)
        conversation = await store.load("ops/api") or Conversation(conversation_id="ops/api")
        under = Under(home, "ops/api", source=alice, dedup=dedup, conversations=store)
        result = await agent.run(text, conversation=conversation, capabilities=[under])
        return under.waiting, result.output

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            assert (await line(home, "restart it", "m1"))[0]
            assert await HoldfastConversations(home).load("ops/api") is None
            (asked,) = await home.approvals()
            await home.answer(asked, "approve_once", by=alice, wait=False)
        async with holdfast.open(tmp_path) as home:
            assert await line(home, "restart it", "m1") == (False, "done after 2 requests")
            assert await line(home, "restart it", "m1") == (False, "done after 2 requests")
            before = texts(await HoldfastConversations(home).load("ops/api"))
            assert before == ["restart it", "", "restarted", "done after 2 requests"]
            assert await line(home, "and now?", "m2") == (False, "done after 3 requests")

    asyncio.run(story())


def test_a_line_that_died_between_the_save_and_the_end_saves_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent: Agent[None, str] = Agent(FunctionModel(lambda *_: ModelResponse([TextPart("hello")])))

    async def line(home: holdfast.Home) -> str:
        store = HoldfastConversations(home)
        conversation = await store.load("ops/api") or Conversation(conversation_id="ops/api")
        under = Under(home, "ops/api", source=alice, dedup="m1", conversations=store)
        return (await agent.run("hi", conversation=conversation, capabilities=[under])).output

    async def dies(*_: Any) -> None:
        raise OSError("gone")

    async def story() -> None:
        async with holdfast.open(tmp_path) as home:
            with monkeypatch.context() as patch:
                patch.setattr(holdfast.ExternalTurn, "finish", dies)
                with pytest.raises(OSError, match="gone"):
                    await line(home)
            assert await line(home) == "hello"
            assert texts(await HoldfastConversations(home).load("ops/api")) == ["hi", "hello"]

    asyncio.run(story())
