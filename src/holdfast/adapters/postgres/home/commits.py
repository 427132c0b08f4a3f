"""
Commits that add a record to the home's journal: creations, ends and seals.

All of them run in the lane, on the newest state of the home. The record, and the rows that it
speaks of, are one transaction. After a lost connection the same statement is sent again; the home's
chain says whether the first one was kept.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.adapters.files.home.keys import load_keys, make_next_key
from holdfast.adapters.files.home.layout import HOME_INSTANCE, HOME_SESSION
from holdfast.adapters.postgres.commit.append import Answer, FramedAppend, send_one
from holdfast.adapters.postgres.commit.lane import RESOLVE_SECONDS
from holdfast.adapters.postgres.commit.refusal import refusal
from holdfast.adapters.postgres.home.node_folder import key_lock
from holdfast.adapters.postgres.home.seals import seal_now
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_errors import NOT_COMPARED, Lost
from holdfast.adapters.postgres.session.position import Position
from holdfast.adapters.postgres.session.tail import Tail, error_from_mark, missing
from holdfast.errors import Busy, HoldfastError, InDoubt, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring, key_id
from holdfast.journal.record import Draft, Record, check_draft, times_of_creation
from holdfast.session.home.events import (
    AnyHomeEvent,
    HomeCreated,
    HomeState,
    KeyRotated,
    SessionCreated,
    SessionDeleted,
    encode_home_event,
)

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

_TRIES_MAX = 64  # each fails only because another process wrote in between
_PAUSE_SECONDS = 0.02

Build = Callable[[HomeState], AnyHomeEvent | None]
Ask = Callable[[Wire, FramedAppend], Answer]

_CREATE = (
    "select outcome, seq, mac, epoch, suffix, journal from hf.create_journal("
    "%s, %s, %s::bytea[], %s, %s, "
    "%s, %s, %s, %s, %s::bytea[], %s, %s, %s, %s::bigint, %s::bigint, %s)"
)
_END = (
    "select outcome, seq, mac, epoch, suffix from hf.end_journal(%s, %s, %s::bigint, "
    "%s, %s, %s, %s, %s::bytea[], %s, %s, %s, %s::bigint, %s::bigint, %s)"
)


class HomeCommits:
    def __init__(self, store: "PostgresStore") -> None:
        self._store = store

    def append(self, build: Build) -> None:
        """Append one event, if the newest state still wants it."""
        self._commit(build, self._send)

    def _send(self, wire: Wire, item: FramedAppend) -> Answer:
        store = self._store
        return send_one(wire, item, timeline=store.history.name, ahead_ms=store.ahead_ms)

    def create(
        self,
        session: SessionId,
        instance: InstanceId,
        first: Sequence[Draft],
        *,
        origin: str,
        by: str,
    ) -> Tail:
        store = self._store
        for draft in first:
            check_draft(draft)
        keys = Keyring(store.keys, session, instance)
        tail = Tail(0, session, instance, keys, 0)
        position = Position(keys, session, instance)
        lines: list[bytes] = []
        records: list[Record] = []

        def build(state: HomeState) -> AnyHomeEvent:
            nonlocal position, lines, records
            if session in state.sessions and origin not in {"unseal", "restore"}:
                raise Refused(
                    f"{session} exists", code="exists", hint="open it, or choose another name"
                )
            tail.slot = state.slots_used
            # Not before the home's last record, whatever this node's clock says.
            now = max(store.now_ms(), store.registry.tail.position.fence.at)
            position = Position(keys, session, instance)
            lines = position.begin(
                first,
                times_of_creation(first, now) or [now],
                writer=store.writer,
                generation=store.generation(),
            )
            check = Position(keys, session, instance)
            records = [record for line in lines if (record := check.feed(line)) is not None]
            return SessionCreated(
                session=session,
                instance=instance,
                first_mac=records[0].mac.hex(),
                slot=tail.slot,
                origin=origin,
                by=by,
            )

        def ask(wire: Wire, item: FramedAppend) -> Answer:
            (row,) = wire.rows(
                _CREATE,
                (
                    *(session, instance, lines, position.head.mac, position.fence.at),
                    *self._values(item),
                ),
            )
            tail.journal = row[5] or 0
            return Answer(*row[:5])

        self._commit(build, ask)
        if not tail.journal:
            tail.journal = store.lane.read(lambda wire: store.journal_id(wire, session, instance))
        tail.adopt(position, records)
        store.anchor([tail])
        return tail

    def delete(self, session: SessionId, *, by: str, at_seq: int | None) -> None:
        named: list[InstanceId] = []

        def build(state: HomeState) -> AnyHomeEvent:
            created = state.sessions.get(session)
            if created is None:
                raise Refused(f"there is no session {session}", code="unknown")
            named[:] = [created.instance]
            return SessionDeleted(session=session, instance=created.instance, by=by)

        def ask(wire: Wire, item: FramedAppend) -> Answer:
            (row,) = wire.rows(
                _END,
                (session, named[0], at_seq, *self._values(item)),
            )
            return Answer(*row)

        self._commit(build, ask)

    def rotate_keys(self, *, by: str) -> int:
        """
        Make the next key and name it in the home. Other processes of the node wait. Other nodes
        need the key before a record is sealed with it, so they must have it already.
        """
        store = self._store
        with key_lock(store.folder):
            generation = store.lane.read(store.refresh).generation + 1
            key = self._next_key(generation)

            def build(state: HomeState) -> AnyHomeEvent:
                if state.generation + 1 != generation:
                    raise Busy("another node rotated the keys just now", hint="look again")
                return KeyRotated(generation=generation, key_id=key_id(key), by=by)

            self._commit(build, self._send)
        return generation

    def _next_key(self, generation: int) -> bytes:
        store = self._store
        others = {
            node: keys
            for node, keys in store.lane.wire().rows("select node::text, key_ids from hf.node")
            if node != store.node
        }
        found = load_keys(store.folder).by_generation.get(generation) if others else None
        key = found or make_next_key(store.folder, generation)
        lacking = [node for node, keys in others.items() if key_id(key) not in keys]
        if lacking:
            raise Refused(
                f"node {lacking[0]} does not have key {generation} yet; nothing was rotated",
                code="keys_not_everywhere",
                hint=f"copy {store.path / 'keys' / f'{generation}.key'} to the keys/ folder of "
                "every node, restart them, and run it again; `holdfast nodes accept` gives up a "
                "node that will not come back",
            )
        return key

    def _values(self, item: FramedAppend) -> tuple[Any, ...]:
        store, segment = self._store, item.segment
        return (
            item.tail.journal,
            item.after.seq,
            item.after.mac,
            item.epoch,
            item.lines,
            item.position.head.mac,
            item.position.fence.at,
            segment[0] if segment else None,
            segment[1] if segment else None,
            store.ahead_ms,
            store.history.name,
        )

    def _commit(self, build: Build, ask: Ask) -> None:
        store = self._store
        tail = store.registry.tail
        for _ in range(_TRIES_MAX):
            state = store.lane.read(store.refresh)
            event = build(state)
            if event is None:
                return
            item = self._framed(tail, event)
            answer = self._definite(item, ask)
            match answer.letter:
                case "k":
                    tail.adopt(item.position, item.records)
                    # It is kept, whatever happens to the connection now.
                    with contextlib.suppress(HoldfastError, Lost):
                        store.lane.read(store.refresh)
                    store.anchor([tail])
                    return
                case "m":
                    if (answer.seq or 0) < item.after.seq:
                        raise seal_now(
                            store, tail, missing(HOME_SESSION, answer.seq or 0, item.after.seq)
                        )
                    tail.epoch = max(tail.epoch, answer.epoch or 0)
                case "s":
                    raise error_from_mark(HOME_SESSION, "broken", "the home is sealed", None)
                case _:
                    raise refusal(store, item, answer)
            time.sleep(_PAUSE_SECONDS)
        raise Busy("the home's journal is being written by others", hint="try again")

    def _framed(self, tail: Tail, event: AnyHomeEvent) -> FramedAppend:
        store = self._store
        position = tail.position.copy()
        draft = Draft(*encode_home_event(event))
        check_draft(draft)
        item = FramedAppend(
            tail=tail,
            after=position.head,
            epoch=max(tail.epoch, position.fence.epoch),
            claim=None,
            prefix=None,
            position=position,
        )
        framed = position.frame(
            [draft],
            at=max(store.now_ms(), position.fence.at),
            epoch=item.epoch,
            writer=store.writer,
            generation=store.generation(),
        )
        item.lines, item.records, item.segment = framed.lines, framed.records, framed.segment
        return item

    def _definite(self, item: FramedAppend, ask: Ask) -> Answer:
        """Ask, and after a lost connection ask the same again until the answer is definite."""
        is_repeated = False
        last = ""
        ends = time.monotonic() + RESOLVE_SECONDS
        while time.monotonic() < ends:
            try:
                with self._store.lane.comparing() as wire:
                    answer = ask(wire, item)
            except Lost as exc:
                is_repeated, last = True, str(exc)
            except HoldfastError as exc:
                if not is_repeated or isinstance(exc, InDoubt):
                    raise
                last = exc.message
                if exc.code == NOT_COMPARED:
                    break
            else:
                kept = is_repeated and answer.letter == "m" and answer.suffix is not None
                if kept and list(answer.suffix or ())[: len(item.lines)] == item.lines:
                    return Answer("k")
                return answer
            time.sleep(_PAUSE_SECONDS * 5)
        self._store.drop(item.tail)
        raise InDoubt(f"a record of the home may or may not be saved: {last}", hint="look again")


def first_home_lines(
    keys: dict[int, bytes], home: str, *, now: int, writer: str
) -> tuple[list[bytes], Position]:
    """The home's first lines, and the position after them."""
    position = Position(Keyring(keys, HOME_SESSION, HOME_INSTANCE), HOME_SESSION, HOME_INSTANCE)
    draft = Draft(*encode_home_event(HomeCreated(home=home)))
    return position.begin([draft], [now], writer=writer, generation=1), position
