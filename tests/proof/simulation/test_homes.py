"""
Seeded runs of a whole home: the real service, drivers and attempts of several processes, in
made-up time, with every port made to fail by dice.

Safety always, liveness once the faults have stopped. A red seed is repeated with `make simulate
ARGS="--only home --seed N"`.
"""

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from blake3 import blake3
from proof.checkers.states import PromiseBroken
from proof.simulation.kinds import KINDS
from proof.simulation.virtual_loop import run_virtually
from proof.simulation.world.instances import InstanceScript, simulate_home

from holdfast.adapters.inmemory import InMemoryJournal, commit
from holdfast.adapters.inmemory import memory as inmemory_memory
from holdfast.adapters.tools.builtin import memory as memory_tools
from holdfast.errors import InvariantBroken
from holdfast.ids import JobId
from holdfast.ports.journal_store import Check, Draft
from holdfast.runtime import reminders as reminding
from holdfast.runtime.delegates import delegation, start
from holdfast.runtime.drive import bound_call as looking
from holdfast.runtime.drive import driver, model_call, tool_call
from holdfast.runtime.jobs import call as job_call
from holdfast.runtime.ledger.attempt import WriteAs
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.memory import recall as recalling
from holdfast.runtime.service import Service
from holdfast.session.authority.context import Principal
from holdfast.session.codec import encode
from holdfast.session.commands import EndJob
from holdfast.session.decide import answers as decide_answers
from holdfast.session.decide import commit as deciding
from holdfast.session.decide import inputs as decide_inputs
from holdfast.session.decide.decision import Decided
from holdfast.session.events import JobEnded
from holdfast.session.features.jobs import decide as decide_jobs
from holdfast.session.features.memory import decide as decide_memory
from holdfast.session.features.memory.items import reader_set_of
from holdfast.session.state import Job, SessionState
from holdfast.session.transitions import IllegalTransition

SEEDS_PER_TEST = 50
# a change of the runtime's timing moves what a seed leads to, and a guard that matters once in a
# hundred runs is still seen
SEEDS_TRIED_MAX = 300


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Every fault would be told."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("holdfast").setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    "first",
    [
        *range(0, 100, SEEDS_PER_TEST),
        *(
            pytest.param(first, marks=pytest.mark.long)
            for first in range(100, 1000, SEEDS_PER_TEST)
        ),
    ],
)
def test_every_promise_is_kept_in_every_home(first: int) -> None:
    """
    D1, D2, D4, L1, L4, L6, L7, C1, T1, T2, T5, T7, A1, A4, P2, P11, M1, over a hundred runs of
    six kinds, and in the long suite over a thousand.
    """
    runs = [simulate_home(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(run.turns for run in runs) > SEEDS_PER_TEST
    assert (
        min(
            sum(run.effects for run in runs),
            sum(run.crashes for run in runs),
            sum(run.faults for run in runs),
        )
        > 0
    )


DIGEST = """
import logging, sys
logging.disable(logging.CRITICAL)
from tests.proof.simulation.test_homes import bytes_of
print(*map(bytes_of, map(int, sys.argv[1:])))
"""


def bytes_of(seed: int) -> str:
    """A digest of everything that a run leaves on its disk."""
    hasher = blake3()
    run: InstanceScript | None = None

    async def live() -> None:
        nonlocal run
        run = InstanceScript(seed)
        await run.live()

    run_virtually(live())
    assert run is not None
    for each in (run.home.disk.home, *run.home.disk.instances.values()):
        for entry in each.entries:
            hasher.update(entry.header + entry.body + entry.mac)
    return hasher.hexdigest()


def test_the_same_seed_is_the_same_home() -> None:
    """
    Byte for byte, in another process with other hashes too, whatever the run is about: a red seed
    can be seen again.
    """
    seeds = range(len(KINDS))
    command, salt = [sys.executable, "-c", DIGEST, *map(str, seeds)], {"PYTHONHASHSEED": "1"}
    there = subprocess.run(
        command, env=salt, capture_output=True, text=True, check=True
    ).stdout.split()
    assert there == [bytes_of(seed) for seed in seeds]


def red(first: int) -> str:
    """
    The letter of the first promise that is broken, from this seed on, or that the core noticed by
    itself; fails if none is.
    """
    for seed in range(first, first + SEEDS_TRIED_MAX):
        try:
            simulate_home(seed)
        except PromiseBroken as exc:
            return str(exc).partition(":")[0]
        except (InvariantBroken, IllegalTransition):
            return "a bug"
    pytest.fail("no promise was broken: the simulation is blind")


# Guards taken out on purpose: a simulation that stays green then proves nothing. Each starts at a
# seed that is known to see it.


def test_a_server_that_never_looks_again_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With notices that get lost, looking again is what finds the rest."""

    async def nothing(_: Service) -> tuple[()]:
        return ()

    monkeypatch.setattr(Service, "owing", nothing)
    assert red(0) == "T7"


def test_a_tool_let_go_before_its_start_is_durable_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The world remembers what the journal does not."""
    prepared = tool_call._prepared

    async def too_early(*given: Any) -> Any:
        made: Any = await prepared(*given)
        if made is not None:
            await made.go(timeout_seconds=5.0, on_output=lambda _: None)
            made._spent = False  # or the tool itself would tell
        return made

    monkeypatch.setattr(tool_call, "_prepared", too_early)
    assert red(0) == "T1"


def test_a_fence_that_checks_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime acts on an outsider's change."""
    verify = commit._verify_for

    def short(run: Any, batch: Any) -> Any:
        for pending in batch:
            pending.check = Check.SHORT
        return verify(run, batch)

    monkeypatch.setattr(commit, "_verify_for", short)
    assert red(68) == "L4"


def test_messages_of_different_people_merged_into_one_turn_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decide_inputs, "_may_join", lambda *_: True)
    assert red(4) == "A7"


def test_answers_that_nobody_checks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide_answers, "_flaw", lambda *_: None)
    assert red(23) in {"P1", "P3", "P5", "P6"}


