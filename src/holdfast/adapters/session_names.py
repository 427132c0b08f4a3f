"""
The names of a home's sessions in order, so that a page of a list costs its own length and not the
number of sessions. A registry that folds the home's journal keeps it up to date.
"""

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection

from holdfast.ids import SessionId

_INSERTED_MAX = 64  # of a few names each is put in its place; with more of them all are sorted


class SessionNames:
    """`sessions` is what the registry knows: it decides which names exist."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._names: list[SessionId] | None = None  # None before the first page
        self._added: set[SessionId] = set()

    def add(self, session: SessionId) -> None:
        with self._guard:
            if self._names is not None:
                self._added.add(session)

    def page(
        self, sessions: Collection[SessionId], after: SessionId | None, limit: int | None
    ) -> list[SessionId]:
        """
        Return the names after that one, sorted, at most `limit`. A page that meets a name that is
        gone removes all such names.
        """
        with self._guard:
            found = _slice(self._sorted(sessions), after, limit)
            if all(name in sessions for name in found):
                return found
            self._names = sorted(sessions)
            return _slice(self._names, after, limit)

    def _sorted(self, sessions: Collection[SessionId]) -> list[SessionId]:
        names = self._names
        if names is None or len(self._added) > _INSERTED_MAX:
            names = sorted(sessions)
        else:
            for name in self._added:
                place = bisect_left(names, name)
                if place == len(names) or names[place] != name:
                    insort(names, name)
        self._names = names
        self._added.clear()
        return names


def _slice(names: list[SessionId], after: SessionId | None, limit: int | None) -> list[SessionId]:
    start = bisect_right(names, after) if after is not None else 0
    return names[start : None if limit is None else start + limit]
