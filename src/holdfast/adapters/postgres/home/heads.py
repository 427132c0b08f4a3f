"""
The last record of each session, for lists and followers, without opening journals.

Which sessions exist is known from the home's own journal, never from a row. `hf.moved` has a row
for each session that was written to lately. A look every second reads those rows alone, so its
cost does not grow with the number of sessions.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from holdfast.adapters.postgres.server import Wire
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Heads
from holdfast.session.home.events import SessionCreated

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

# A row of `hf.moved` stays for two minutes at least (see `sweep_moved`). The rest is a margin for a
# statement that takes long.
REMEMBERED_SECONDS = 90.0

_HEADS = "select session, instance, seq from hf.head where not ended"
_NAMED = _HEADS + " and session = any(%s::text[])"
# `offset 0` keeps the server from joining in another way than by each row's key. It would read
# every head whenever its statistics say that many sessions move.
_MOVED = (
    "select h.session, h.instance, h.seq from hf.moved m cross join lateral "
    "(select * from hf.head where journal = m.journal offset 0) h where not h.ended"
)
_NAMED_MAX = 1024  # more are read in one pass over the table
_NO_ROW = 2**53  # a session without its row is opened by the list, and found damaged


def page_of_heads(
    store: "PostgresStore", wire: Wire, after: SessionId | None, limit: int | None
) -> Heads:
    store.refresh(wire)
    return _with_seqs(wire, store.registry.page(after, limit))


def heads_of(store: "PostgresStore", wire: Wire, sessions: Collection[SessionId]) -> Heads:
    store.refresh(wire)
    created = (store.registry.created(name) for name in sorted(sessions))
    return _with_seqs(wire, [each for each in created if each is not None])


def _with_seqs(wire: Wire, page: Collection[SessionCreated]) -> Heads:
    names = [each.session for each in page]
    rows = wire.rows(_NAMED, (names,)) if len(names) <= _NAMED_MAX else wire.rows(_HEADS)
    seqs = {(session, instance): seq for session, instance, seq in rows}
    return [
        (each.session, each.instance, seqs.get((each.session, each.instance), _NO_ROW))
        for each in page
    ]


def moved_heads(store: "PostgresStore", wire: Wire) -> Heads:
    """The sessions that moved within REMEMBERED_SECONDS, and a few more."""
    store.refresh(wire)
    found = []
    for session, instance, seq in wire.rows(_MOVED):
        created = store.registry.created(SessionId(session))
        if created is not None and created.instance == instance:
            found.append((created.session, created.instance, seq))
    return found
