"""
`script:FILE` and ScriptModel: which line is taken, what it does, and how a broken script is told.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.models.catalogue import Catalogue
from holdfast.adapters.models.script import END_OF_SCRIPT, SCRIPT_BYTES_MAX, ScriptFile
from holdfast.errors import Unusable
from holdfast.ids import CallId
from holdfast.ports.model import Model, ModelFailed, ModelRequest
from holdfast.session.view.messages import ModelAnswer, ProposedCall, ResultMessage
from holdfast.testing.loop import in_loop
from holdfast.testing.models import ScriptModel


async def call(
    model: Model, *used: int, results: tuple[str, ...] = (), heard: list[str] | None = None
) -> ModelAnswer:
    messages = tuple(ResultMessage(CallId("c-1"), "shell", "ok", text) for text in results)
    request = ModelRequest(instructions="", messages=messages, script_lines_used=frozenset(used))
    return await model.call(request, on_text=(heard if heard is not None else []).append)


def script(folder: Path, *lines: Any) -> ScriptFile:
    path = folder / "story.jsonl"
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
    )
    return ScriptFile(str(path))


@in_loop
async def test_each_call_takes_the_first_line_not_used(tmp_path: Path) -> None:
    """
    Lines are numbered as editors do; what was used is the journal's to say, not the model's to
    remember.
    """
    model = script(tmp_path, {"say": "one"}, "", {"say": "three"})
    assert await call(model) == ModelAnswer(text="one", line=1)
    assert await call(model) == ModelAnswer(text="one", line=1), (
        "a crash before the answer was journalled takes nothing"
    )
    assert await call(model, 1) == ModelAnswer(text="three", line=3)
    assert await call(model, 3) == ModelAnswer(text="one", line=1)
    assert await call(model, 1, 3) == ModelAnswer(text=END_OF_SCRIPT)


@in_loop
async def test_calls_keep_their_ids_and_the_exact_text_of_their_arguments(tmp_path: Path) -> None:
    """The runtime is asked to run exactly the script's calls."""
    line = '{"say": "Here goes.", "call": [{"tool": "shell", "args": {"command":  "ls" }, "id": "c1"}, {"tool": "now"}]}'
    heard: list[str] = []
    answer = await call(script(tmp_path, line), heard=heard)
    assert answer.calls == (
        ProposedCall("shell", '{"command":  "ls" }', "c1"),
        ProposedCall("now", "{}", None),
    )
    assert "".join(heard) == answer.text == "Here goes."


@pytest.mark.parametrize(
    ("kind", "may_pass"),
    [("rate_limit", True), ("timeout", True), ("server", True), ("overflow", False)],
)
def test_a_failure_names_its_line(tmp_path: Path, kind: str, may_pass: bool) -> None:
    """So that the journalled failure consumes it."""
    with pytest.raises(ModelFailed) as caught:
        asyncio.run(call(script(tmp_path, {"fail": kind})))
    assert (caught.value.kind, caught.value.may_pass, caught.value.line) == (kind, may_pass, 1)


@in_loop
async def test_an_expectation_is_met_by_the_last_result_only(tmp_path: Path) -> None:
    """Not met, missing, or met earlier: the turn fails and says what was found."""
    model = script(tmp_path, {"expect": {"last_tool_result_contains": "done"}, "say": "good"})
    assert (await call(model, results=("no", "all done"))).text == "good"
    for results, found in ((("done", "no"), "'no'"), ((), "no tool result")):
        with pytest.raises(ModelFailed) as caught:
            await call(model, results=results)
        assert (caught.value.kind, caught.value.may_pass, caught.value.line) == (
            "script_expectation",
            False,
            1,
        )
        assert found in caught.value.message


@in_loop
async def test_a_sleeping_script_can_be_cancelled(tmp_path: Path) -> None:
    """Sleep gives way to the event loop."""
    task = asyncio.ensure_future(call(script(tmp_path, {"sleep": 3600, "say": "late"})))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@in_loop
async def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """And if it is broken by then, the call fails and names the line."""
    model = script(tmp_path, {"say": "one"})
    assert (await call(model)).text == "one"
    script(tmp_path, {"say": "another"})
    assert (await call(model)).text == "another"
    script(tmp_path, {"say": "longer than before"}, "{")
    with pytest.raises(ModelFailed) as caught:
        await call(model)
    assert (caught.value.kind, caught.value.may_pass, caught.value.line) == (
        "malformed",
        False,
        None,
    )
    assert "story.jsonl, line 2" in caught.value.message


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '"say"',
        "{}",
        '{"sleep": 1}',
        '{"say": 1}',
        '{"said": "x"}',
        '{"say": "x", "fail": "server"}',
        '{"fail": "boredom"}',
        '{"call": []}',
        '{"call": [{"args": {}}]}',
        '{"call": [{"tool": "now", "arguments": {}}]}',
        '{"say": "x", "sleep": -1}',
        '{"say": "x", "expect": {"result": "y"}}',
        "say: x",
    ],
)
def test_a_malformed_line_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    """When the name is resolved: before any turn starts on it."""
    model = script(tmp_path, {"say": "fine"}, line)
    with pytest.raises(Unusable) as caught:
        Catalogue().resolve(model.name)
    assert caught.value.code == "malformed_script"
    assert "story.jsonl, line 2: " in caught.value.message
    assert caught.value.hint


def test_a_script_that_has_no_end_or_never_begins_is_refused(tmp_path: Path) -> None:
    """
    The driver reads it between two steps: waiting for a FIFO's writer, or for the end of what has
    none, would hang every session it drives.
    """
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "long").touch()
    os.truncate(tmp_path / "long", SCRIPT_BYTES_MAX + 1)
    for name in (tmp_path / "fifo", tmp_path / "long", "/dev/zero", tmp_path):
        with pytest.raises(Unusable) as refused:
            ScriptFile(str(name)).load()
        assert refused.value.code == "unknown_model"


def test_a_script_is_known_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is named from."""
    model = script(tmp_path, {"say": "x"})
    monkeypatch.chdir(tmp_path)
    assert (
        Catalogue().resolve("script:story.jsonl").name
        == model.name
        == f"script:{tmp_path}/story.jsonl"
    )
    assert Catalogue().resolve(f"script:../{tmp_path.name}/story.jsonl").name == model.name


def test_objects_with_equal_lines_have_equal_names() -> None:
    """The digest is over what they would do."""
    lines: list[Any] = [{"call": [{"tool": "now", "id": "c1"}]}, "It is noon."]
    same, other = ScriptModel(lines), ScriptModel(["It is noon."])
    assert same.name == ScriptModel(lines).name != other.name
    assert same.name.startswith("script-object:")
    assert asyncio.run(call(same)) == ModelAnswer(
        text="", calls=(ProposedCall("now", "{}", "c1"),), line=1
    )
    with pytest.raises(Unusable, match="ScriptModel, line 1"):
        ScriptModel([{"shout": "x"}])
