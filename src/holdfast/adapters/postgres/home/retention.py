"""
The rows beside the journals that `[retention]` removes by age: full outputs of tools, and
quarantine. Ages are by the database's clock.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.adapters.postgres.server import Wire

_OUTPUTS = (
    "select journal, digest from hf.output where kept_at < to_timestamp(%s) "
    "order by kept_at limit %s"
)
_QUARANTINE = (
    "select item from hf.quarantine where kept_at < to_timestamp(%s) order by kept_at limit %s"
)
_ALL = 2**31 - 1


class OldRows(NamedTuple):
    """Rows that may be removed if they are still older than this. It counts them."""

    before_seconds: float
    outputs: Sequence[tuple[int, str]] = ()
    quarantine: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.outputs) + len(self.quarantine)


def old_outputs(wire: Wire, before_seconds: float, most: int | None) -> OldRows:
    found = wire.rows(_OUTPUTS, (before_seconds, _ALL if most is None else most))
    return OldRows(before_seconds, outputs=[(journal, digest) for journal, digest in found])


def old_quarantine(wire: Wire, before_seconds: float, most: int | None) -> OldRows:
    found = wire.rows(_QUARANTINE, (before_seconds, _ALL if most is None else most))
    return OldRows(before_seconds, quarantine=[item for (item,) in found])


def remove(wire: Wire, rows: OldRows) -> None:
    if rows.outputs:
        journals, digests = zip(*rows.outputs, strict=True)
        wire.rows(
            "select hf.forget_outputs(to_timestamp(%s), %s::bigint[], %s::text[])",
            (rows.before_seconds, list(journals), list(digests)),
        )
    if rows.quarantine:
        wire.rows(
            "select hf.forget_quarantine(to_timestamp(%s), %s::bigint[])",
            (rows.before_seconds, list(rows.quarantine)),
        )
