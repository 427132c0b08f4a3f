"""
1,000 jobs submitted and reported while their driver is killed with -9 every few seconds: nothing
lost, nothing doubled.
"""

import time

from proof.campaigns.job_storm import storm

from bench.ground import Ground, Row

PART = "jobs"
JOBS = 1_000
SESSIONS = 8
EVERY_SECONDS = (2.0, 5.0)


def measure(ground: Ground) -> list[Row]:
    jobs = ground.count(JOBS, 30)
    folder = ground.fresh("jobs")
    (folder / "workspace").mkdir()
    started = time.perf_counter()
    found = storm(
        folder / "home",
        folder / "workspace",
        jobs=jobs,
        sessions=SESSIONS,
        kills=None,
        seed=7,
        every_seconds=EVERY_SECONDS,
    )
    seconds = time.perf_counter() - started
    flaws = found.flaws(jobs)
    ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.ended.items()))
    return [
        Row(
            PART,
            f"{jobs:,} shell jobs, lost or doubled results",
            str(len(flaws)),
            goal="0",
            reached=not flaws,
            note=f"{found.kills} drivers killed with -9; {ended}"
            + (f"; {flaws[0]}" if flaws else ""),
        ),
        Row(
            PART,
            "submitted, run and reported",
            f"{jobs / seconds:.1f}/s",
            note=f"{SESSIONS} sessions; start, sandbox and restarts of the driver included",
        ),
    ]
