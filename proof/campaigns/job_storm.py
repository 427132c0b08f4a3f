"""
Run jobs while their driver is killed with -9 again and again: real processes on a real home.

    python -m proof.campaigns.job_storm work HOME WORKSPACE JOBS SESSIONS
        submits the missing jobs and waits until all are reported

Each job writes a line to a file with its own number, so that real runs can be counted apart from
reported ones. `storm` starts the worker and kills it every few seconds until one worker ends by
itself. Then it reads the journals: submitted, ended and reported jobs. With `forging`, a thread
meanwhile writes reports of success and other output into every job's folder, as well as it can
without a key.
"""

import asyncio
import collections
import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import holdfast
from holdfast.session.codec import decode
from holdfast.session.events import (
    CallFinished,
    InputAccepted,
    JobEnded,
    JobSubmitted,
    ModelAnswered,
)
from proof.child_process import words_for

SETTINGS = """
[policy.personal]
shell = "auto"
[limits]
session_jobs_max = 1000
home_jobs_max = 1000
"""
_WORK_SECONDS_MAX = 900.0
_FORGED = "all is well, says the forger"


class Storm(NamedTuple):
    """The result. Numbers are those of the jobs."""

    kills: int
    asked: set[int]  # calls by the model
    submitted: collections.Counter[int]
    ended: collections.Counter[str]  # by outcome
    reported: collections.Counter[int]
    ran: collections.Counter[int]
    told_ok: set[int]
    doubted: set[int]  # calls that a kill left in doubt before their job was submitted
    forged: set[int]  # jobs whose journalled end contains the forger's text
    given_up: set[
        int
        # Calls that the journal marks as not run: three drivers in a row were killed before they
        # finished a step, or a forger's file stood where the supervisor makes its own.
    ]

    def flaws(self, jobs: int) -> list[str]:
        """Return a sentence for each broken promise."""
        every = set(range(jobs))
        return [
            *(f"{number} was never asked for" for number in sorted(every - self.asked)),
            *(
                f"{number} was neither submitted nor said to be in doubt"
                for number in sorted(
                    self.asked - self.submitted.keys() - self.doubted - self.given_up
                )
            ),
            *(
                f"{number} is said not to have run, and did"
                for number in sorted(self.given_up & self.ran.keys())
            ),
            *(
                f"{number} was submitted {count} times"
                for number, count in sorted(self.submitted.items())
                if count != 1
            ),
            *(
                f"{number} was submitted and never reported"
                for number in sorted(self.submitted.keys() - self.reported.keys())
            ),
            *(
                f"{number} was reported {count} times"
                for number, count in sorted(self.reported.items())
                if count != 1
            ),
            *(
                f"{number} ran {count} times"
                for number, count in sorted(self.ran.items())
                if count != 1
            ),
            *(
                f"{number} is said to have run, and did not"
                for number in sorted(self.told_ok - self.ran.keys())
            ),
            *(f"{number} ended as a forger wrote" for number in sorted(self.forged)),
        ]


def storm(
    home: Path,
    workspace: Path,
    *,
    jobs: int,
    sessions: int,
    kills: int | None,
    seed: int,
    every_seconds: tuple[float, float],
    forging: bool = False,
) -> Storm:
    """Kill at most `kills` times; None kills until all jobs are done."""
    if not forging:
        return _storm(
            home,
            workspace,
            jobs=jobs,
            sessions=sessions,
            kills=kills,
            seed=seed,
            every_seconds=every_seconds,
        )
    enough = threading.Event()
    forger = threading.Thread(target=_forge, args=(home / "jobs", enough), daemon=True)
    forger.start()
    try:
        return _storm(
            home,
            workspace,
            jobs=jobs,
            sessions=sessions,
            kills=kills,
            seed=seed,
            every_seconds=every_seconds,
        )
    finally:
        enough.set()
        forger.join()


def _forge(jobs: Path, enough: threading.Event) -> None:
    """Write reports and output without a key, over existing ones and in place of missing ones."""
    while not enough.wait(0.01):
        for folder in jobs.glob("j-*"):
            name, group, start = folder.name.split(".")
            facts = {
                "ended": "exited",
                "status": 0,
                "failed": "",
                "bytes": 7,
                "kept": 7,
                "digest": "0" * 64,
                "left": 0,
                "left_names": [],
                "at_ms": 1,
            }
            whose = {
                "job": name,
                "boot": "unknown",
                "group": int(group),
                "start_time": int(start),
                "generation": 1,
            }
            with contextlib.suppress(OSError):
                (folder / "output").write_text(_FORGED)
                (folder / "status").write_text(
                    json.dumps({**facts, **whose}) + "\n" + "0" * 64 + "\n"
                )


