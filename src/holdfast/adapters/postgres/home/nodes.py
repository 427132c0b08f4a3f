"""
The nodes of a home, as the database knows them: who they are, when they were last heard of, and
whether they have compared their anchors with the database's present history.

An era is one uninterrupted history of the database. A node that finds another timeline, another
server or a lower position than it knew declares a new era. Each node compares its anchors once for
an era, and nobody writes before every node has, or a person has accepted the loss of one (C3).
"""

import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_facts import ServerFacts
from holdfast.errors import Unusable

if TYPE_CHECKING:
    from holdfast.adapters.postgres.home.node_folder import KnownServer

_NODES = (
    "select n.node::text, n.machine, n.host, n.version, "
    "extract(epoch from clock_timestamp() - n.seen_at)::float8, n.reconciled, "
    "(select to_char(max(p.lease_until) at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') "
    "from hf.process p where p.node = n.node), "
    "exists (select 1 from hf.process p where p.node = n.node and "
    "p.lease_until > clock_timestamp()), "
    "(select count(*) from hf.head h join hf.process p on p.incarnation = h.driver "
    "where p.node = n.node and not h.ended) from hf.node n order by n.node"
)


class Era(NamedTuple):
    """The database's present history."""

    id: str
    number: int
    system: str
    timeline: str


class NodeFacts(NamedTuple):
    node: str
    machine: str
    host: str
    version: str
    silent_seconds: float
    reconciled: str
    lease_until: str | None
    has_lease: bool
    drives: int


class Nodes:
    """The nodes at the last look, which the lease's thread makes."""

    def __init__(self) -> None:
        self._known: dict[str, NodeFacts] = {}
        self._looked_at = 0.0

    def refresh(self, wire: Wire) -> None:
        found = all_nodes(wire)
        self._known, self._looked_at = {each.node: each for each in found}, time.monotonic()

    def silent_seconds(self, node: str) -> float | None:
        """How long the node was not heard of; None if the home has no such node."""
        known = self._known.get(node)
        if known is None:
            return None
        return known.silent_seconds + time.monotonic() - self._looked_at

    def machine_of(self, node: str) -> str | None:
        known = self._known.get(node)
        return known.machine if known is not None else None


def all_nodes(wire: Wire) -> list[NodeFacts]:
    return [NodeFacts(*row) for row in wire.rows(_NODES)]


def read_era(wire: Wire) -> Era:
    row = wire.one("select id::text, number, system, timeline from hf.era")
    if row is None:
        raise Unusable(
            "the schema does not say which history it has: the row of the table era is gone",
            code="storage",
            hint="somebody removed it; restore a backup of the database",
        )
    return Era(*row)


def is_new_history(known: "KnownServer", facts: ServerFacts, era: Era) -> bool:
    """
    Whether this node must declare a new era: the server is not the one that the era was declared
    for, or it has gone back behind what this node saw.
    """
    if (era.system, era.timeline) != (facts.system, facts.timeline):
        return True
    if era.id == known.era:
        return facts.lsn < known.lsn
    # Another node declared it after this one looked, unless the database went back to an old one.
    return era.number <= known.era_number


def declare_era(wire: Wire, facts: ServerFacts, *, after: int) -> Era:
    """Begin a new era, unless another node was faster."""
    values = (uuid.uuid4(), after + 1, facts.system, facts.timeline)
    wire.rows("select hf.declare_era(%s, %s, %s, %s)", values)
    return read_era(wire)
