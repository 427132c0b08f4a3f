"""Text is wrapped at words at any width, and no character is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.commands.chat.screen import Screen
from holdfast.cli.output.risk_text import marked_lines
from holdfast.cli.output.word_wrap import cell_width, wrap_for_terminal, wrap_words
from holdfast.session.authority.plan import Risk

SENTENCE = "deletes files, and they cannot be brought back by anybody"


@given(text=st.text(alphabet="ab é漢 \n", max_size=200), width=st.integers(8, 40))
def test_nothing_is_lost_and_no_line_is_too_wide(text: str, width: int) -> None:
    lines = list(wrap_words(text, width))
    assert "".join(lines) == text.replace("\n", "")
    assert all(sum(map(cell_width, line)) <= width for line in lines)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_line_breaks_between_words(width: int) -> None:
    for line in wrap_words(SENTENCE, width, indent="  "):
        assert all(word in SENTENCE.split() for word in line.split())


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_stream_in_pieces_breaks_between_words_too(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen = Screen()
    with screen.console.capture() as captured:
        for at in range(0, len(SENTENCE), 3):
            screen.stream(SENTENCE[at : at + 3])
        screen.end_stream()
    lines = captured.get().splitlines()
    assert all(line.startswith("| ") and len(line) <= width for line in lines)
    assert " ".join(word for line in lines for word in line[2:].split()) == SENTENCE
    assert all(word in SENTENCE.split() for line in lines for word in line[2:].split())


def test_a_reason_follows_the_last_line_of_its_part() -> None:
    display = "run\n| rm \\\n| x\nend"
    start, end = display.index("rm"), display.index("x") + 1
    risk = Risk(kind="destructive", text="why", start=start, end=end)
    lines = list(marked_lines(display, [risk]))
    assert [(line.text, line.reasons) for line in lines] == [
        ("run", ()),
        ("| rm \\", ()),
        ("| x", ("why",)),
        ("end", ()),
    ]
    assert [line.marks for line in lines] == [(), ((2, 6),), ((0, 3),), ()]


COMMAND = "holdfast approvals answer a-uultnzqbxpigk5hj24k2a2tun3 approve_once"


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_command_to_copy_is_never_broken(width: int) -> None:
    for line in (f"  $ {COMMAND}", f"hint: it still waits, and `{COMMAND}` answers it"):
        assert COMMAND in wrap_for_terminal(line, width)


@given(st.text("ab |~:` ", max_size=200), st.integers(20, 90))
def test_foreign_text_never_begins_a_line_without_its_mark(text: str, width: int) -> None:
    """At any width: else a padded command could print a line that looks like Holdfast's own."""
    first, *rest = wrap_for_terminal(f"| {text}", width).split("\n")
    assert first.startswith("|")
    assert all(line.startswith("~ ") for line in rest)
    assert all(len(line) <= width for line in (first, *rest))
    shown = first[2:] + "".join(line[2:] for line in rest)
    assert shown.replace(" ", "") == text.replace(" ", "")


@given(st.lists(st.text("abc", min_size=1, max_size=12), max_size=30), st.integers(20, 90))
def test_wrapping_keeps_every_word_whole_and_in_order(words: list[str], width: int) -> None:
    lines = wrap_for_terminal("label   " + " ".join(words), width).split("\n")
    assert " ".join(lines).split() == ["label", *words]
    assert all(len(line.rstrip()) <= width for line in lines)
