"""The demo model: what it understands, how it tells results, and that it never goes in reader sets."""

import json
from typing import Any

import msgspec
import pytest

from holdfast.adapters.models.demo.model import DemoModel, answer_from_view
from holdfast.ids import CallId
from holdfast.ports.model import ModelRequest, ToolSchema
from holdfast.session.view.messages import (
    AssistantMessage,
    CallPart,
    NoteMessage,
    ResultMessage,
    UserMessage,
)
from holdfast.testing.loop import in_loop

TEXT = {"type": "string"}


def tool(name: str, /, **properties: Any) -> ToolSchema:
    schema = {"type": "object", "properties": properties, "$defs": {"Count": {"type": "integer"}}}
    return ToolSchema(name, "", msgspec.Raw(msgspec.json.encode(schema)))


TOOLS = (
    tool("now"),
    tool("shell", command=TEXT, timeout_seconds={"anyOf": [{"type": "number"}, {"type": "null"}]}),
    tool("read_file", path=TEXT),
    tool("list_files", path=TEXT),
    tool("search_files", pattern=TEXT, path=TEXT),
    tool("write_file", path=TEXT, content=TEXT),
    tool("ask_person", question=TEXT, choices={"type": "array", "items": TEXT}),
    tool(
        "scale",
        service=TEXT,
        count={"$ref": "#/$defs/Count"},
        force={"type": "boolean"},
        ratio={"type": "number"},
        labels={"type": "object"},
        mode={"enum": ["fast", 3, None]},
    ),
)


def view(*messages: Any) -> ModelRequest:
    return ModelRequest(instructions="", messages=messages, tools=TOOLS)


def calls(text: str) -> list[tuple[str, Any]]:
    answer = answer_from_view(view(UserMessage(text, "alice")))
    return [(call.tool, json.loads(call.arguments)) for call in answer.calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", [("now", {})]),
        ("scale service=api count=3", [("scale", {"service": "api", "count": 3})]),
        (
            'scale service="the api" force=true ratio=0.5',
            [("scale", {"service": "the api", "force": True, "ratio": 0.5})],
        ),
        ("scale service='it' ratio=2", [("scale", {"service": "it", "ratio": 2})]),
        (
            'scale labels={"a": [1, "b c"]} force=no',
            [("scale", {"labels": {"a": [1, "b c"]}, "force": False})],
        ),
        ("scale mode=3", [("scale", {"mode": 3})]),
        ("scale mode=null", [("scale", {"mode": None})]),
        (
            'ask_person question="Which?" choices=["a", "b"]',
            [("ask_person", {"question": "Which?", "choices": ["a", "b"]})],
        ),
        (
            "shell command=ls timeout_seconds=null",
            [("shell", {"command": "ls", "timeout_seconds": None})],
        ),
        (
            r'search_files pattern="\d+ \"x\"" path=.',
            [("search_files", {"pattern": '\\d+ "x"', "path": "."})],
        ),
        (
            'write_file path=a content="one\ntwo"',
            [("write_file", {"path": "a", "content": "one\ntwo"})],
        ),
        (
            "now\n\n  read_file path=a\nnow",
            [("now", {}), ("read_file", {"path": "a"}), ("now", {})],
        ),
        ("scale count=many", [("scale", {"count": "many"})]),
        ("scale unknown=1", [("scale", {"unknown": "1"})]),
        ("scale service=", [("scale", {"service": ""})]),
        ("what time is it?", [("now", {})]),
        ("list files", [("list_files", {"path": "."})]),
        ("List files in src", [("list_files", {"path": "src"})]),
        ("read notes.txt", [("read_file", {"path": "notes.txt"})]),
        ("search for a b in src", [("search_files", {"pattern": "a b", "path": "src"})]),
        ("run: ls -la | wc", [("shell", {"command": "ls -la | wc"})]),
        ("run make check", [("shell", {"command": "make check"})]),
        ("run:ls", [("shell", {"command": "ls"})]),
        (
            "write a.txt: hello\nworld",
            [("write_file", {"path": "a.txt", "content": "hello\nworld"})],
        ),
        ("ask me which colour?", [("ask_person", {"question": "which colour?"})]),
    ],
)
def test_a_request_becomes_exactly_these_calls(text: str, expected: list[tuple[str, Any]]) -> None:
    """Values are read by the tool's types; several lines are one batch."""
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("help", "I am the demo model"),
        ("tell me a story", "did not understand"),
        ("now tell me a story", "can't read 'tell'"),
        ("now\nfly away=1", "no tool called 'fly'"),
        ('shell command="ls', "is not closed"),
        ('shell command="ls"x', "after the value of command"),
        ("scale labels={1}", "as JSON"),
        ("", "did not understand"),
    ],
)
def test_a_request_that_is_not_wholly_understood_calls_nothing(text: str, told: str) -> None:
    """Half of a batch is never run, and the answer says what was not read."""
    answer = answer_from_view(view(UserMessage(text, None)))
    assert answer.calls == ()
    assert told in answer.text


def test_a_request_for_a_tool_that_is_not_offered_says_so() -> None:
    """It is not called by a name that nobody registered."""
    answer = answer_from_view(
        ModelRequest(instructions="", messages=(UserMessage("run: ls", None),))
    )
    assert (answer.text, answer.calls) == (
        "That would need the tool shell, which I was not given.",
        (),
    )


def result(outcome: str, text: str) -> ResultMessage:
    return ResultMessage(CallId("c-1"), "shell", outcome, text)


MADE = AssistantMessage("", (CallPart(CallId("c-1"), "shell", "{}"),))


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ("ok", "shell: it said so"),
        ("error", "shell failed: it said so"),
        ("denied", "shell was denied and did not run: it said so"),
        ("expired", "shell did not run, because the approval expired: it said so"),
        ("in_doubt", "shell is in doubt, it may or may not have happened: it said so"),
        ("eaten", "shell ended as eaten: it said so"),
    ],
)
def test_every_result_names_its_outcome(outcome: str, told: str) -> None:
    """The person reads what happened, not only what came out."""
    answer = answer_from_view(
        view(UserMessage("shell", None), MADE, result(outcome, "it said so\n"))
    )
    assert (answer.text, answer.calls) == (told, ())


def test_after_results_it_never_calls_again() -> None:
    """The answer has no calls, unless a new message stands behind the results."""
    ran = (UserMessage("now", None), MADE, result("ok", "12:00"))
    for rest in ((), (NoteMessage("You repeat yourself."),), (AssistantMessage("12:00"),)):
        assert answer_from_view(view(*ran, *rest)).calls == ()


def test_messages_that_came_together_are_one_request() -> None:
    """Queued messages are answered as one, and nothing before the last answer counts."""
    messages = (
        UserMessage("read_file path=a", None),
        AssistantMessage("a: 1"),
        UserMessage("now", None),
        NoteMessage("n"),
    )
    answer = answer_from_view(view(*messages, UserMessage("now", None)))
    assert [call.tool for call in answer.calls] == ["now", "now"]


@in_loop
async def test_it_speaks_word_by_word() -> None:
    """Followers see the text grow; together the pieces are the text."""
    pieces: list[str] = []
    request = view(UserMessage("x", None), MADE, result("ok", "one  two\n\nthree"))
    answer = await DemoModel().call(request, on_text=pieces.append)
    assert "".join(pieces) == answer.text == "shell: one  two\n\nthree"
    assert len(pieces) == 4
