"""
The history of the database that this process may write to.

A node writes to a history once every node has compared its anchors with it (C3). Only the thread
that compares writes there before: it seals the sessions that went back.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.adapters.postgres.home.node_folder import read_known, remember
from holdfast.adapters.postgres.home.nodes import declare_era, is_new_history, read_era
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_facts import check_server

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

_log = logging.getLogger("holdfast.postgres")


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


def look_at_server(store: "PostgresStore", wire: Wire) -> str:
    """
    Remember how far the server has come, and return its history. If it has gone back behind that,
    begin a new era: from then on nobody writes before every node has compared its anchors.
    """
    key = store.keys[1]
    try:
        known = read_known(store.folder, key)  # before the server is asked, as in `join`
        facts, era = check_server(wire), read_era(wire)
        if known is not None and is_new_history(known, facts, era):
            era = declare_era(wire, facts, after=max(era.number, known.era_number))
        elif known is not None and known.era == era.id:
            remember(store.folder, key, known.node, facts, era)
    except OSError as exc:
        _log.warning("this node's folder can't be used: %s", exc)
        return store.history.name
    return f"{facts.timeline}/{era.id}"


def connect_again(store: "PostgresStore") -> Wire:
    """Connect after a loss. The server may have been put back meanwhile, so it is looked at."""
    wire = store.connect()
    try:
        look_at_server(store, wire)
    except BaseException:
        wire.close()
        raise
    return wire
