"""The session in which an adapter keeps the history that a framework knows by an id of its own."""

from blake3 import blake3

_PART_MAX = 64  # of a session's name
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")


def session_named(known_as: str, *, family: str) -> str:
    """
    Return the session of that name. An id that can't be a session's name has a session of its own,
    below `family`.

    >>> session_named("ops/api", family="langgraph")
    'ops/api'
    >>> session_named("A thread, any name", family="langgraph").startswith("langgraph/")
    True
    """
    first, slash, rest = known_as.partition("/")
    parts = (first, rest) if slash else (first,)
    if all(_is_part(each) for each in parts):
        return known_as
    return f"{family}/{blake3(known_as.encode(errors='surrogatepass')).hexdigest()[:32]}"


def _is_part(text: str) -> bool:
    return 0 < len(text) <= _PART_MAX and set(text) <= _ALLOWED and text[0].isalnum()