def test_a_driver_that_writes_on_after_its_claim_was_taken_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the comparison of epochs in every append."""
    monkeypatch.setattr(InMemoryJournal, "_drives", lambda *_: True)
    assert red(29) == "C1"


def test_an_approval_that_is_answered_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide_answers, "_settled", lambda *_: None)
    assert red(172) in {"P2", "a bug"}


def test_a_delegate_with_a_tool_that_nobody_above_it_has_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the intersection."""
    for module in (looking, model_call, start):
        monkeypatch.setattr(
            module,
            "turn_tools",
            lambda world, turn, _: looking.agent_tools(world, world.agents[turn.agent]),
        )
    assert red(61) == "A4"


def test_a_delegate_with_more_authority_than_its_parent_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handed_down = delegation.handed_down

    def more(turn: Any, child: Any) -> Any:
        return msgspec.structs.replace(
            handed_down(turn, child), interactive=True, principal=Principal.OPERATOR
        )

    for module in (start, delegation):
        monkeypatch.setattr(module, "handed_down", more)
    assert red(25) == "A4"


def test_a_reminder_fired_by_everybody_who_finds_it_due_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Decided on what one process knows, and not under the lock."""

    async def blindly(world: Any, ledger: Ledger) -> bool:
        now = world.clock.now_ms()
        if not reminding.has_due(ledger.state, now):
            return False
        drafts = [
            Draft(*encode(event))
            for event in deciding.commit(
                ledger.state, [reminding.firing(world, ledger.state)], now=now
            ).events
        ]
        await ledger.attempt.write(lambda _: drafts, as_=WriteAs.PARTICIPANT)
        return True

    monkeypatch.setattr(reminding, "fire_due", blindly)
    assert red(140) == "a bug"


def test_a_job_let_go_before_its_submission_is_durable_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = job_call._prepared

    async def and_let_go(*given: Any) -> Any:
        made, plan = await prepared(*given)
        if plan.host == "process":
            await made.let_go()
        return made, plan

    monkeypatch.setattr(job_call, "_prepared", and_let_go)
    assert red(11) == "T1"


def test_a_job_reported_by_everybody_who_finds_its_end_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the look, under the lock, whether somebody has said so before."""
    end_job, known = decide_jobs.end_job, dict[JobId, Job]()

    def again(state: SessionState, command: EndJob) -> Decided:
        if (job := state.jobs.get(command.job)) is not None:
            known[command.job] = job
            return end_job(state, command)
        job = known[command.job]
        ended = JobEnded(job=job.job, turn=job.turn, outcome=command.outcome, text=command.text)
        return Decided(decide_jobs._report(state, job, job.context, ended), outcome="ended")  # type: ignore[arg-type]  # it has one

    monkeypatch.setattr(decide_jobs, "end_job", again)
    assert red(263) == "T2"


def test_memory_that_everybody_may_see_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the store, on what it gave, and under the lock: all three let everything through."""
    for module in (inmemory_memory, recalling, decide_memory, memory_tools):
        monkeypatch.setattr(module, "may_see", lambda *_: True)
    assert red(3) == "M1"


def test_a_recall_that_ignores_who_reads_along_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (recalling, decide_memory, looking):
        monkeypatch.setattr(module, "reader_set_of", lambda context, _: reader_set_of(context, ()))
    assert red(11) == "M1"


def test_a_memory_that_fails_in_silence_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    recall_for = recalling.recall_for

    async def quiet(*given: Any) -> Any:
        return tuple(
            msgspec.structs.replace(each, degraded=None) for each in await recall_for(*given)
        )

    for module in (recalling, driver):
        monkeypatch.setattr(module, "recall_for", quiet)
    assert red(23) == "M1"
