"""
The title of a conversation: the first line of its first message, until a person gives another one.

A title is one line of printable text and at most `TITLE_CHARS_MAX` characters, so that every list
can show it whole. Pure.
"""

from holdfast.errors import Refused

TITLE_CHARS_MAX = 80  # one line on a phone of 390 px is half of it, two lines are all of it
_JOINER = "\u200d"  # joins emoji into one sign; all other invisible characters could mislead
_CUT = "…"


def title_from_text(text: str) -> str:
    """
    Return the title of a conversation that begins with this message. Empty if it has no words.

    >>> title_from_text("\\n  Restart   the api \\nplease")
    'Restart the api'
    """
    # The prefix bounds the work: a message may have a megabyte, and this runs in every fold.
    for line in text[: 40 * TITLE_CHARS_MAX].splitlines():
        if title := _one_line("".join(each for each in line if each.isspace() or _shows(each))):
            return _cut(title)
    return ""


def checked_title(title: str) -> str:
    """Return a title that a person gave, in one spelling. Empty: the first message gives it."""
    found = _one_line(title)
    if not all(map(_shows, found)):
        raise Refused(
            "a title is one line of visible characters",
            code="malformed",
            hint="leave out control and invisible characters",
        )
    if len(found) > TITLE_CHARS_MAX:
        raise Refused(
            f"a title has at most {TITLE_CHARS_MAX} characters, and this one has {len(found)}",
            code="malformed",
            hint="shorten it",
        )
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shows(character: str) -> bool:
    return character.isprintable() or character == _JOINER


def _cut(title: str) -> str:
    """Cut at a word where one ends in the second half, else at the bound."""
    if len(title) <= TITLE_CHARS_MAX:
        return title
    kept = title[: TITLE_CHARS_MAX - 1]
    word_end = kept.rfind(" ")
    return (kept[:word_end] if word_end > TITLE_CHARS_MAX // 2 else kept) + _CUT
