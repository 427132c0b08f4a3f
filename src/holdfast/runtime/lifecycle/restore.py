"""Begin a new instance of every session of a restored home."""

from holdfast.runtime.lifecycle.carried import begin_instance, carried_from
from holdfast.runtime.reports.types import SessionReport
from holdfast.runtime.runtime import Runtime


async def restore_all(runtime: Runtime, *, by: str) -> tuple[SessionReport, ...]:
    """
    After a restore, continue every session in a new instance, so that nothing owed runs again.
    Sealed sessions stay sealed.
    """
    reports = []
    for name in await runtime.world.store.sessions():
        journal = await runtime.world.store.open(name)
        try:
            if journal.sealed is not None:
                continue
            carried = await carried_from(journal)
        finally:
            await journal.close()
        reports.append(
            await begin_instance(
                runtime,
                name,
                carried,
                origin="restore",
                by=by,
                reason=f"restored from a backup by {by}",
                from_session=name,
                from_instance=journal.instance,
                attached=(),
            )
        )
    return tuple(reports)
