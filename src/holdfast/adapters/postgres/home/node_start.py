"""
Open a home in a database: check the server, the schema and the key, take the node's place, and
compare the node's anchors with the server's history. Runs in the lane.
"""

import logging
from importlib.metadata import version
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from holdfast.adapters.files.home.keys import load_keys, no_key
from holdfast.adapters.files.home.layout import HOME_INSTANCE, HOME_SESSION
from holdfast.adapters.postgres import schema as schemas
from holdfast.adapters.postgres.commit.claims import machine
from holdfast.adapters.postgres.home.node_folder import (
    damaged_node,
    is_node,
    read_known,
    remember,
)
from holdfast.adapters.postgres.home.nodes import declare_era, is_new_history, read_era
from holdfast.adapters.postgres.home.registry import PostgresRegistry
from holdfast.adapters.postgres.home.seals import seal_now
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_errors import NOT_COMPARED
from holdfast.adapters.postgres.server_facts import check_server
from holdfast.adapters.postgres.session.head import head_row, verify_to_head
from holdfast.adapters.postgres.session.tail import Tail, missing
from holdfast.errors import Busy, Unusable
from holdfast.journal.chain import Keyring, key_id
from holdfast.journal.record import read_unverified
from holdfast.journal.segment import read_opened
from holdfast.ports.journal_store import SealMark

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

_log = logging.getLogger("holdfast.postgres")


def begin(store: "PostgresStore", wire: Wire, *, waits: bool = True) -> None:
    schemas.check_version(wire, store.place.schema)
    facts = check_server(wire)
    row = head_row(wire, HOME_SESSION, HOME_INSTANCE)
    if row is None or row.ended:  # ended: a restore that did not finish
        raise Unusable(
            f"the schema {store.place.schema!r} has no home yet",
            code="storage",
            hint="`holdfast storage init` makes one",
        )
    if 1 not in store.keys:
        raise no_key("this node's folder has no key of it; copy keys/ from a node that has them")
    check_key(store.keys[1], wire, row.journal, store.path)
    if not is_node(store.folder, store.keys[1], facts, read_era(wire)):
        raise damaged_node(store.path)
    store.registry = PostgresRegistry(row.journal, store.keys)
    _verify_home(store, wire)
    join(store, wire, waits=waits)
    store.look_for_memories(wire)


def _verify_home(store: "PostgresStore", wire: Wire) -> None:
    """Seal the home if it ends before what this node knows: also by another process of it."""
    tail = store.registry.tail
    reading = store.anchors.read_slots(tail)  # first: other processes of this node move it
    store.refresh(wire)
    row = head_row(wire, HOME_SESSION, HOME_INSTANCE)
    damage = (
        missing(HOME_SESSION, 0, tail.head.seq)
        if row is None
        else verify_to_head(wire, tail, row, first_mac=None, reading=reading)
    )
    if damage is not None:
        raise seal_now(store, tail, damage)
    if row is not None and row.sealed:
        store.home_mark = SealMark("broken", "the home is sealed")
    store.anchor([tail])


def check_key(key: bytes, wire: Wire, journal: int, path: Path) -> None:
    """Refuse a key of another home, before anything is judged with it."""
    first = wire.one("select line from hf.record where journal = %s and seq = 1", (journal,))
    record = read_unverified(first[0]) if first is not None else None
    opened = read_opened(record.body) if record is not None else None
    if opened is not None and opened.key.id != (mine := key_id(key)):
        raise no_key(f"its first key is {opened.key.id}, and keys/1.key in {path} is {mine}")


def join(store: "PostgresStore", wire: Wire, *, waits: bool = True) -> None:
    """
    Take this node's place. If the server was promoted, restored or replaced since this node looked,
    compare its anchors first, and refuse to go on before every other node has. In the lane.
    """
    key = store.keys[1]
    # Before the server is asked: another process of this node may remember a later position.
    known = read_known(store.folder, key)
    if known is None:
        raise damaged_node(store.path)
    facts, era = check_server(wire), read_era(wire)
    store.node = known.node
    if is_new_history(known, facts, era):
        era = declare_era(wire, facts, after=max(era.number, known.era_number))
    history = f"{facts.timeline}/{era.id}"
    with store.history.comparing(history):
        if known.era != era.id:
            _log.warning(
                "the server has another history (%s, era %s): comparing this node's anchors",
                facts.history,
                era.number,
            )
            _compare_anchors(store, wire)
    late = wire.rows(
        "select node::text, host from hf.join_node(%s, %s, %s, %s, %s, %s::text[])",
        (store.node, machine(), gethostname(), version("holdfast"), era.id, _key_ids(store)),
    )
    remember(store.folder, key, store.node, facts, era)
    if late and waits:
        raise _late(*late[0])
    store.history.adopt(history)
    store.nodes.refresh(wire)
    store.lease.begin(wire)


def _late(node: str, host: str) -> Busy:
    return Busy(
        f"the database was promoted, restored or replaced, and node {node} (on {host}) "
        "has not compared its anchors with it yet",
        code=NOT_COMPARED,
        hint="start that node; if it will not come back: "
        f"holdfast nodes accept {node} --reason WHY",
    )


def _key_ids(store: "PostgresStore") -> list[str]:
    """Every key in the node's folder, also one that no record names yet."""
    return sorted(key_id(key) for key in load_keys(store.folder).by_generation.values())


def _compare_anchors(store: "PostgresStore", wire: Wire) -> None:
    """
    Open every session that this node has an anchor of: one that went back is sealed. The home comes
    first, since it names them, and other processes of this node write to it too.
    """
    if store.home_mark is None:
        _verify_home(store, wire)
    for created in list(store.registry.state.sessions.values()):
        keys = Keyring(store.keys, created.session, created.instance)
        tail = Tail(0, created.session, created.instance, keys, created.slot)
        reading = store.anchors.read_slots(tail)
        if reading is None:
            continue
        row = head_row(wire, created.session, created.instance)
        tail.journal = row.journal if row is not None else 0
        damage = (
            missing(created.session, 0, reading.anchor.seq if reading.anchor else 1)
            if row is None
            else verify_to_head(wire, tail, row, first_mac=created.first_mac, reading=reading)
        )
        if damage is not None and store.seal_mark(created.session, created.instance) is None:
            seal_now(store, tail, damage)
