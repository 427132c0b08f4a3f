"""
The history of the database that this process may write to.

A node writes to a history once every node has compared its anchors with it (C3). Only the thread
that compares writes there before: it seals the sessions that went back.
"""

import contextlib
import threading
from collections.abc import Iterator


class ComparedHistory:
    def __init__(self) -> None:
        self._name = ""  # nothing is written to a history without a name
        self._of_thread = threading.local()

    @property
    def name(self) -> str:
        """The timeline and the era that the appends of this thread name."""
        return str(getattr(self._of_thread, "name", self._name))

    @property
    def is_comparing(self) -> bool:
        return hasattr(self._of_thread, "name")

    @property
    def era(self) -> str:
        return self._name.rpartition("/")[2]

    @contextlib.contextmanager
    def comparing(self, name: str) -> Iterator[None]:
        """This thread alone writes to the history, and to no other."""
        self._of_thread.name = name
        try:
            yield
        finally:
            del self._of_thread.name

    def adopt(self, name: str) -> None:
        """Every node has compared its anchors with it."""
        self._name = name
