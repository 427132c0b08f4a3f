"""
The jobs of an ended instance. No process will watch them any more, so running ones are ended before
they are recorded as in doubt.

They are found by the journal, as far as it verifies, and by their own folders: if the record that
submitted a job is lost, no other process would stop that job.
"""

from collections.abc import Iterable

import msgspec

from holdfast.ids import InstanceId, JobId
from holdfast.ports.jobs import JobLeft, JobPlace, JobSeen
from holdfast.ports.journal_store import Journal
from holdfast.ports.tools import ProcessFacts
from holdfast.runtime.context import World
from holdfast.secrecy import known as known_secrets
from holdfast.session.commands import EndJob
from holdfast.session.state import Job


async def end_jobs(world: World, instance: InstanceId | None, known: Iterable[Job]) -> None:
    """End the jobs permanently: their output is deleted with the session."""
    if (place := world.jobs) is None:
        return
    for left in await _all_of(place, instance, known):
        await _end(place, left)


async def end_jobs_and_keep_results(world: World, journal: Journal, known: tuple[Job, ...]) -> None:
    """
    Commit point: a job's result is durable in quarantine before its folder is removed. Crash before
    it: the folder is found again. Crash after it: the result is in quarantine.
    """
    if (place := world.jobs) is None:
        return
    names = {job.job for job in known}
    for left in await _all_of(place, journal.instance, known):
        seen = await place.inspect(
            left.job, left.process, instance=journal.instance, secrets=world.secrets
        )
        # The new instance itself records a known job without a result as in doubt.
        if left.job not in names or seen.returned is not None:
            await journal.quarantine(
                "tool_outcome",
                known_secrets().hidden_json(msgspec.json.encode(_last_word(left.job, seen))),
            )
        await _end(place, left)


async def _all_of(
    place: JobPlace, instance: InstanceId | None, known: Iterable[Job]
) -> list[JobLeft]:
    journalled = [
        JobLeft(job=job.job, call=job.call, process=ProcessFacts(**job.process))
        for job in known
        if job.host == "process"
    ]
    names = {each.job for each in journalled}
    found = await place.of_instance(instance) if instance is not None else ()
    return [*journalled, *(each for each in found if each.job not in names)]


async def _end(place: JobPlace, left: JobLeft) -> None:
    await place.end(left.call, left.process)
    await place.clear(left.job)


def _last_word(job: JobId, seen: JobSeen) -> EndJob:
    returned = seen.returned
    if returned is not None and returned.outcome != "cancelled" and not seen.was_asked:
        return EndJob(
            job=job, outcome=returned.outcome, text=f"job {job} had ended. {returned.text}"
        )
    how = (
        "was stopped while it ran" if seen.state == "running" else "is gone, and its record is lost"
    )
    said = f"\n{returned.text}" if returned is not None and returned.text else ""
    return EndJob(
        job=job,
        outcome="in_doubt",
        text=f"In doubt: job {job} {how}. It may or may not have happened; check before trying "
        f"again.{said}",
    )
