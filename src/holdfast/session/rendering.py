r"""
Text made safe and complete to show: what a person reads before consenting looks like nothing but what will run.

Everything that can hide, reorder or imitate is written as `\u202e`: control and escape characters, carriage returns, bidirectional
and zero-width characters, tags, variation selectors, unusual and trailing spaces, fullwidth forms, letters of another script among
Latin ones. A backslash that would read like such an escape is doubled, so `read_back` undoes `render` exactly: two different texts
never look the same. Newlines stay, and are counted. Nothing is shortened; what is too long to judge is refused.
"""

import re
import unicodedata
from functools import lru_cache

import msgspec

from holdfast.limits import DISPLAY_CHARS_MAX

__all__ = ["Rendered", "TooLongToShow", "fit", "framed", "read_back", "render", "render_content"]

# Printable by Unicode's books, but drawn as nothing: fillers, blank patterns, joiners, variation selectors.
_DRAWN_AS_NOTHING = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)

# Punctuation that passes for ASCII punctuation without being its compatibility form.
_LIKE_ASCII_PUNCTUATION = frozenset(
    "\u00b4\u00b7\u01c0\u01c3\u02b9\u02ba\u02bc\u02c2\u02c3\u02c6\u02cb\u02d0\u02d7\u02dc\u0589\u05c0\u05c3\u05f3\u05f4\u060c\u066a"
    "\u06d4\u2010\u2011\u2012\u2013\u2014\u2015\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2022\u2032\u2033\u2035\u2039\u203a"
    "\u2041\u2043\u2044\u204e\u204f\u2052\u2053\u2212\u2215\u2216\u2217\u2219\u2223\u2227\u2236\u223c\u22c5\u2303\u2329\u232a\u23d0"
    "\u2571\u2572\u2758\u2768\u2769\u276e\u276f\u2774\u2775\u27cb\u27cd\u29f5\u29f8\u29f9\u2d4f\u3003\u3014\u3015\u30a0\u30fb\ua4fa"
    "\ua4fd\ua4fe\ua4ff\ua60e\ua789\ua78c\uff0d\ufe68"
)
# What word processors and models write in ordinary prose. Shown as it is in a file's content, never in a command.
_TYPOGRAPHIC = frozenset("\u00b4\u00b7\u2010\u2013\u2014\u2018\u2019\u201c\u201d\u201e\u2022\u2026\u2212\u00b2\u00b3\u00bd\u2122\u00aa\u00ba")

# Letters of other scripts that are drawn like Latin ones (or like digits). A word made of nothing else could be read as a Latin word.
_LIKE_LATIN = frozenset(
    "\u0405\u0406\u0408\u0410\u0412\u0415\u0417\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u042c"
    "\u0430\u0431\u0433\u0435\u043a\u043e\u043f\u0440\u0441\u0442\u0443\u0445\u0455\u0456\u0458\u0475\u04ae\u04af\u04bb\u04c0\u04cf"
    "\u0501\u050c\u051b\u051c\u051d\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1\u03b3"
    "\u03b9\u03ba\u03bd\u03bf\u03c1\u03c3\u03c4\u03c5\u03c7\u03c9\u03f2\u03f3\u03f9\u0570\u0578\u057d\u0585\u0581\u0566\u057c\u056c\u054f\u0555\u13a0\u13a1"
    "\u13a2\u13a5\u13a9\u13aa\u13ab\u13ac\u13b3\u13b7\u13bb\u13c0\u13c2\u13c3\u13cf\u13d2\u13d4\u13d5\u13d9\u13da\u13de\u13df\u13e2"
    "\u13e6\u13e7\u13f3\u13f4\u05d8\u05e1\u05df\u0661\u0665\u06f1\u0967\u0966\u0be6\u0ce6\u0d20\u1d04\u1d0f\u1d1c\u1d20\u1d21\u1d22"
)
_MARK_BEARING = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", ""})
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})
_TOKEN = re.compile(r"[^\s\x00-\x2c\x2e\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]+")
_SPACES_IN_A_ROW_MAX = 40  # more can push what follows out of sight
_LINES_MAX_UNWARNED = 60  # about a screen
_ESCAPE = re.compile(r"(\\+)(u[0-9a-f]{4}|U[0-9a-f]{8})|(\\+)(?=[uU])")
_FRAME = "| "


class TooLongToShow(Exception):
    """A person could not judge it, so nobody is asked."""

    def __init__(self, chars: int) -> None:
        super().__init__(f"{chars} characters are too many to show and judge (at most {DISPLAY_CHARS_MAX})")
        self.chars = chars


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """`text` has printable characters and newlines only. `warnings` say what to look at twice."""

    text: str
    lines: int
    warnings: tuple[str, ...] = ()


def render(text: str) -> Rendered:
    r"""
    For commands, paths and arguments: whatever is not plainly itself becomes an escape.

    >>> print(render("echo ok\u202e;\x1b[2K").text)
    echo ok\u202e;\u001b[2K
    >>> print(render(r"printf '\u202e'").text)
    printf '\\u202e'
    >>> render("\uff52\uff4d -rf x").warnings
    ('look-alike characters: \\uff52\\uff4d',)
    """
    return _rendered(text, spared=frozenset())


def render_content(text: str) -> Rendered:
    """For the content of a file: as `render`, but the quotes and dashes of ordinary prose stay as they are."""
    return _rendered(text, spared=_TYPOGRAPHIC)


