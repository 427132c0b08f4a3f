"""End a session. Its bytes stay in the home, and its name is free again."""

import contextlib

from holdfast.errors import HoldfastError
from holdfast.ids import SessionId
from holdfast.runtime.jobs.orphans import end_jobs
from holdfast.runtime.jobs.watcher import running_jobs
from holdfast.runtime.runtime import Runtime
from holdfast.session.state import Job


async def delete(runtime: Runtime, session: SessionId, *, by: str) -> None:
    """
    Delete a session permanently. Its jobs end first, also those of a session that cannot be read.

    A crash in between leaves a session whose jobs are found gone, and in doubt. While another
    process holds its write lock, nothing of it ends.
    """
    if (busy := await runtime.world.store.held_by(session)) is not None:
        raise busy
    running: tuple[Job, ...] = ()
    with contextlib.suppress(HoldfastError):
        async with runtime.sessions.use(session) as ledger:
            await ledger.catch_up()
            running = running_jobs(ledger)
    await end_jobs(runtime.world, await runtime.world.store.current(session), running)
    await runtime.world.store.delete(session, by=by)
    await runtime.world.index.forget(session)
