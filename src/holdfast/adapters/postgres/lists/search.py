"""
Full-text search in SQL, shared by all nodes. See `holdfast.ports.search`.

It is a cache: each search first adds the text since the last one. A row counts only with a mac
under the newest key, and so does the note that a session was read. The database finds rows by keyed
digests of their words; their order is checked here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.adapters.postgres.lists.words import digests_of, has_phrase, tokens_of
from holdfast.adapters.sqlite.search import (
    believed_said,
    position_of,
    reader_set_of,
    said_mac,
    through_mac,
)
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.ports.search import Hit, SearchedText

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

_ADD = (
    "select hf.add_said(%s, %s, %s, %s, %s, %s::bigint[], %s::text[], %s::bigint[], %s::text[], "
    "%s::bytea[], %s::bytea[])"
)
_FIND = (
    "select id, at, body, mac from hf.said where words @> %s::bigint[] and (at, id) < (%s, %s) "
    "order by at desc, id desc limit %s"
)


class PostgresSearch:
    """The search of one home. Its calls block; never make them on the event loop."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    @property
    def _key(self) -> bytes:
        return self._store.index_keys()[0]

    def through(self) -> dict[SessionId, tuple[InstanceId, int]]:
        key = self._key
        rows = self._store.read_now(
            lambda wire: wire.rows("select session, instance, seq, mac from hf.said_through")
        )
        return {
            SessionId(name): (InstanceId(instance), seq)
            for name, instance, seq, mac in rows
            if mac == through_mac(key, name, instance, seq)
        }

    def add(
        self, session: SessionId, instance: InstanceId, through: int, said: Sequence[SearchedText]
    ) -> None:
        key = self._key
        bodies = [msgspec.json.encode(each) for each in said]
        is_new = self._instance(session) != instance
        values = (
            *(session, instance, through, through_mac(key, session, instance, through), is_new),
            [each.seq for each in said],
            [each.turn for each in said],
            [each.at for each in said],
            [_array(digests_of(key, "said", tokens_of(each.text))) for each in said],
            bodies,
            [said_mac(key, body) for body in bodies],
        )
        self._store.read_now(lambda wire: wire.rows(_ADD, values))

    def _instance(self, session: SessionId) -> InstanceId | None:
        """
        Return the instance of the session's rows. Return None if there are no rows, or if the mac
        does not verify.
        """
        row = self._store.read_now(
            lambda wire: wire.one(
                "select instance, seq, mac from hf.said_through where session = %s", (session,)
            )
        )
        if row is None or row[2] != through_mac(self._key, session, row[0], row[1]):
            return None
        return InstanceId(row[0])

    def forget(self, session: SessionId) -> None:
        self._store.read_now(lambda wire: wire.rows("select hf.forget_said(%s)", (session,)))

    def turn_reader_set(self, session: SessionId, turn: TurnId) -> tuple[str, str] | None:
        row = self._store.read_now(
            lambda wire: wire.one(
                "select body, mac from hf.said where session = %s and turn = %s "
                "order by id limit 1",
                (session, turn),
            )
        )
        found = believed_said(self._key, *row) if row is not None else None
        return reader_set_of(found, session, turn)

    def find(self, words: Sequence[str], *, limit: int, after: str | None = None) -> Sequence[Hit]:
        key = self._key
        phrases = [phrase for word in words if (phrase := tokens_of(word))]
        wanted = digests_of(key, "said", [token for phrase in phrases for token in phrase])
        at, row_id = position_of(after)
        hits: list[Hit] = []
        while wanted and len(hits) < limit:  # each round goes on after the last row of the other
            rows = self._rows(wanted, at, row_id, limit)
            for row_id, at, body, mac in rows:
                said = believed_said(key, body, mac)
                if said is not None and _holds(said.text, phrases):
                    hits.append(Hit(said=said, cursor=f"{at}-{row_id}"))
            if len(rows) < limit:
                break
        return hits[:limit]

    def _rows(
        self, wanted: Sequence[int], at: int, row_id: int, limit: int
    ) -> list[tuple[Any, ...]]:
        values = (list(wanted), at, row_id, limit)
        return self._store.read_now(lambda wire: wire.rows(_FIND, values))

    def close(self) -> None:
        """The store closes the connections."""


def _holds(text: str, phrases: Sequence[Sequence[str]]) -> bool:
    tokens = tokens_of(text)
    return all(has_phrase(tokens, phrase) for phrase in phrases)


def _array(numbers: Sequence[int]) -> str:
    """
    >>> _array([1, -2])
    '{1,-2}'
    """
    return "{" + ",".join(map(str, numbers)) + "}"
