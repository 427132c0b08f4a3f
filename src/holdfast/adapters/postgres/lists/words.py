"""
Words as the database sees them: keyed digests, one number for each word.

Without the key nobody can tell which word a number stands for, nor try a dictionary. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from unicodedata import combining, normalize

from blake3 import blake3

_TOKEN = re.compile(r"[^\W_]+")

_DIGEST_BYTES = 8  # a bigint; two words of one home are equal by chance in one of 10^19 pairs


def digests_of(key: bytes, purpose: str, words: Iterable[str]) -> list[int]:
    """
    Return each word once, as a number under this key and purpose.

    >>> len(digests_of(bytes(32), "x", ["a", "b", "a"]))
    2
    """
    start = purpose.encode("utf-8", "surrogatepass") + b"\0"
    return [
        int.from_bytes(
            blake3(start + word.encode("utf-8", "surrogatepass"), key=key).digest(
                length=_DIGEST_BYTES
            ),
            "big",
            signed=True,
        )
        for word in dict.fromkeys(words)
    ]


def tokens_of(text: str) -> list[str]:
    """
    Return the words of a text in their order, without case, accents and signs.

    >>> tokens_of("Das Caf\u00c9-Passwort")
    ['das', 'cafe', 'passwort']
    """
    plain = "".join(char for char in normalize("NFKD", text.casefold()) if not combining(char))
    return _TOKEN.findall(plain)


def has_phrase(tokens: Sequence[str], phrase: Sequence[str]) -> bool:
    """Whether the words of the phrase follow each other somewhere in these."""
    size = len(phrase)
    return any(list(tokens[at : at + size]) == list(phrase) for at in range(len(tokens) - size + 1))


def is_storable(value: str) -> bool:
    """Whether a text column can hold it: a half character or a zero byte is in no row."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value
