"""Shown text hides nothing and looks like nothing else."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.limits import DISPLAY_CHARS_MAX
from holdfast.session.view.safe_text import (
    TooLongToShow,
    fit,
    framed,
    read_back,
    render,
    render_content,
)

NASTY = st.text(
    st.one_of(
        st.characters(codec=None, exclude_categories=["Cs"]),
        st.sampled_from(
            "\\uU \t\n\r\x1b\u202e\u200b\u2066\u00a0\ufe0f\U000e0041\u0430\u0435\u03bf\uff52ae\u0301\u0327\u00e9\u212b\u1100\u1161\u3164;'\"0\u05d0\u0627"
        ),
    ),
    max_size=60,
)


@given(NASTY)
def test_the_shown_text_decodes_to_the_text_that_runs(text: str) -> None:
    """Two texts that look the same are the same: the showing can be undone exactly."""
    assert read_back(render(text).text) == text
    assert read_back(render_content(text).text) == text


@given(NASTY)
def test_only_printable_characters_and_newlines_are_shown(text: str) -> None:
    for shown in (render(text).text, render_content(text).text):
        assert all(char == "\n" or char.isprintable() for char in shown)
        assert all(not line.endswith(" ") for line in shown.split("\n"))
        assert not any(
            unicodedata.category(char) in ("Cf", "Cc", "Co", "Cn", "Cs")
            for char in shown
            if char != "\n"
        )


@given(NASTY)
def test_no_shown_character_has_a_second_spelling(text: str) -> None:
    """
    Normalising what is shown changes nothing, so composed and decomposed, fullwidth and plain never
    look alike.
    """
    shown = render(text).text
    assert unicodedata.normalize("NFKC", shown) == shown


LIKE = str.maketrans("\u0430\u0435\u043e\u0440\u0441\uff52\uff4d\u03bf", "aeopcrmo")


@given(st.text("aeopcrm \u0430\u0435\u043e\u0440\u0441\uff52\uff4d\u03bf", max_size=12), st.data())
def test_look_alike_words_look_different(one: str, data: st.DataObject) -> None:
    """To an eye that can't tell the letters apart, different texts still look different."""
    choices = {
        plain: [plain, *(chr(char) for char, like in LIKE.items() if like == ord(plain))]
        for plain in "aeopcrm "
    }
    other = "".join(data.draw(st.sampled_from(choices[char.translate(LIKE)])) for char in one)
    if one != other:
        assert render(one).text.translate(LIKE) != render(other).text.translate(LIKE)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -l", "ls -l"),
        ("echo a\u202eb", "echo a\\u202eb"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("ok\x1b[2K\rrm", "ok\\u001b[2K\\u000drm"),
        ("\x1b]8;;http://x\x07y", "\\u001b]8;;http://x\\u0007y"),
        ("rm x ", "rm x\\u0020"),
        ("rm x \n", "rm x\\u0020\n"),
        ("rm x\r", "rm x\\u000d"),
        ("\uff52\uff4d", "\\uff52\\uff4d"),
        ("p\u0430ypal", "p\\u0430ypal"),
        ("ls\u00a0-l", "ls\\u00a0-l"),
        ("a\U000e0041", "a\\U000e0041"),
        ("v\ufe0f", "v\\ufe0f"),
        ("e\u0301", "e\\u0301"),
        ("rm \u2010rf", "rm \\u2010rf"),
        ("\\u202e", "\\\\u202e"),
        ("C:\\temp", "C:\\temp"),
        ("a \u05d0 b", "a \\u05d0 b"),
        ("für 日本語 привет", "für 日本語 \\u043f\\u0440и\\u0432\\u0435\\u0442"),
    ],
)
def test_characters_that_hide_or_imitate_are_written_out(text: str, shown: str) -> None:
    assert render(text).text == shown


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "\uff52\uff4d -rf x",
            "look-alike characters: \\uff52\\uff4d (U+FF4D FULLWIDTH LATIN SMALL LETTER M, like m; U+FF52 FULLWIDTH LATIN SMALL LETTER R, like r)",
        ),
        (
            "p\u0430ypal",
            "look-alike characters: p\\u0430ypal (U+0430 CYRILLIC SMALL LETTER A, like a)",
        ),
        ("a\u202eb", "invisible or control characters: U+202E RIGHT-TO-LEFT OVERRIDE"),
        ("ls" + " " * 50 + "; rm", "more than 40 spaces in a row: look to the far right"),
        ("ls" + "\n" * 300 + "rm", "301 lines: read to the end"),
    ],
)
def test_render_warns_about_misleading_text(text: str, warning: str) -> None:
    assert warning in render(text).warnings


