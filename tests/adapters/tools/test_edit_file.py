"""`edit_file`: one exact text, shown as a diff, bound to the file, written whole or not at all."""

import asyncio
from typing import Any

import pytest

from holdfast import limits
from holdfast.adapters.tools.files.edit import edit_file
from holdfast.adapters.tools.files.write import write_file
from holdfast.ports.tools import CannotBind, InvalidArguments

TEXT = "".join(f"line {number}\n" for number in range(1, 21))


def bound(encode: Any, scene: Any, **arguments: Any) -> Any:
    tool = edit_file()
    return tool.bind(tool.validate(encode(**arguments)), scene)


def test_one_text_is_replaced_and_the_rest_stays(place: Any, run: Any) -> None:
    path = place.workspace / "a.txt"
    path.write_text(TEXT)
    path.chmod(0o640)
    ended = run(edit_file(), place.scene(), path="a.txt", old="line 10\n", new="ten\nand more\n")
    assert ended.outcome == "ok"
    assert path.read_text() == TEXT.replace("line 10\n", "ten\nand more\n")
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_prompt_shows_the_change_as_a_diff(place: Any, encode: Any) -> None:
    (place.workspace / "a.txt").write_text(TEXT)
    binding = bound(encode, place.scene(), path="a.txt", old="line 10\n", new="--ten\u202e\n")
    shown = binding.display.split("\n")
    assert shown[0] == f"edit lines 10 to 11 of a file of {len(TEXT)} bytes"
    assert [line for line in shown if line.startswith(("| -", "| +"))] == [
        "| --- now",
        "| +++ then",
        "| -line 10",
        "| +--ten\\u202e",
    ]
    assert "| @@ -7,8 +7,8 @@" in shown
    assert ("|  line 7" in shown, "|  line 6" in shown) == (True, False)
    assert binding.memorable is False


@pytest.mark.parametrize(
    ("content", "old", "why"),
    [
        ("a b a", "a", "occurs 2 times"),
        ("aaa", "aa", "more than once"),
        ("abc", "x", "is not in"),
        (b"\xff\xfe", "x", "not UTF-8"),
        (None, "x", "there is no file"),
    ],
    ids=["twice", "overlapping", "absent", "binary", "no file"],
)
def test_a_text_that_is_not_there_exactly_once_is_refused(
    place: Any, encode: Any, content: Any, old: str, why: str
) -> None:
    if content is not None:
        raw = content if isinstance(content, bytes) else content.encode()
        (place.workspace / "a.txt").write_bytes(raw)
    with pytest.raises(CannotBind, match=why):
        bound(encode, place.scene(), path="a.txt", old=old, new="y")


def test_nothing_to_replace_is_refused_before_anybody_is_asked(encode: Any) -> None:
    for old, new in (("", "x"), ("x", "x")):
        with pytest.raises(InvalidArguments):
            edit_file().validate(encode(path="a.txt", old=old, new=new))


def test_the_home_and_the_outside_are_out_of_reach(place: Any, encode: Any) -> None:
    (place.root / "out.txt").write_text("x")
    with pytest.raises(CannotBind, match="outside the workspace"):
        bound(encode, place.scene(), path="../out.txt", old="x", new="y")
    with pytest.raises(CannotBind) as refused:
        bound(encode, place.scene(), path=str(place.key), old="key", new="y")
    assert refused.value.code == "hard_deny"


@pytest.mark.parametrize("change", ["content", "file", "link"])
def test_a_file_that_changed_after_the_approval_is_left_alone(
    place: Any, encode: Any, change: str
) -> None:
    """P1: the answer is bound to the file's digest and identity."""
    path, scene, tool = place.workspace / "a.txt", place.scene(), edit_file()
    path.write_text("one two")
    arguments = tool.validate(encode(path="a.txt", old="one", new="1"))
    binding = tool.bind(arguments, scene)
    if change == "content":
        path.write_text("one three")
    else:
        other = place.workspace / "b.txt"
        other.write_text("one two")
        path.unlink()
        path.symlink_to(other) if change == "link" else other.rename(path)

    async def go() -> Any:
        prepared = await tool.prepare(arguments, binding, scene, idempotency_key="k")
        return await prepared.go(timeout_seconds=60, on_output=lambda _: None)

    before = path.read_text()
    assert asyncio.run(go()).outcome == "error"
    assert path.read_text() == before


def test_a_large_new_file_is_summed_up_and_shown_whole(place: Any, encode: Any, run: Any) -> None:
    """P4: the prompt is complete, and its head says how long it is."""
    content = "".join(f"row {number}\n" for number in range(9_000))
    tool = write_file()
    binding = tool.bind(tool.validate(encode(path="big.csv", content=content)), place.scene())
    assert len(binding.display) > limits.DISPLAY_CHARS_MAX
    assert "large: 79890 characters in 9001 lines, the longest of 8" in binding.display
    assert "| row 8999\n" in binding.display
    assert run(tool, place.scene(), path="big.csv", content=content).outcome == "ok"
    assert (place.workspace / "big.csv").read_text() == content


def test_a_file_that_nobody_can_read_is_refused_with_the_steps_that_help(
    place: Any, encode: Any
) -> None:
    tool = write_file()
    arguments = tool.validate(encode(path="a.txt", content="x" * limits.FILE_DISPLAY_CHARS_MAX))
    with pytest.raises(CannotBind, match="with edit_file") as refused:
        tool.bind(arguments, place.scene())
    assert refused.value.code == "too_long"