def read_back(shown: str) -> str:
    """The text that `render` was given."""

    def undo(match: re.Match[str]) -> str:
        slashes, escape, doubled = match.groups()
        if doubled:
            return "\\" * (len(doubled) // 2)
        if len(slashes) % 2:
            return "\\" * (len(slashes) // 2) + chr(int(escape[1:], 16))
        return "\\" * (len(slashes) // 2) + escape

    return _ESCAPE.sub(undo, shown)


def framed(shown: str) -> str:
    """Every line behind a bar, so that no line of it can pass for a line of ours."""
    return "\n".join(_FRAME + line for line in shown.split("\n"))


def fit(display: str) -> str:
    """The display itself; raises TooLongToShow. There is no way to show a part of it."""
    if len(display) > DISPLAY_CHARS_MAX:
        raise TooLongToShow(len(display))
    return display


def _rendered(text: str, *, spared: frozenset[str]) -> Rendered:
    if text.isascii() and text.isprintable() and not text.endswith(" ") and "\\u" not in text and "\\U" not in text:
        return Rendered(text=text, lines=1, warnings=_spacing_warnings(text))
    escaped = _escaped_positions(text, spared)
    shown = _written(text, escaped)
    return Rendered(text=shown, lines=text.count("\n") + 1, warnings=(*_warnings(text, escaped), *_spacing_warnings(text)))


def _escaped_positions(text: str, spared: frozenset[str]) -> set[int]:
    found = {i for i, char in enumerate(text) if char not in spared and _hides_or_imitates(char)}
    for match in _TOKEN.finditer(text):
        if not match.group().isascii():
            found.update(match.start() + i for i in _foreign_letters(match.group()))
    for match in re.finditer(r" +(?=\n|\Z)", text):
        found.update(range(*match.span()))
    for match in re.finditer(r"[^\n]*[!-~][^\n]*", text):
        # A right-to-left letter among ASCII reorders what stands around it, without any control character.
        if not match.group().isascii():
            found.update(i for i in range(*match.span()) if unicodedata.bidirectional(text[i]) in _RIGHT_TO_LEFT)
    # Last, since a mark on a letter that is written out would sit on the escape's own last digit.
    for i, char in enumerate(text):
        if i not in found and unicodedata.category(char) in ("Mn", "Me", "Mc") and _mark_is_ambiguous(text, i, found):
            found.add(i)
    return found


@lru_cache(maxsize=4096)
def _hides_or_imitates(char: str) -> bool:
    if char == "\n" or " " <= char <= "~":
        return False
    if not char.isprintable() or char in _DRAWN_AS_NOTHING or char in _LIKE_ASCII_PUNCTUATION:
        return True
    # Jamo compose to syllables that look the same; every other character with a second spelling has a form it normalises to.
    return "\u1100" <= char <= "\u11ff" or unicodedata.normalize("NFKC", char) != char


def _mark_is_ambiguous(text: str, at: int, escaped: set[int]) -> bool:
    """A mark that could merge with what is before it into something with another spelling, or that sits on nothing."""
    if at == 0 or at - 1 in escaped:
        return True
    before = text[at - 1]
    if unicodedata.category(before)[0] not in "LM" or _script(before) in _MARK_BEARING:
        return True
    return not unicodedata.is_normalized("NFC", before + text[at])


def _foreign_letters(token: str) -> list[int]:
    """Positions of the letters that make a word ambiguous: other scripts among Latin letters, or nothing but look-alikes."""
    letters = [(i, char) for i, char in enumerate(token) if char.isalpha() or char.isdigit()]
    foreign = [(i, char) for i, char in letters if not char.isascii() and _script(char) != "LATIN"]
    if not foreign:
        # Latin letters beyond ASCII: dotless i, alpha, script g pass for plain ones; accented letters are plainly themselves.
        return [i for i, char in letters if char in "\u0131\u0237\u0251\u0261\u017f\u0185\u01bd\u0269\u026a\u028b\u0280\u029c\ua731"]
    scripts = {_script(char) for _, char in foreign}
    has_ascii = any(char.isascii() for _, char in letters)
    if has_ascii or len(scripts - {"CJK", "HIRAGANA", "KATAKANA"}) > 1 or all(char in _LIKE_LATIN for _, char in foreign):
        return [i for i, _ in foreign]
    return []


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    return unicodedata.name(char, "").split(" ")[0].split("-")[0] if unicodedata.category(char)[0] in "LMN" else ""


def _written(text: str, escaped: set[int]) -> str:
    out: list[str] = []
    slashes = 0
    for i, char in enumerate(text):
        if i in escaped:
            out.append("\\" * slashes)  # doubled: an escape of ours follows
            code = ord(char)
            out.append(f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")  # noqa: PLR2004
            slashes = 0
        elif char == "\\":
            slashes += 1
            out.append(char)
        else:
            if slashes and char in "uU":
                out.append("\\" * slashes)
            slashes = 0
            out.append(char)
    return "".join(out)


def _warnings(text: str, escaped: set[int]) -> tuple[str, ...]:
    hidden = sorted({_written(text[i], {0}) for i in escaped if not text[i].isprintable() and text[i] != "\t"})
    found = [f"invisible or control characters: {' '.join(hidden[:12])}"] if hidden else []
    likes = [
        _written(word.group(), {i - word.start() for i in range(*word.span()) if i in escaped})
        for word in _TOKEN.finditer(text)
        if any(i in escaped and text[i].isprintable() for i in range(*word.span()))
    ]
    if likes:
        found.append(f"look-alike characters: {', '.join(like[:80] for like in likes[:5])}")
    return tuple(found)


def _spacing_warnings(text: str) -> tuple[str, ...]:
    found = []
    if " " * (_SPACES_IN_A_ROW_MAX + 1) in text:
        found.append(f"more than {_SPACES_IN_A_ROW_MAX} spaces in a row: look to the far right")
    lines = text.count("\n") + 1
    if lines > _LINES_MAX_UNWARNED:
        found.append(f"{lines} lines: read to the end")
    return tuple(found)
