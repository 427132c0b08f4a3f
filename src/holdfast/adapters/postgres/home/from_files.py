"""
Fill an empty schema from a home of files: the lines go in as they are, and are verified when the
home is opened.

The home's own journal counts last, with the declared era. A schema without an era is not a home,
and running this again begins anew. Blocks.
"""

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.adapters.files.home.keys import KEYS, load_keys
from holdfast.adapters.files.home.layout import (
    HOME_INSTANCE,
    HOME_PARTS,
    HOME_SESSION,
    session_parts,
)
from holdfast.adapters.files.session.outputs import OUTPUTS
from holdfast.adapters.files.session.quarantine import Quarantine
from holdfast.adapters.postgres import schema as schemas
from holdfast.adapters.postgres.home.node_folder import make_node, open_node_folder
from holdfast.adapters.postgres.home.nodes import read_era
from holdfast.adapters.postgres.server import DatabaseAddress, Wire, connect
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.adapters.postgres.server_facts import check_server
from holdfast.adapters.postgres.session.head import head_row
from holdfast.adapters.postgres.session.side_data import SideData
from holdfast.adapters.postgres.session.tail import Tail
from holdfast.errors import Busy, Refused, Unusable
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring
from holdfast.journal.record import Record, read_unverified
from holdfast.journal.segment import parse_segment_name

_LINES_MAX = 500  # in one statement


class LivingSession(NamedTuple):
    session: SessionId
    instance: InstanceId


def refuse_home(place: DatabaseAddress) -> None:
    """Refuse a schema that has a home already. Writes nothing."""
    wire = connect(place)
    try:
        check_server(wire)
        row = (
            head_row(wire, HOME_SESSION, HOME_INSTANCE)
            if schemas.version(wire, place.schema) == schemas.newest()
            else None
        )
    except Lost as exc:
        raise Busy(f"the connection was lost: {exc}", hint="run it again") from exc
    finally:
        wire.close()
    if row is not None and not row.ended:
        raise Refused(
            f"{place.name} has a home already; nothing is written over",
            code="exists",
            hint="name another schema under [storage] in holdfast.toml",
        )


def load_files(
    place: DatabaseAddress, node: Path, source: Path, living: list[LivingSession]
) -> None:
    """Load the home of files at `source`, whose living sessions are these."""
    refuse_home(place)
    _copy_keys(node, source)
    wire = connect(place)
    try:
        schemas.migrate(wire, place.schema)
        schemas.check_version(wire, place.schema)
        wire.rows("select hf.begin_load()")
        for each in living:
            _load_session(wire, place, source, each)
        home = _load_folder(wire, source.joinpath(*HOME_PARTS), HOME_SESSION, living=None)[
            HOME_INSTANCE
        ]
        wire.rows("select hf.end_load(%s)", (home,))
        _make_node(wire, node)
    except Lost as exc:
        raise Busy(f"the connection was lost: {exc}", hint="run it again") from exc
    finally:
        wire.close()


def _make_node(wire: Wire, node: Path) -> None:
    fd = open_node_folder(node)
    try:
        make_node(fd, load_keys(fd).by_generation[1], check_server(wire), read_era(wire))
    finally:
        os.close(fd)


def _copy_keys(node: Path, source: Path) -> None:
    (node / KEYS).mkdir(mode=0o700, exist_ok=True)
    for each in sorted((source / KEYS).glob("*.key")):
        target = node / KEYS / each.name
        if target.exists() and target.read_bytes() != each.read_bytes():
            raise Refused(
                f"{target} is another key than the backup's",
                code="exists",
                hint="name another node folder with --home",
            )
        if not target.exists():
            shutil.copy2(each, target)
            target.chmod(0o600)


def _load_session(wire: Wire, place: DatabaseAddress, source: Path, living: LivingSession) -> None:
    folder = source.joinpath(*session_parts(living.session))
    journals = _load_folder(wire, folder, living.session, living=living.instance)
    journal = journals.get(living.instance)
    if journal is None:
        raise Unusable(f"{folder} lacks the journal of {living.instance}", code="no_backup")
    if (folder / OUTPUTS).exists():
        for each in sorted((folder / OUTPUTS).iterdir()):
            wire.rows("select hf.keep_output(%s, %s, %s)", (journal, each.name, each.read_bytes()))
    fd = open_node_folder(source)
    try:
        keys = dict(load_keys(fd).by_generation)
        tail = Tail(journal, *living, Keyring(keys, *living), 0)
        beside, kept = SideData(place.schema, keys), Quarantine(fd, living.session)
        for where in kept.places():
            beside.quarantine(wire, tail, *kept.read(where))
    finally:
        os.close(fd)


def _load_folder(
    wire: Wire, folder: Path, session: SessionId, *, living: InstanceId | None
) -> dict[InstanceId, int]:
    """Load every instance in a folder. Return the journal of each."""
    named = sorted(
        (*parsed, path)
        for path in folder.iterdir()
        if (parsed := parse_segment_name(path.name)) is not None
    )
    found: dict[InstanceId, int] = {}
    for instance, segments in itertools.groupby(named, key=lambda each: each[0]):
        paths = [path for _, _, path in segments]
        found[instance] = _load_instance(
            wire, session, instance, paths, is_ended=instance != living
        )
    return found


def _load_instance(
    wire: Wire, session: SessionId, instance: InstanceId, paths: list[Path], *, is_ended: bool
) -> int:
    """`is_ended` also stands for the home until all of it is loaded."""
    firsts = [_read(next(_lines(path))) for path in paths]
    *_, last_line = _lines(paths[-1])
    last = _read(last_line)
    (row,) = wire.rows(
        "select hf.load_journal(%s, %s, %s, %s, %s, %s, %s::int[], %s::bigint[], %s)",
        (
            *(session, instance, last.seq, last.mac, last.at, last.epoch),
            list(range(1, len(paths) + 1)),
            [each.seq for each in firsts],
            is_ended,
        ),
    )
    first = 1
    lines = itertools.chain.from_iterable(map(_lines, paths))
    while page := list(itertools.islice(lines, _LINES_MAX)):
        wire.rows("select hf.load_lines(%s, %s, %s::bytea[])", (row[0], first, page))
        first += len(page)
    return int(row[0])


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _read(line: bytes) -> Record:
    record = read_unverified(line)
    if record is None:
        raise Unusable("a line of the backup is not a record", code="no_backup")
    return record
