r"""
Make text safe and complete to show: the text that a person reads before consenting cannot look like
anything but the call that will run.

Every character that can hide, reorder or imitate is written as `\u202e`: control and escape
characters, carriage returns, bidirectional and zero-width characters, tags, variation selectors,
unusual and trailing spaces, fullwidth forms, look-alikes of ASCII (`view/look_alikes.py`). A
backslash that would read like such an escape is doubled, so `read_back` undoes `render` exactly:
two different texts never look the same. Newlines stay, and are counted. Text is never shortened;
text that is too long to judge is refused. The warnings name every character that is written out.
"""

import re
import unicodedata
from functools import lru_cache

import msgspec

from holdfast.limits import DISPLAY_CHARS_MAX
from holdfast.session.view.look_alikes import (
    ambiguous_letters,
    has_east_asian,
    is_look_alike_symbol,
    name_of,
    script_of,
)

__all__ = [
    "Rendered",
    "TooLongToShow",
    "fit",
    "framed",
    "framed_offsets",
    "read_back",
    "render",
    "render_argument",
    "render_content",
    "render_line",
]

# Printable according to Unicode, but drawn as nothing: fillers, blank patterns, joiners, variation
# selectors.
_DRAWN_AS_NOTHING = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)

# Punctuation that passes for ASCII punctuation, though Unicode's table maps it to other characters
# or to none.
_LIKE_ASCII_PUNCTUATION = frozenset(
    "\u00b7\u060c\u066a\u2014\u2015\u201e\u2022\u204f\u2052\u2219\u2227\u22c5\u2303\u2329\u232a\u23d0\u2572\u2758\u30fb\uff0d"
)
# Characters that word processors and models write in ordinary prose. Shown as they are in a file's
# content, never in a command.
_TYPOGRAPHIC = frozenset(
    "\u00b4\u00b7\u2010\u2013\u2014\u2018\u2019\u201a\u201c\u201d\u201e\u2022\u2026\u2212\u00b2\u00b3\u00bd\u2122\u00aa\u00ba\u00d7\u2039\u203a\u30fb"
)

_MARK_BEARING = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", ""})
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})
_TOKEN = re.compile(r"[^\s\x00-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]+")
_SPACES_IN_A_ROW_MAX = 40  # more can push the text after them out of sight
_LINES_MAX_UNWARNED = 60  # about a screen
_ESCAPE = re.compile(r"(\\+)(u[0-9a-f]{4}|U[0-9a-f]{8})|(\\+)(?=[uU])")
_ASCII_SIGN = re.compile(r"[!-~]")
_FRAME = "| "
_NAMED_MAX = 20  # characters named in one warning; further ones are counted


class TooLongToShow(Exception):
    """The text is too long for a person to judge, so no prompt is made."""

    def __init__(self, chars: int, chars_max: int) -> None:
        super().__init__(f"{chars} characters are too many to show and judge (at most {chars_max})")
        self.chars = chars


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """
    `text` has printable characters and newlines only. `warnings` name the parts to check twice.
    """

    text: str
    lines: int
    warnings: tuple[str, ...] = ()


def render(text: str) -> Rendered:
    r"""
    Render commands, paths and hosts: every character that could be taken for another becomes an
    escape.

    >>> print(render("echo ok\u202e;\x1b[2K").text)
    echo ok\u202e;\u001b[2K
    >>> print(render(r"printf '\u202e'").text)
    printf '\\u202e'
    >>> print(*render("r\u1d0d -rf x").warnings)
    look-alike characters: r\u1d0d (U+1D0D LATIN LETTER SMALL CAPITAL M, like M)
    """
    return _rendered(text, spared=frozenset(), strict=True)


def render_line(text: str) -> Rendered:
    r"""
    For paths and whatever else is one line: a line break is written out too, and named.

    >>> print(render_line("x\nas things are, this will fail").text)
    x\u000aas things are, this will fail
    """
    shown = render(text)
    if shown.lines == 1:
        return shown
    warning = "line breaks in a name: U+000A"
    return Rendered(
        text=shown.text.replace("\n", "\\u000a"), lines=1, warnings=(*shown.warnings, warning)
    )


def render_argument(text: str) -> Rendered:
    """
    Render the argument of any tool. A single word may be a path, a host or a name, and is judged
    strictly. Several words are natural text.
    """
    return _rendered(
        text, spared=frozenset(), strict=len(text.split()) <= 1 and not has_east_asian(text)
    )


def render_content(text: str) -> Rendered:
    """
    Render the content of a file or a message: words of one script stay as they are, and so do the
    quotes and dashes of ordinary prose.
    """
    return _rendered(text, spared=_TYPOGRAPHIC, strict=False)


