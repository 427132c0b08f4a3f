"""Copy a session up to the end of a turn, as an instance of its own."""

from holdfast.errors import Refused
from holdfast.ids import session_id
from holdfast.runtime.delegates.delegation import refuse_delegates_name
from holdfast.runtime.lifecycle.carried import begin_instance, carried_from
from holdfast.runtime.reports.types import SessionReport
from holdfast.runtime.runtime import Runtime


async def fork(runtime: Runtime, session: str, into: str, *, at_seq: int, by: str) -> SessionReport:
    """Copy a session up to a turn's end, under another name, without its approvals."""
    source, target = session_id(session), session_id(into)
    refuse_delegates_name(target)
    journal = await runtime.world.store.open(source)
    try:
        if journal.sealed is not None:
            raise Refused(
                f"{source} is sealed; it can't be forked",
                code="sealed",
                hint=f"`holdfast sessions unseal {source}` first",
            )
        carried = await carried_from(journal, until=at_seq)
    finally:
        await journal.close()
    if not carried.at_turn_boundary or not 0 < at_seq <= journal.head.seq:
        what = (
            "is inside a turn"
            if 0 < at_seq <= journal.head.seq
            else f"is not there; its records go from 1 to {journal.head.seq}"
        )
        raise Refused(
            f"record {at_seq} of {source} {what}",
            code="not_a_boundary",
            hint="name the seq of a turn_ended record",
        )
    why = f"forked from {source} at {carried.last_seq} by {by}"
    return await begin_instance(
        runtime,
        target,
        carried,
        origin="fork",
        by=by,
        reason=why,
        from_session=source,
        from_instance=journal.instance,
        attached=(),
    )
