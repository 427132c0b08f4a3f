"""
P4: no letter in a prompt passes for another. Over every character of Unicode's own table of
look-alikes.
"""

import subprocess
import sys
import unicodedata
from typing import Any

import pytest
from proof.generated_docs.confusables_data import (
    ascii_targets,
    further_targets,
    module_from_text,
    table_from_text,
)

import holdfast
from holdfast.adapters.tools.files.read import read_file, search_files
from holdfast.adapters.tools.files.write import write_file
from holdfast.adapters.tools.shell.shell import Shell
from holdfast.session.view import confusables
from holdfast.session.view.look_alikes import like_of, name_of
from holdfast.session.view.safe_text import read_back, render, render_argument, render_content

ALIKE = {
    char: target
    for group in (confusables.ASCII, confusables.FURTHER)
    for target, chars in group.items()
    for char in chars
}
LETTERS = {char: target for char, target in ALIKE.items() if unicodedata.category(char)[0] in "LN"}


def escape_of(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def code_of(char: str) -> str:
    return f"U+{ord(char):04X}"


def test_the_table_is_unicodes_and_whole() -> None:
    """
    It names its version; what this Python calls a small capital or a fullwidth letter is a
    look-alike whatever the table says.
    """
    assert confusables.UNICODE_VERSION == "17.0.0"
    assert len(ALIKE) > 1900
    for first, last in (("\uff21", "\uff3a"), ("\uff41", "\uff5a"), ("\uff10", "\uff19")):
        assert all(like_of(chr(code)) for code in range(ord(first), ord(last) + 1))
    small = [
        chr(code)
        for code in range(0x80, 0x20000)
        if unicodedata.name(chr(code), "")[:-1] == "LATIN LETTER SMALL CAPITAL "
    ]
    assert len(small) > 20
    assert all(like_of(char) for char in small)


@pytest.mark.parametrize(
    "place",
    ["{}", "{}x", "x{}y", "cat {}", "cat /srv/{}/x", "curl https://{}.example/", "x {}\u0436 y"],
)
def test_every_look_alike_in_a_command_a_path_or_a_host_is_written_out_and_named(
    place: str,
) -> None:
    for char in ALIKE:
        text = place.format(char)
        shown = render(text)
        assert char not in shown.text, f"{name_of(char)} in {text!a}"
        assert escape_of(char) in shown.text
        assert any(code_of(char) in warning for warning in shown.warnings), (
            f"{name_of(char)} is not named"
        )
        assert read_back(shown.text) == text


def test_every_letter_that_passes_for_one_is_written_out_in_any_tools_argument_and_in_natural_text() -> (
    None
):
    """
    Alone, it is a word that reads as ASCII; beside Latin letters, it mixes scripts or imitates one
    of them.
    """
    for char, target in LETTERS.items():
        for text in (f'"{char}"', f'"ls{char}ls"', f'"https://x{char}y.example/"'):
            assert char not in render_argument(text).text, f"{name_of(char)} in {text!a}"
        if (
            len(target) == 1
            and char != "\u00fe"
            and unicodedata.name(char, "").split()[0] != "LATIN"
            and char.isprintable()
        ):
            assert char not in render_content(f"look at p{char}y now").text, name_of(char)


@pytest.mark.parametrize(
    "text",
    [
        "\u0280\u1d0d -rf x",  # small capitals
        "\u1d04\u1d00\u1d1b /etc/passwd",
        "\uff52\uff4d -rf x",  # fullwidth
        "\U0001d42b\U0001d426 -rf x",  # mathematical
        "cat /\u0435tc/passwd",
        "curl https://\u0430\u0440\u0440\u04cf\u0435.com/",  # wholly Cyrillic
        "curl https://x.com\u30ceevil.example/",  # a katakana that passes for a slash
        "curl https://x.com\u2215evil.example/",
        "git \u0441ommit",
        "python \u0455cript.py",
        "l\u0455",
        "\u0391\u0392",  # Greek capitals
        "c\u1ea1t x",  # a dot below
        "\u0261it status",  # script g
        "gr\u0435p x",
        "\u13a0\u13a1",  # Cherokee
        "\u2c9fls",  # Coptic
        "\ua4d0\ua4d1",  # Lisu
        "\u0578s",  # Armenian
        "rm \u2212rf x",  # a minus sign
        "mv a b\ua789c",  # a letter colon
    ],
)
def test_a_name_that_passes_for_another_is_marked_with_every_foreign_character_named(
    text: str,
) -> None:
    shown = render(text)
    assert shown.text.isascii()
    foreign = {char for char in text if not char.isascii()}
    (warning,) = shown.warnings
    assert all(code_of(char) in warning for char in foreign)


@pytest.mark.parametrize(
    "text",
    [
        "Gr\u00fc\u00dfe aus K\u00f6ln, sch\u00f6ne Stra\u00dfe",
        "d\u00e9j\u00e0 vu, L'\u0153uvre",
        "\u3053\u3093\u306b\u3061\u306f\u3001\u8a2d\u5b9a\u30d5\u30a1\u30a4\u30ebconfig.json\u3092\u898b\u3066\u304f\u3060\u3055\u3044\u30025\u65e5",
        "\ud55c\uad6d\uc5b4 README \ud30c\uc77c",
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u0447\u0442\u043e \u043d\u043e\u0432\u043e\u0433\u043e",
        "\u03c7\u03b1\u03af\u03c1\u03b5\u03c4\u03b5 \u03ba\u03cc\u03c3\u03bc\u03b5",
        "Ti\u1ebfng Vi\u1ec7t",
    ],
)
def test_natural_text_stays_readable(text: str) -> None:
    assert render_content(text).text == text
    assert render_content(text).warnings == ()
    assert render_argument(f'"{text} "').text == f'"{text} "'


@pytest.mark.parametrize(
    ("text", "strict", "lenient"),
    [
        (
            "x\u0436y",
            "x\\u0436y",
            "x\\u0436y",
        ),  # no Latin letter looks like it, but the word has two scripts
        ("\u0436\u03bb", "\\u0436\\u03bb", "\\u0436\\u03bb"),
        ("\u0436\u65e5", "\\u0436\\u65e5", "\\u0436\\u65e5"),
        ("\u00e9\u0436", "\u00e9\\u0436", "\u00e9\\u0436"),
        (
            "x\u65e5",
            "x\\u65e5",
            "x\u65e5",
        ),  # written together every day, and never in a command's name
        ("\u65e5\u30ce\u672c x", "\u65e5\\u30ce\u672c x", "\u65e5\u30ce\u672c x"),
        ("x\u30cey", "x\\u30cey", "x\\u30cey"),
    ],
)
def test_a_word_of_two_scripts_is_marked(text: str, strict: str, lenient: str) -> None:
    assert (render(text).text, render_content(text).text) == (strict, lenient)


def test_japanese_without_spaces_stays_readable_as_an_argument() -> None:
    text = '"\u8a2d\u5b9a\u3092\u898b\u3066"'
    assert render_argument(text).text == text


@holdfast.tool
def fetch(url: str) -> str:
    """Fetch a page."""
    return url


def test_every_prompt_marks_and_names_them(place: Any, encode: Any) -> None:
    """The prompt of a command, of a path, of a pattern and of anybody's own tool."""
    (place.workspace / "\u0430.txt").write_text("x")
    calls = [
        (Shell(), {"command": "\u0441\u0430t x"}),
        (read_file(), {"path": "\u0430.txt"}),
        (search_files(), {"pattern": "p\u0430y"}),
        (write_file(), {"path": "\u0430.txt", "content": "x"}),
        (write_file(), {"path": "b.txt", "content": "p\u0430y"}),
        (fetch, {"url": "https://\u0430\u0440\u0440\u04cf\u0435.com/"}),
    ]
    for tool, arguments in calls:
        binding = tool.bind(tool.validate(encode(**arguments)), place.scene())
        assert "\u0430" not in binding.display
        assert "\\u0430" in binding.display
        assert any(
            "U+0430 CYRILLIC SMALL LETTER A, like a" in warning for warning in binding.warnings
        )


def test_many_look_alikes_are_counted_and_not_all_named() -> None:
    (warning,) = render(
        "x" + "".join(sorted(char for char in LETTERS if char.isprintable())[:50])
    ).warnings
    assert warning.endswith("; and 30 more)")


def test_the_data_is_not_loaded_for_ascii() -> None:
    """
    A command that needs no model starts fast: the table is read with the first text that needs it.
    """
    code = "import sys; from holdfast.session.view.safe_text import render; render('ls -l'); print('holdfast.session.view.confusables' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


EXCERPT = """\ufeff# confusables.txt
# Version: 99.0.0
0430 ;\t0061 ;\tMA\t# ( \u0430 \u2192 a ) CYRILLIC SMALL LETTER A
0432 ;\t0299 ;\tMA\t#
00E6 ;\t0061 0065 ;\tMA\t#
06E8 ;\t0306 0307 ;\tMA\t#
"""


def test_the_module_is_made_from_unicodes_file() -> None:
    version, table = table_from_text(EXCERPT)
    assert (version, ascii_targets(table)) == ("99.0.0", {"\u0430": "a", "\u00e6": "ae"})
    further = further_targets(table)
    assert (further["\u0432"], further["\u1d00"], further["\u0138"], further.get("\u06e8")) == (
        "B",
        "A",
        "k",
        None,
    )
    made: dict[str, dict[str, str]] = {}
    exec(module_from_text(EXCERPT.encode()), made)  # noqa: S102  our own text
    assert made["ASCII"] == {"a": "\u0430", "ae": "\u00e6"}
    assert {char: target for target, chars in made["FURTHER"].items() for char in chars} == further
    ours = {char: target for char, target in further.items() if char != "\u0432"}
    committed = {char: target for target, chars in confusables.FURTHER.items() for char in chars}
    assert {char: committed.get(char) or like_of(char) for char in ours}.keys() == ours.keys()
