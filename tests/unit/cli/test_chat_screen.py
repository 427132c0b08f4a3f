"""Text of others can't move the cursor, hide, or leave its place behind the bar."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.commands.chat.screen import Screen, plain
from holdfast.cli.output.risk_text import marked_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ntext", "plain\ntext"),
        ("a\x1b[2Kb\x07", "a\\u001b[2Kb\\u0007"),
        ("\u202eevil\u200b", "\\u202eevil\\u200b"),
        ("one\rtwo", "one\\u000dtwo"),
        ("dos\r\nline", "dos\nline"),
        ("tab\there", "tab here"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_every_ambiguous_character_is_made_visible(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.lists(st.text(), max_size=8))
def test_every_line_of_a_stream_stands_behind_its_bar(pieces: list[str]) -> None:
    """However it is cut into pieces, and however long its lines are."""
    screen = Screen()
    with screen.console.capture() as captured:
        for piece in pieces:
            screen.stream(piece)
        screen.end_stream()
    lines = captured.get().split("\n")[:-1]
    assert all(line.startswith("| ") for line in lines)
    assert "".join(line.removeprefix("| ") for line in lines) == plain("".join(pieces)).replace(
        "\n", ""
    ) or "\r" in "".join(pieces)


def test_a_line_of_a_stream_never_begins_with_the_space_behind_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    with screen.console.capture() as captured:
        screen.stream("word " * 40 + "x" * 18 + " end " + "y" * 30)
        screen.end_stream()
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 20
    assert [line for line in lines if line.startswith("|  ")] == []


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=400))
def test_a_display_is_shown_complete_however_long_its_lines(display: str) -> None:
    """P4: nothing of what would run is cut off."""
    screen = Screen()
    with screen.console.capture() as captured:
        screen.show(marked_lines(display, ()))
    first, *rest = captured.get().split("\n")[:-1]
    mark = "  ~ " if display.startswith("| ") else "    "
    assert all(line.startswith(mark) for line in rest)
    assert first.removeprefix("  ") + "".join(line.removeprefix(mark) for line in rest) == display


def test_the_screen_says_that_the_model_thinks_for_how_long_and_how_to_stop_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line that is replaced, and gone with the first piece of the reply."""
    screen = Screen()
    screen.tick()
    assert capsys.readouterr().out == "", "no model call is open"
    screen.works("thinking")
    screen.tick()
    shown = capsys.readouterr().out
    assert re.search(r"thinking, \d+ s\. Ctrl-C stops it\.", shown)
    assert "\n" not in shown
    screen.works(None)
    screen.tick()
    assert "thinking" not in capsys.readouterr().out
