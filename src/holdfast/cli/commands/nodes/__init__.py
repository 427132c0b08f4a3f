"""`holdfast nodes`: the nodes of a home in PostgreSQL."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.shared.arguments import RecordedAs
from holdfast.cli.shared.options import Options, command, group, options_of
from holdfast.cli.shared.service import home_of, run
from holdfast.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.postgres.home.nodes import NodeFacts


def register(app: typer.Typer) -> None:
    nodes = group(
        "nodes",
        "The nodes of a home in PostgreSQL: list them, go on without one.",
        example="holdfast nodes list",
    )
    app.add_typer(nodes)

    @command(nodes, "list", example="holdfast nodes list\nholdfast --json nodes list")
    def list_(ctx: typer.Context) -> None:
        """List every node: its host, when it was last heard of, and how many sessions it drives."""
        options = options_of(ctx)
        run(lambda: _list(options))

    @command(nodes, "accept", example="holdfast nodes accept 1d0c6c4a --reason 'its disk is gone'")
    def accept(
        ctx: typer.Context,
        node: Annotated[str, typer.Argument(metavar="NODE", help="Its id, or a unique prefix.")],
        reason: Annotated[
            str, typer.Option("--reason", metavar="R", help="Why; recorded in the home's journal.")
        ],
        as_: RecordedAs = None,
    ) -> None:
        """
        Go on without a node that will not come back.

        After the database was promoted, restored or replaced, every node compares its anchors with
        it. A record that only the missing node knew of can be lost without a trace: you accept
        that. Jobs that it ran are in doubt from now on.
        """
        options = options_of(ctx)
        run(lambda: _accept(options, node, reason, as_))


async def _list(options: Options) -> int:
    import asyncio

    from holdfast.assembly.store import place_at

    place = place_at(home_of(options))
    if place is None:
        options.out.result({"nodes": []}, "no nodes: [storage] names no database")
        return 0
    from holdfast.adapters.postgres.status import nodes_at

    found, era = await asyncio.to_thread(nodes_at, place)
    reports = [_report(each, era) for each in found]
    lines = [
        f"{each['node']}  {_STATES[each['state']]}, "
        f"heard of {_length(each['silent_seconds'])} ago, "
        f"drives {each['drives']}, on {each['host']}, Holdfast {each['version']}"
        for each in reports
    ]
    options.out.result({"nodes": reports}, "\n".join(lines) or "no node has opened this home yet")
    return 0


_STATES = {
    "alive": "alive",
    "silent": "silent",
    "not_compared": "has not compared its anchors",
}


def _length(seconds: int) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _report(found: "NodeFacts", era: str) -> dict[str, Any]:
    state = "alive" if found.has_lease else "silent"
    return {
        "node": found.node,
        "machine": found.machine,
        "host": found.host,
        "silent_seconds": max(0, int(found.silent_seconds)),
        "lease_until": found.lease_until,
        "version": found.version,
        "drives": found.drives,
        "state": state if found.reconciled == era else "not_compared",
    }


async def _accept(options: Options, prefix: str, reason: str, asserted: str | None) -> int:
    import asyncio

    from holdfast.adapters.postgres.status import nodes_at
    from holdfast.adapters.postgres.store import PostgresStore
    from holdfast.assembly.store import place_named
    from holdfast.cli.shared.identity import owner_only, who

    home = home_of(options)
    place, me = place_named(home), who(home, asserted)
    if not me.is_owner:
        raise owner_only("accept the loss of a node")
    found, _ = await asyncio.to_thread(nodes_at, place)
    node = _named(prefix, found)
    store = await PostgresStore.open_home(place, home, waits=False)
    try:
        await store.accept_node(node, by=me.person, reason=reason)
    finally:
        await store.close()
    options.out.result(
        {"node": node, "accepted": True, "by": me.person, "reason": reason},
        f"this home goes on without node {node}",
    )
    return 0


def _named(prefix: str, found: "Sequence[NodeFacts]") -> str:
    """The one node with that prefix. A node with a lease is alive, and can't be given up."""
    fitting = [each for each in found if each.node.startswith(prefix)]
    if len(fitting) != 1:
        raise Refused(
            f"{len(fitting)} nodes of this home have an id that begins with {prefix!r}",
            code="unknown",
            hint="`holdfast nodes list` has their ids",
        )
    (node,) = fitting
    if node.has_lease:
        raise Refused(
            f"node {node.node} is alive: its lease ends at {node.lease_until}",
            code="alive",
            hint="stop its processes first",
        )
    return node.node
