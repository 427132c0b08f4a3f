"""The tools of a process, by name."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.adapters.tools.builtin.now import now
from holdfast.adapters.tools.builtin.questions import ask_person
from holdfast.adapters.tools.python.decorator import tool
from holdfast.adapters.tools.registry import Toolbox, builtin_makers, builtin_tools, load_tool
from holdfast.adapters.tools.user_program import UserProgram
from holdfast.errors import InvariantBroken, Unusable
from holdfast.ports.tools import BUILTIN_TOOLS, InvalidArguments, Tool, ToolBox
from holdfast.session.authority.approvals import RESERVED


@tool
def helper(x: int) -> int:
    return x


def test_the_built_in_tools_are_as_promised() -> None:
    facts = {
        one.definition.name: (
            one.definition.contract,
            one.definition.default_mode,
            one.definition.kind,
            one.definition.audience,
        )
        for one in builtin_tools()
    }
    assert facts == {
        "ask_person": ("once", "auto", "question", "team"),
        "edit_file": ("once", "ask", "write_file", "personal"),
        "forget": ("once", "ask", "memory", "personal"),
        "cancel_reminder": ("idempotent", "ask", "reminder", "personal"),
        "job_cancel": ("idempotent", "ask", "job_cancel", "team"),
        "job_status": ("pure", "auto", "plain", "team"),
        "list_files": ("pure", "auto", "read_file", "team"),
        "list_reminders": ("pure", "auto", "reminder", "team"),
        "now": ("pure", "auto", "plain", "public"),
        "read_file": ("pure", "auto", "read_file", "team"),
        "recall": ("pure", "auto", "memory", "team"),
        "remember": ("idempotent", "ask", "memory", "personal"),
        "search_files": ("pure", "auto", "read_file", "team"),
        "set_reminder": ("idempotent", "ask", "reminder", "personal"),
        "shell": ("once", "ask", "shell", "personal"),
        "write_file": ("once", "ask", "write_file", "personal"),
    }


def test_definitions_are_the_same_in_every_process() -> None:
    assert [one.definition.digest() for one in builtin_tools()] == [
        one.definition.digest() for one in builtin_tools()
    ]
    for one in builtin_tools():
        assert msgspec.json.decode(one.definition.parameters)["type"] == "object"


def test_a_toolbox_finds_by_name_and_refuses_doubles() -> None:
    box: ToolBox = Toolbox([*builtin_tools(), helper])
    assert box.get("helper") is helper
    assert box.get("none") is None
    assert list(box.names()) == sorted([*BUILTIN_TOOLS, "helper"])
    with pytest.raises(Unusable):
        Toolbox([*builtin_tools(), tool(name="shell")(lambda: None)])
    with pytest.raises(Unusable):
        Toolbox([tool(name="shell")(lambda: None)], builtin_makers())


def test_only_the_tools_that_are_asked_for_are_made() -> None:
    made: list[str] = []

    def maker(name: str) -> Callable[[], Tool]:
        def make() -> Tool:
            made.append(name)
            return tool(name=name)(lambda: None)

        return make

    box = Toolbox([], {"one": maker("one"), "two": maker("two")})
    assert list(box.names()) == ["one", "two"]
    assert box.get("two") is box.get("two")
    assert made == ["two"]


def test_tools_are_loaded_by_the_names_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bot", sys.modules[__name__])
    assert load_tool("bot:helper", UserProgram()) is helper
    for name in ("no_such_module:x", "bot:none", "bot:sys"):
        with pytest.raises(Unusable) as refused:
            load_tool(name, UserProgram())
        assert refused.value.hint


@pytest.mark.parametrize(
    "body", ["1 / 0", "import sys; sys.exit(3)", "def x(", "raise LookupError", "import nosuch"]
)
def test_a_module_that_can_not_be_imported_is_reported_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    """
    It was a traceback in every command, an exit code that meant something else, and the end of a
    server.
    """
    (tmp_path / "broken_bot.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Unusable, match="'broken_bot:x'") as refused:
        load_tool("broken_bot:x", UserProgram())
    assert refused.value.hint


def test_the_error_of_a_tool_is_reported_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "untyped_bot.py").write_text("import holdfast\n\n@holdfast.tool\ndef x(a): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Unusable, match="parameter 'a' of x has no type"):
        load_tool("untyped_bot:x", UserProgram())


def test_the_time_is_returned(place: Any, run: Any) -> None:
    assert run(now(lambda: 0), place.scene()).text == "1970-01-01T00:00:00+00:00"
    with pytest.raises(InvalidArguments):
        now().validate(b'{"zone":"x"}')


def test_a_question_is_shown_and_never_run(place: Any, encode: Any) -> None:
    asking = ask_person()
    arguments = asking.validate(encode(question="Which one?\x1b[2K", choices=["red", "blue"]))
    binding = asking.bind(arguments, place.scene())
    assert binding.display == "the agent asks\n| Which one?\\u001b[2K\n  1. red\n  2. blue"

    async def go() -> None:
        prepared = await asking.prepare(arguments, binding, place.scene(), idempotency_key="k")
        await prepared.go(timeout_seconds=60, on_output=lambda _: None)

    with pytest.raises(InvariantBroken):
        asyncio.run(go())


def test_a_choice_that_is_a_word_of_ours_gets_no_number(place: Any, encode: Any) -> None:
    """It is not offered, so the numbers that are shown count only what is."""
    asking = ask_person()
    arguments = asking.validate(
        encode(question="Which one?", choices=["red", *sorted(RESERVED), "blue"])
    )
    assert (
        asking.bind(arguments, place.scene()).display
        == "the agent asks\n| Which one?\n  1. red\n  2. blue"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"question": " "},
        {"question": "q", "choices": ["a", "a"]},
        {"question": "q", "choices": [""]},
        {"question": "q", "choices": ["x"] * 13},
        {"question": "q", "choices": ["a\nb"]},
    ],
)
def test_questions_nobody_could_answer_are_refused(encode: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        ask_person().validate(encode(**arguments))


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    import subprocess

    code = "import sys, holdfast.adapters.tools.registry as t; t.builtin_tools(); print([m for m in ('pydantic', 'tree_sitter', 'tree_sitter_bash') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "[]\n"