def test_plain_text_is_not_flagged() -> None:
    assert render("git commit -m 'fix für Jürgen'").warnings == ()


def test_prose_keeps_its_quotes_and_commands_do_not() -> None:
    text = "\u201cquoted\u201d \u2014 so"
    assert (render_content(text).text, render(text).text) == (
        text,
        "\\u201cquoted\\u201d \\u2014 so",
    )


def test_every_line_is_framed_so_none_passes_for_ours() -> None:
    assert framed("a\nrun in\n") == "| a\n| run in\n| "


def test_fit_refuses_a_display_that_is_too_long() -> None:
    assert fit("x" * DISPLAY_CHARS_MAX)
    with pytest.raises(TooLongToShow):
        fit("x" * (DISPLAY_CHARS_MAX + 1))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"\u202e", r"\\u202e"),
        (r"\\u202e", r"\\\\u202e"),
        (r"\U000e0041", r"\\U000e0041"),
        (r"\unlike \Unlike", r"\\unlike \\Unlike"),
        (r"\\\n", r"\\\n"),
        ("\\\u202e", r"\\" + r"\u202e"),
        ("\\\\\u202e", r"\\\\" + r"\u202e"),
        ("\uffff\U000e0041", r"\uffff\U000e0041"),
        ("a\nb\n", "a\nb\n"),
        ("\u0131d", r"\u0131d"),
        ("x\U00010000", r"x\U00010000"),
    ],
)
def test_our_escapes_are_distinguished_from_those_in_the_text(text: str, shown: str) -> None:
    """P4: text that only looks like an escape has its slashes doubled, so that both read back."""
    assert render(text).text == shown
    assert read_back(shown) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "\u0915\u093e",
            "\u0915\u093e",
        ),  # a vowel sign on its own letter, in a script that needs it
        ("\u093e\u0915", "\\u093e\u0915"),  # on nothing
        (" \u093e", " \\u093e"),  # on a space
        ("\u202e\u093e", "\\u202e\\u093e"),  # on what is written out itself
        ("x\u0915\u093e", "x\\u0915\\u093e"),
        (
            "\u0995\u09c7\u09be",
            "\u0995\u09c7\\u09be",
        ),  # merges with the sign before it into one with another spelling
        ("e\u0301", "e\\u0301"),  # the same as one accented letter
        ("\u0430\u0301", "\\u0430\\u0301"),
        ("x\u0301", "x\\u0301"),  # no letter of its own, and yet on Latin
        ("1\u0301", "1\\u0301"),
        (
            "\u0915\ufe00\u0915\ufe0f",
            "\u0915\\ufe00\u0915\\ufe0f",
        ),  # selectors, the first and the last: drawn as nothing anywhere
        ("\u0915\U000e0100\u0915\U000e01ef", "\u0915\\U000e0100\u0915\\U000e01ef"),
    ],
)
def test_a_mark_stays_only_where_it_has_one_reading(text: str, shown: str) -> None:
    assert render(text).text == shown
    assert read_back(shown) == text


@pytest.mark.parametrize(
    ("text", "lines", "warnings"),
    [
        ("ls", 1, ()),
        ("a\nb", 2, ()),
        ("a\tb", 1, ()),
        ("x\u200by", 1, ("invisible or control characters: U+200B ZERO WIDTH SPACE",)),
        (
            "rm p\u0430y",
            1,
            ("look-alike characters: p\\u0430y (U+0430 CYRILLIC SMALL LETTER A, like a)",),
        ),
        ("x" + " " * 40 + "y", 1, ()),
        ("x" + " " * 41 + "y", 1, ("more than 40 spaces in a row: look to the far right",)),
        ("\n" * 59, 60, ()),
        ("\n" * 60, 61, ("61 lines: read to the end",)),
    ],
    ids=[
        "plain",
        "two lines",
        "a tab",
        "hidden",
        "look-alike",
        "forty spaces",
        "one more",
        "sixty lines",
        "one more line",
    ],
)
def test_warnings_come_when_there_is_something_to_look_at_and_not_before(
    text: str, lines: int, warnings: tuple[str, ...]
) -> None:
    found = render(text)
    assert (found.lines, found.warnings) == (lines, warnings)