def _storm(
    home: Path,
    workspace: Path,
    *,
    jobs: int,
    sessions: int,
    kills: int | None,
    seed: int,
    every_seconds: tuple[float, float],
) -> Storm:
    dice = random.Random(seed)  # for times, not for secrets
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "holdfast.toml").write_text(SETTINGS)
    (home / "holdfast.toml").chmod(0o600)
    done, until = 0, time.monotonic() + _WORK_SECONDS_MAX
    arguments = ("work", str(home), str(workspace), str(jobs), str(sessions))
    words = words_for("proof.campaigns.job_storm", *arguments)
    while time.monotonic() < until:
        worker = subprocess.Popen(words, stdout=subprocess.DEVNULL)  # a fixed command line
        patience = (
            dice.uniform(*every_seconds)
            if kills is None or done < kills
            else until - time.monotonic()
        )
        try:
            if worker.wait(timeout=patience) != 0:
                raise AssertionError(f"the worker ended with {worker.returncode}")
            return _count_runs(asyncio.run(_read(home, done)), workspace)
        except subprocess.TimeoutExpired:
            done += 1
        finally:
            worker.kill()
            worker.wait()
    raise AssertionError(
        f"{jobs} jobs were not done after {_WORK_SECONDS_MAX:g} s and {done} kills"
    )


async def _read(home: Path, kills: int) -> Storm:
    found = Storm(
        kills,
        set(),
        collections.Counter(),
        collections.Counter(),
        collections.Counter(),
        collections.Counter(),
        set(),
        set(),
        set(),
        set(),
    )
    numbers: dict[str, int] = {}
    async with holdfast.open(home) as opened:
        store = opened.service.runtime.world.store
        for session in await store.sessions():
            journal = await store.open(session)
            records: list[Any] = []
            await journal.load(records.append)
            await journal.close()
            for record in records:
                _note(
                    found, numbers, decode(record.type, record.version, record.body, seq=record.seq)
                )
    return found


def _count_runs(found: Storm, workspace: Path) -> Storm:
    for effect in workspace.glob("ran-*"):
        found.ran[int(effect.name.removeprefix("ran-"))] += len(effect.read_text().splitlines())
    return found


def _note(found: Storm, numbers: dict[str, int], event: object) -> None:
    match event:
        case ModelAnswered(calls=calls):
            found.asked.update(_number(call.arguments) for call in calls)
            numbers.update({call.call: _number(call.arguments) for call in calls})
        case CallFinished(call=call, outcome="in_doubt"):
            found.doubted.add(numbers[call])
        case CallFinished(call=call, outcome="cancelled" | "voided"):
            found.given_up.add(numbers[call])
        case JobSubmitted(job=job, arguments=arguments):
            numbers[job] = _number(arguments)
            found.submitted[numbers[job]] += 1
        case JobEnded(job=job, outcome=outcome, text=text):
            found.ended[outcome] += 1
            if _FORGED in text:
                found.forged.add(numbers[job])
            if outcome == "ok":
                found.told_ok.add(numbers[job])
        case InputAccepted(kind="job", dedup=job):
            found.reported[numbers[job or ""]] += 1
        case _:
            pass


def _number(arguments: str) -> int:
    return int(msgspec.json.decode(arguments)["command"].rpartition("ran-")[2])


async def work(home: Path, workspace: Path, jobs: int, sessions: int) -> None:
    """
    Continue where the last worker was killed. A message's number is its key, so that it is accepted
    once.
    """
    alice = holdfast.MessageSource.local("alice")
    agent = holdfast.Agent("storm", model="demo", tools=["shell"])
    async with holdfast.open(home, agents=[agent]) as opened:
        await opened.resume()

        async def send_all(mine: range, session: str) -> None:
            for number in mine:
                text = f"shell command='echo {number} >> ran-{number}' background=true"
                await opened.send(
                    session, text, source=alice, dedup=str(number), workspace=workspace
                )

        async with asyncio.TaskGroup() as group:
            for index in range(sessions):
                group.create_task(send_all(range(index, jobs, sessions), f"storm/s{index}"))
        while await opened.jobs(by=alice) or await opened.service.owing():
            await opened.resume()
            await asyncio.sleep(0.05)
    sys.stdout.write(json.dumps({"jobs": jobs}) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", home_, workspace_, jobs_, sessions_]:
            asyncio.run(work(Path(home_), Path(workspace_), int(jobs_), int(sessions_)))
        case other:
            sys.exit(f"no such work: {other}")
