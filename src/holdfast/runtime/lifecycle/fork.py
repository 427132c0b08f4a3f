"""Copy a session up to any of its records, as an instance of its own."""

from holdfast.errors import Refused
from holdfast.ids import session_id
from holdfast.runtime.delegates.delegation import refuse_delegates_name
from holdfast.runtime.lifecycle.carried import begin_instance, carried_from
from holdfast.runtime.reports.types import SessionReport
from holdfast.runtime.runtime import Runtime


async def fork(runtime: Runtime, session: str, into: str, *, at_seq: int, by: str) -> SessionReport:
    """
    Copy a session up to this record, under another name. Nothing owed comes along, and the session
    itself goes on: its prompts stand, its calls, jobs and delegates are left alone.
    """
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
    if not 0 < at_seq <= journal.head.seq:
        raise Refused(
            f"record {at_seq} of {source} is not there; its records go from 1 to "
            f"{journal.head.seq}",
            code="unknown_record",
            hint="name one of them, or leave it out for the end of the last turn",
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
