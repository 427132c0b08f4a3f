"""The facts of a database that `storage status` and `doctor` report."""

import contextlib
from collections.abc import Generator
from typing import Any, NamedTuple

from holdfast.adapters.postgres import schema
from holdfast.adapters.postgres.home.nodes import NodeFacts, all_nodes, read_era
from holdfast.adapters.postgres.notices import DEAF, NAME_THE_SERVER, POOLED, connect_to_listen
from holdfast.adapters.postgres.server import DatabaseAddress, Wire, connect
from holdfast.adapters.postgres.server_errors import Lost, unreachable
from holdfast.adapters.postgres.server_facts import check_server
from holdfast.errors import HoldfastError


def database_facts(place: DatabaseAddress) -> dict[str, Any]:
    """Blocks. Writes nothing; raises what makes the server unusable."""
    with _reading(place) as wire:
        facts = check_server(wire)
        version = schema.version(wire, place.schema)
        (row,) = wire.rows(
            "select current_setting('server_version'), current_setting('synchronous_commit'), "
            "current_setting('synchronous_standby_names'), current_setting('archive_mode'), "
            "current_user::text"
        )
        found = {
            "store": place.name,
            "server": f"PostgreSQL {row[0]}",
            "user": row[4],
            "schema_version": version,
            "program_version": schema.newest(),
            "system": facts.system,
            "timeline": facts.timeline,
            "synchronous_commit": row[1],
            "synchronous_standbys": row[2] or "none",
            "archive_mode": row[3],
            "pooled": wire.is_pooled,
        }
        if version == schema.newest():
            deaf = _why_deaf(place, wire)
            found |= {"notices": "polled" if deaf else "heard", "why_polled": deaf}
            (counts,) = wire.rows(
                "select count(*) filter (where session <> '_home'), coalesce(sum(seq), 0)::bigint "
                "from hf.head where not ended"
            )
            found |= {"sessions": counts[0], "records": counts[1]}
        return found


def _why_deaf(place: DatabaseAddress, wire: Wire) -> str | None:
    """Why notices are not heard; None if they are."""
    if place.listen_url is None:
        return POOLED if wire.is_pooled else None
    try:
        direct = connect_to_listen(place, era=read_era(wire).id)
    except (HoldfastError, Lost) as exc:
        return DEAF.format(exc)
    try:
        return DEAF.format("it leads to a pooler") if direct.is_pooled else None
    finally:
        direct.close()


def nodes_at(place: DatabaseAddress) -> tuple[list[NodeFacts], str]:
    """Blocks. The nodes of a home, and its present era."""
    with _reading(place) as wire:
        schema.check_version(wire, place.schema)
        return all_nodes(wire), read_era(wire).id


@contextlib.contextmanager
def _reading(place: DatabaseAddress) -> Generator[Wire, None, None]:
    """Connect for reads alone: a lost connection leaves nothing open."""
    wire = connect(place)
    try:
        yield wire
    except Lost as exc:
        raise unreachable(exc) from exc
    finally:
        wire.close()


class StorageWarning(NamedTuple):
    """A setting of the server that keeps every promise, and that an operator should know of."""

    detail: str
    hint: str


def storage_warnings(found: dict[str, Any]) -> list[StorageWarning]:
    """From the facts that `database_facts` returned."""
    warned = []
    if found.get("why_polled"):
        warned.append(StorageWarning(found["why_polled"], NAME_THE_SERVER))
    if found["synchronous_standbys"] == "none":
        warned.append(
            StorageWarning(
                "no synchronous standby: a failover can lose what was acknowledged last",
                "set synchronous_standby_names on the server, if it has standbys",
            )
        )
    elif found["synchronous_commit"] in {"local", "remote_write"}:
        warned.append(
            StorageWarning(
                f"synchronous_commit is {found['synchronous_commit']}: a standby may lack what was "
                "acknowledged last",
                "set synchronous_commit = on",
            )
        )
    return warned
