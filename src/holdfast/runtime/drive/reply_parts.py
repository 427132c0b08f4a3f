"""Split a long reply into numbered parts that each fit into one message of a chat. Pure."""

from collections.abc import Callable

_FENCE = "```"
PARTS_MAX = 40  # of one reply; a longer one ends with a sentence that says so
_NUMBER_ROOM = len("(40/40)\n")


def reply_parts(text: str, room: int, size: Callable[[str], int]) -> tuple[str, ...]:
    """
    Return the reply as one message, or as parts `(1/3)`, `(2/3)`, `(3/3)`. Nothing is left out. A
    code block that is cut is closed, and opened again in the next part.

    >>> reply_parts("one two", 100, len)
    ('one two',)
    >>> [len(each) for each in reply_parts("x" * 150, 100, len)]
    [94, 68]
    """
    if size(text) <= room:
        return (text,)
    pieces: list[str] = []
    left, is_code = text, False
    while left and len(pieces) < PARTS_MAX:
        opening = f"{_FENCE}\n" if is_code else ""
        own_room = room - _NUMBER_ROOM - size(opening) - len(f"\n{_FENCE}")
        taken = _longest(left, own_room, size)
        left = left[len(taken) :]
        is_code ^= taken.count(_FENCE) % 2 == 1
        pieces.append(opening + taken + (f"\n{_FENCE}" if is_code and left else ""))
    if left:
        pieces[-1] = f"{len(left)} more characters are in the conversation; see the page."
    return tuple(f"({at}/{len(pieces)})\n{piece}" for at, piece in enumerate(pieces, 1))


def _longest(text: str, room: int, size: Callable[[str], int]) -> str:
    """
    Return the longest beginning that fits, up to a line's end, else a space, else a character.
    """
    if size(text) <= room:
        return text
    low, high = 1, min(len(text), room)  # a character takes at least one unit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= room else (low, middle - 1)
    for mark in ("\n\n", "\n", " "):
        cut = text.rfind(mark, low // 2, low)
        if cut > 0:
            return text[: cut + len(mark)]
    return text[:low]
