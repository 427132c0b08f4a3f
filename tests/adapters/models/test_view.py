"""
The request that goes over the wire: one return for every call, ids that pair, and a blob that is believed only
while it tells what the journal tells.
"""

import json
from typing import Any

import msgspec
import pytest
from pydantic_ai.messages import ModelRequest as WireRequest
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart

from holdfast.adapters.models.pydantic_ai.view import (
    answer_from_response,
    messages_from_request,
    parameters_from_request,
    wire_name,
)
from holdfast.errors import InvariantBroken
from holdfast.ids import CallId
from holdfast.limits import MIB
from holdfast.ports.model import ModelRequest, ToolSchema
from holdfast.session.view.messages import (
    AssistantMessage,
    CallPart,
    NoteMessage,
    ResultMessage,
    UserMessage,
)


def view(*messages: Any) -> ModelRequest:
    tools = (ToolSchema("bot:status", "", msgspec.Raw(b'{"type": "object", "properties": {}}')),)
    return ModelRequest(instructions="", messages=messages, tools=tools)


def made(number: int, provider_id: str | None = None, arguments: str = "{}") -> CallPart:
    return CallPart(CallId(f"c-{number}"), "now", arguments, provider_id)


def result(number: int, outcome: str = "ok", text: str = "12:00") -> ResultMessage:
    return ResultMessage(CallId(f"c-{number}"), "now", outcome, text)


def ids(*messages: Any) -> tuple[list[str], list[str]]:
    wire = messages_from_request(view(*messages))
    parts = [part for message in wire for part in message.parts]
    calls = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
    return calls, [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]


HI = UserMessage("hi", None)


def test_ids_of_a_provider_are_kept_while_they_name_one_call() -> None:
    """Repeated or unfit ones are replaced by ours, on both sides."""
    assert ids(HI, AssistantMessage("", (made(1, "a"), made(2, "b"))), result(1), result(2)) == (
        ["a", "b"],
        ["a", "b"],
    )
    repeated = (
        HI,
        AssistantMessage("", (made(1, "a"),)),
        result(1),
        AssistantMessage("", (made(2, "a"),)),
        result(2),
    )
    assert ids(*repeated) == (["c-1", "c-2"], ["c-1", "c-2"])
    assert ids(HI, AssistantMessage("", (made(1, "no id!"), made(2))), result(2), result(1)) == (
        ["c-1", "c-2"],
        ["c-2", "c-1"],
    )


@pytest.mark.parametrize(
    "messages",
    [
        (AssistantMessage("", (made(1),)),),
        (AssistantMessage("", (made(1), made(2))), result(1), HI),
        (AssistantMessage("", (made(1),)), result(1), result(1)),
        (result(1),),
    ],
)
def test_a_view_without_exactly_one_result_per_call_is_a_bug(messages: Any) -> None:
    """It is not papered over on the way to the provider."""
    with pytest.raises(InvariantBroken):
        messages_from_request(view(HI, *messages))


@pytest.mark.parametrize(
    ("outcome", "theirs", "text"),
    [
        ("ok", "success", "12:00"),
        ("error", "failed", "12:00"),
        ("denied", "denied", "[denied] 12:00"),
        ("voided", "denied", "[voided] 12:00"),
        ("in_doubt", "interrupted", "[in_doubt] 12:00"),
    ],
)
def test_the_model_reads_how_a_call_ended(outcome: str, theirs: str, text: str) -> None:
    """In the provider's way where it has one, and in words for all."""
    wire = messages_from_request(view(HI, AssistantMessage("", (made(1),)), result(1, outcome)))
    part = wire[-1].parts[0]
    assert isinstance(part, ToolReturnPart)
    assert (part.outcome, part.content) == (theirs, text)


def test_the_model_reads_why_a_call_did_not_run() -> None:
    """Case 20: a denial comes with its code, to every model."""
    denied = ResultMessage(
        CallId("c-1"), "now", "denied", "Not run: it is denied.", code="denied_by_policy"
    )
    wire = messages_from_request(view(HI, AssistantMessage("", (made(1),)), denied))
    (part,) = [
        each for message in wire for each in message.parts if isinstance(each, ToolReturnPart)
    ]
    assert part.content == "[denied: denied_by_policy] Not run: it is denied."


