"""
Make a home in a database: the schema, the node's first key, and the home's first record.

The first record is written last. A schema without it is not a home yet, and running this again
finishes what an earlier run began.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.files.home.keys import load_keys, make_first_key, no_key
from holdfast.adapters.files.home.layout import HOME_INSTANCE, HOME_SESSION
from holdfast.adapters.postgres import schema as schemas
from holdfast.adapters.postgres.home.anchored_slots import AnchoredSlots
from holdfast.adapters.postgres.home.commits import first_home_lines
from holdfast.adapters.postgres.home.node_folder import (
    has_known,
    make_node,
    open_node_folder,
    read_known,
)
from holdfast.adapters.postgres.home.node_start import check_key
from holdfast.adapters.postgres.home.nodes import read_era
from holdfast.adapters.postgres.server import DatabaseAddress, Wire, connect
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.adapters.postgres.server_facts import ServerFacts, check_server
from holdfast.adapters.postgres.session.head import head_row
from holdfast.errors import Busy, Unusable
from holdfast.ports.clock import Clock


class MadeHome(NamedTuple):
    migrations: tuple[str, ...]
    is_new: bool
    """False if the schema had a home already."""
    is_new_node: bool
    """True if the folder became a node of the home."""
    is_node: bool
    """False if the folder has no key of the home."""


def create_roles(place: DatabaseAddress) -> str:
    """Blocks. Make the node's role in a schema that exists; return its name."""
    wire = connect(place)
    try:
        schemas.check_version(wire, place.schema)
        return schemas.create_roles(wire, place.schema)
    except Lost as exc:
        raise Busy(f"the connection was lost: {exc}", hint="run it again") from exc
    finally:
        wire.close()


def init_home(place: DatabaseAddress, folder: Path, *, clock: Clock | None = None) -> MadeHome:
    """Blocks. Writes nothing to a server that can't keep the promises."""
    schemas.check_name(place.schema)
    wire = connect(place)
    stack = contextlib.ExitStack()
    try:
        facts = check_server(wire)
        if schemas.version(wire, place.schema) == 0:
            _refuse_node_of_another(place, folder)
        applied = tuple(schemas.migrate(wire, place.schema))
        schemas.check_version(wire, place.schema)
        home = head_row(wire, HOME_SESSION, HOME_INSTANCE)
        fd = stack.enter_context(_open(folder))
        if home is not None:
            is_node = 1 in load_keys(fd).by_generation
            is_new_node = is_node and _join(wire, facts, folder, fd, home.journal)
            return MadeHome(applied, is_new=False, is_new_node=is_new_node, is_node=is_node)
        key = load_keys(fd).by_generation.get(1) or make_first_key(fd)
        lines, position = first_home_lines(
            {1: key}, secrets.token_hex(16), now=(clock or SystemClock()).now_ms(), writer="init"
        )
        (row,) = wire.rows(
            "select hf.create_home(%s, %s, %s::bytea[], %s, %s)",
            (HOME_SESSION, HOME_INSTANCE, lines, position.head.mac, position.fence.at),
        )
        if row[0] is None:
            raise no_key("another node made the home just now; copy keys/ from it")
        make_node(fd, key, facts, read_era(wire))
        return MadeHome(applied, is_new=True, is_new_node=True, is_node=True)
    except Lost as exc:
        raise Busy(f"the connection was lost: {exc}", hint="run it again") from exc
    finally:
        stack.close()
        wire.close()


def _refuse_node_of_another(place: DatabaseAddress, folder: Path) -> None:
    """A node would forget what it knows of its home, if a new one was made where it is not."""
    if has_known(folder):
        raise Unusable(
            f"{folder} is a node of another home, and the schema {place.schema!r} has none",
            code="storage",
            hint="name the database and the schema of its home under [storage] in holdfast.toml; "
            "for a new home, choose another folder with --home",
        )


def _join(wire: Wire, facts: ServerFacts, folder: Path, fd: int, journal: int) -> bool:
    """Make the folder a node of the home, unless it is one. Return True if made."""
    key = load_keys(fd).by_generation[1]
    check_key(key, wire, journal, folder)
    if read_known(fd, key) is not None and AnchoredSlots(fd, {1: key}).is_whole():
        return False
    make_node(fd, key, facts, read_era(wire))
    return True


@contextlib.contextmanager
def _open(folder: Path) -> Iterator[int]:
    fd = open_node_folder(folder)
    try:
        yield fd
    finally:
        os.close(fd)
