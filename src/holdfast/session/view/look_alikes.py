"""
Letters that can be taken for others: which letters of a word to write out, and their names.

There are two rules. The strict one is for commands, paths and hosts: every letter that resembles
ASCII is written out, every letter beyond those of ordinary Latin spelling, and every foreign letter
of a word that mixes scripts. The lenient one is for natural text: a word is left as it is unless it
mixes scripts that are not written together, or could be read as an ASCII word as a whole.

The data is Unicode's (`view/confusables.py`), loaded with the first text that is not ASCII.
"""

import unicodedata
from functools import cache, lru_cache

_EAST_ASIAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"})
"""Scripts that are written together, and with Latin words between them."""
_NATURAL = frozenset("\u00e6\u00c6\u0153\u0152\u00fe\u01a1\u01a0")
"""
Letters of everyday spelling (ae and oe ligatures, thorn, o with horn): natural text keeps them.
"""


def ambiguous_letters(word: str, *, strict: bool) -> list[int]:
    """Return the positions of the letters of one word that must be written out."""
    letters = [(i, char) for i, char in enumerate(word) if unicodedata.category(char)[0] in "LN"]
    beyond = [(i, char) for i, char in letters if not char.isascii()]
    foreign = [(i, char) for i, char in beyond if script_of(char) != "LATIN"]
    latin = [(i, char) for i, char in beyond if script_of(char) == "LATIN"]
    found = {
        i
        for i, char in latin
        if (is_unusual_latin(char) if strict else _is_lenient_look_alike(char))
    }
    has_latin = bool(latin) or any(char.isascii() and char.isalpha() for _, char in letters)
    if strict or has_latin:
        found.update(i for i, char in foreign if like_of(char) is not None)
    if _mixes({script_of(char) for _, char in foreign}, has_latin=has_latin, strict=strict) or all(
        _is_lenient_look_alike(char) for _, char in foreign
    ):
        found.update(i for i, _ in foreign)
    return sorted(found)


def _mixes(scripts: set[str], *, has_latin: bool, strict: bool) -> bool:
    others = scripts - _EAST_ASIAN
    if strict and has_latin and scripts:
        return True
    return bool(others) and (has_latin or len(others) > 1 or bool(scripts & _EAST_ASIAN))


def is_unusual_latin(char: str) -> bool:
    """
    Check whether a Latin letter beyond ASCII resembles ASCII, or belongs to no European alphabet.
    """
    ordinary = "\u00c0" <= char <= "\u017f" or "\u0218" <= char <= "\u021b"
    return not ordinary or like_of(char) is not None


@lru_cache(maxsize=4096)
def _is_lenient_look_alike(char: str) -> bool:
    """
    Check for a letter that resembles exactly one ASCII letter. In natural text, readers recognise a
    ligature or a letter with a hook.
    """
    if char in _NATURAL:
        return False
    target = _ascii().get(char) or (
        _further().get(char) if script_of(char) == "LATIN" or char in _LENIENT_FURTHER else None
    )
    return target is not None and len(target) == 1


# Letters that Unicode's table does not map to ASCII, but that pass for small Latin letters even in
# a Cyrillic or Greek word.
_LENIENT_FURTHER = frozenset("\u043a\u03ba\u03c7\u056c\u0967")


@lru_cache(maxsize=4096)
def like_of(char: str) -> str | None:
    """
    Return the ASCII text that a character is taken for.

    >>> like_of("\\u0430"), like_of("\\u1d00"), like_of("\\u00e9")
    ('a', 'A', None)
    """
    return _ascii().get(char) or _further().get(char) or _compatible(char)


def _compatible(char: str) -> str | None:
    """Fullwidth, mathematical, circled and other forms of ASCII characters."""
    plain = unicodedata.normalize("NFKC", char)
    return plain if plain != char and plain.isascii() and plain.strip() else None


def has_east_asian(text: str) -> bool:
    """Check whether words may stand in the text without spaces between them."""
    return not text.isascii() and any(script_of(char) in _EAST_ASIAN for char in text)


def is_look_alike_symbol(char: str) -> bool:
    """
    Check for look-alike punctuation and signs. The word around them does not show which script they
    belong to.
    """
    return unicodedata.category(char)[0] not in "LMN" and like_of(char) is not None


def name_of(char: str) -> str:
    r"""
    Return the name of a character for a prompt.

    >>> name_of("\u0430"), name_of("\x1b")
    ('U+0430 CYRILLIC SMALL LETTER A, like a', 'U+001B control character')
    """
    unnamed = "control character" if unicodedata.category(char) == "Cc" else "unnamed character"
    like = like_of(char)
    shown = f", like {like}" if like is not None and like.strip() else ""
    return f"U+{ord(char):04X} {unicodedata.name(char, unnamed)}{shown}"


@lru_cache(maxsize=4096)
def script_of(char: str) -> str:
    """
    Return the first word of the character's name, or an empty text if it is not a letter, mark or
    number.
    """
    return (
        unicodedata.name(char, "").split(" ")[0].split("-")[0]
        if unicodedata.category(char)[0] in "LMN"
        else ""
    )


@cache
def _ascii() -> dict[str, str]:
    from holdfast.session.view import confusables  # 20 KiB that an ASCII command never needs

    return {char: target for target, chars in confusables.ASCII.items() for char in chars}


@cache
def _further() -> dict[str, str]:
    from holdfast.session.view import confusables

    return {char: target for target, chars in confusables.FURTHER.items() for char in chars}