def test_messages_between_two_answers_form_one_request() -> None:
    """Results first, then what was said; an empty answer leaves no trace."""
    messages = (
        HI,
        AssistantMessage("", (made(1),)),
        result(1),
        NoteMessage("n"),
        AssistantMessage(""),
        UserMessage("so?", None),
    )
    shape = [
        [type(part).__name__ for part in message.parts]
        for message in messages_from_request(view(*messages))
    ]
    assert shape == [
        ["UserPromptPart"],
        ["ToolCallPart"],
        ["ToolReturnPart", "UserPromptPart", "UserPromptPart"],
    ]


def test_names_that_providers_refuse_have_a_stand_in() -> None:
    """Always the same one; the answer speaks of the tool by its own name."""
    request = view(HI)
    (offered,) = parameters_from_request(request).function_tools
    assert offered.name == wire_name("bot:status") != "bot:status"
    answer = answer_from_response(
        ModelResponse(parts=[ToolCallPart(offered.name, "{}", "a")]), request
    )
    assert [call.tool for call in answer.calls] == ["bot:status"]
    assert wire_name("bot_status") == "bot_status"


def blob_of(*parts: Any) -> str:
    blob = answer_from_response(ModelResponse(parts=parts), view(HI)).blob
    assert blob is not None
    return blob


THOUGHT = blob_of(
    ThinkingPart("hm", signature="s", provider_name="anthropic"),
    TextPart("It is"),
    ToolCallPart("now", "{}", "a"),
)


def kinds(message: AssistantMessage) -> list[str]:
    wire = messages_from_request(
        view(HI, message, *(result(int(call.call[2:])) for call in message.calls))
    )
    return [type(part).__name__ for part in wire[1].parts]


def test_a_blob_that_tells_the_same_as_the_journal_is_given_back() -> None:
    """With thinking and signature, and with the ids of this view."""
    assert kinds(AssistantMessage("It is", (made(1, "a"),), THOUGHT)) == [
        "ThinkingPart",
        "TextPart",
        "ToolCallPart",
    ]
    again = AssistantMessage("It is", (made(2, "a"),), THOUGHT)
    assert ids(
        HI, AssistantMessage("It is", (made(1, "a"),), THOUGHT), result(1), again, result(2)
    )[0] == ["c-1", "c-2"]


@pytest.mark.parametrize(
    ("text", "call", "blob"),
    [
        ("It was", made(1, "a"), THOUGHT),
        ("It is", made(1, "a", '{"zone": "UTC"}'), THOUGHT),
        ("It is", made(1, "a"), THOUGHT.replace("pydantic-ai/1", "pydantic-ai/2")),
        ("It is", made(1, "a"), THOUGHT.replace('"thinking"', '"brooding"')),
        ("It is", made(1, "a"), "{}"),
        ("It is", made(1, "a"), "not JSON"),
        ("It is", made(1, "a"), json.dumps({"adapter": "pydantic-ai/1", "messages": []})),
    ],
)
def test_any_other_blob_gives_way_to_our_own_words(text: str, call: CallPart, blob: str) -> None:
    """It has another version, is damaged, or differs from the journal."""
    assert kinds(AssistantMessage(text, (call,), blob)) == ["TextPart", "ToolCallPart"]


def test_a_blob_that_would_not_fit_a_record_is_dropped() -> None:
    """The answer itself is kept."""
    response = ModelResponse(parts=[ThinkingPart("x" * MIB), TextPart("short")])
    answer = answer_from_response(response, view(HI))
    assert (answer.text, answer.blob, answer.blob_adapter) == ("short", None, None)


def test_instructions_are_sent_once() -> None:
    """As instructions, not as a message."""
    request = ModelRequest(instructions="Be kind.", messages=(HI,))
    parts = parameters_from_request(request).instruction_parts
    assert [part.content for part in parts or []] == ["Be kind."]
    assert parameters_from_request(request).native_tools == []
    (wire,) = messages_from_request(request)
    assert isinstance(wire, WireRequest)
    assert wire.instructions is None