def read_back(shown: str) -> str:
    """Return the text that `render` was given."""

    def undo(match: re.Match[str]) -> str:
        slashes, escape, doubled = match.groups()
        if doubled:
            return "\\" * (len(doubled) // 2)
        if len(slashes) % 2:
            return "\\" * (len(slashes) // 2) + chr(int(escape[1:], 16))
        return "\\" * (len(slashes) // 2) + escape

    return _ESCAPE.sub(undo, shown)


def framed(shown: str) -> str:
    """Put every line behind a bar, so that no line of it can pass for a line of Holdfast's."""
    return "\n".join(_FRAME + line for line in shown.split("\n"))


def framed_offsets(text: str) -> list[int]:
    r"""
    Return where each character of a text stands in `framed(render(text).text)`, and the end.

    >>> framed_offsets("a\nb")
    [2, 3, 6, 7]
    """
    offsets, at = [], len(_FRAME)
    for char, piece in zip(
        text, _pieces(text, _escaped_positions(text, frozenset(), strict=True)), strict=True
    ):
        offsets.append(at)
        at += len(piece) + (len(_FRAME) if char == "\n" else 0)
    return [*offsets, at]


def fit(display: str, chars_max: int = DISPLAY_CHARS_MAX) -> str:
    """Return the display itself, or raise TooLongToShow. A part of a display is never shown."""
    if len(display) > chars_max:
        raise TooLongToShow(len(display), chars_max)
    return display


def _rendered(text: str, *, spared: frozenset[str], strict: bool) -> Rendered:
    if (
        text.isascii()
        and text.isprintable()
        and not text.endswith(" ")
        and "\\u" not in text
        and "\\U" not in text
    ):
        return Rendered(text=text, lines=1, warnings=_spacing_warnings(text))
    escaped = _escaped_positions(text, spared, strict=strict)
    shown = _written(text, escaped)
    return Rendered(
        text=shown,
        lines=text.count("\n") + 1,
        warnings=(*_warnings(text, escaped), *_spacing_warnings(text)),
    )


def _escaped_positions(text: str, spared: frozenset[str], *, strict: bool) -> set[int]:
    found = {i for i, char in enumerate(text) if char not in spared and _hides_or_imitates(char)}
    for match in _TOKEN.finditer(text):
        if not match.group().isascii():
            found.update(match.start() + i for i in ambiguous_letters(match.group(), strict=strict))
    for match in re.finditer(r"(?<! ) +(?=\n|\Z)", text):
        found.update(range(*match.span()))
    for match in re.finditer(r"[^\n]+", text):
        # A right-to-left letter among ASCII reorders the text around it, without any control
        # character.
        if not match.group().isascii() and _ASCII_SIGN.search(match.group()):
            found.update(
                i
                for i in range(*match.span())
                if unicodedata.bidirectional(text[i]) in _RIGHT_TO_LEFT
            )
    # Last, because a mark on a letter that is written out would sit on the escape's own last digit.
    for i, char in enumerate(text):
        if (
            i not in found
            and unicodedata.category(char) in ("Mn", "Me", "Mc")
            and _mark_is_ambiguous(text, i, found)
        ):
            found.add(i)
    return found


@lru_cache(maxsize=4096)
def _hides_or_imitates(char: str) -> bool:
    if char == "\n" or " " <= char <= "~":
        return False
    if (
        not char.isprintable()
        or char in _DRAWN_AS_NOTHING
        or char in _LIKE_ASCII_PUNCTUATION
        or is_look_alike_symbol(char)
    ):
        return True
    # Jamo compose to syllables that look the same. Every other character with a second spelling has
    # a form it normalises to.
    return "\u1100" <= char <= "\u11ff" or unicodedata.normalize("NFKC", char) != char


def _mark_is_ambiguous(text: str, at: int, escaped: set[int]) -> bool:
    """
    Check for a mark that could merge with the character before it into one with another spelling,
    or that sits on nothing.
    """
    if at == 0 or at - 1 in escaped:
        return True
    before = text[at - 1]
    if unicodedata.category(before)[0] not in "LM" or script_of(before) in _MARK_BEARING:
        return True
    return not unicodedata.is_normalized("NFC", before + text[at])


def _written(text: str, escaped: set[int]) -> str:
    return "".join(_pieces(text, escaped))


def _pieces(text: str, escaped: set[int]) -> list[str]:
    """Return the output of each character. Slashes are doubled with the character after them."""
    out: list[str] = []
    slashes = 0
    for i, char in enumerate(text):
        if i in escaped:
            code = ord(char)
            escape = f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004
            out.append("\\" * slashes + escape)  # doubled, because one of our escapes follows
            slashes = 0
        elif char == "\\":
            slashes += 1
            out.append(char)
        else:
            out.append("\\" * slashes + char if slashes and char in "uU" else char)
            slashes = 0
    return out


def _warnings(text: str, escaped: set[int]) -> tuple[str, ...]:
    hidden = {text[i] for i in escaped if not text[i].isprintable() and text[i] != "\t"}
    found = [f"invisible or control characters: {_names(hidden)}"] if hidden else []
    seen = {text[i] for i in escaped if text[i].isprintable() and not text[i].isspace()}
    words = [
        _written(word.group(), {i - word.start() for i in range(*word.span()) if i in escaped})
        for word in _TOKEN.finditer(text)
        if not seen.isdisjoint(text[i] for i in range(*word.span()) if i in escaped)
    ]
    if words:
        shown = ", ".join(word[:80] for word in dict.fromkeys(words[:5]))
        found.append(f"look-alike characters: {shown} ({_names(seen)})")
    return tuple(found)


def _names(chars: set[str]) -> str:
    named = "; ".join(name_of(char) for char in sorted(chars)[:_NAMED_MAX])
    return named if len(chars) <= _NAMED_MAX else f"{named}; and {len(chars) - _NAMED_MAX} more"


def _spacing_warnings(text: str) -> tuple[str, ...]:
    found = []
    if " " * (_SPACES_IN_A_ROW_MAX + 1) in text:
        found.append(f"more than {_SPACES_IN_A_ROW_MAX} spaces in a row: look to the far right")
    lines = text.count("\n") + 1
    if lines > _LINES_MAX_UNWARNED:
        found.append(f"{lines} lines: read to the end")
    return tuple(found)
