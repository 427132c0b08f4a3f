"""
Seeded runs: safety after every record, liveness once the faults stop. A red seed is repeated with
`make simulate ARGS="--seed N"`.
"""

import pytest
from proof.checkers.promises import Watcher
from proof.checkers.states import PromiseBroken
from proof.simulation.command import main
from proof.simulation.session import PureSubject
from proof.simulation.simulator import simulate

SEEDS_PER_TEST = 25


@pytest.mark.parametrize("first", range(0, 250, SEEDS_PER_TEST))
def test_every_promise_holds_in_every_simulated_run(first: int) -> None:
    """T, A, P over a few hundred runs with crashes at any record."""
    runs = [simulate(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(run.turns for run in runs) > SEEDS_PER_TEST
    assert sum(run.starts for run in runs) > 0
    assert sum(run.crashes for run in runs) > 0


def test_the_same_seed_gives_the_same_run() -> None:
    """Byte for byte."""
    one, other = PureSubject(), PureSubject()
    assert simulate(7, one) == simulate(7, other)
    assert one.pure.records == other.pure.records


def test_a_broken_promise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher is not a bystander: a start that nothing allowed, and a seed that prints itself."""
    monkeypatch.setattr(Watcher, "_consented", _never)
    with pytest.raises(PromiseBroken, match="T1: never"):
        main(["--seed", "0", "--count", "50"])


def _never(*_: object) -> None:
    raise PromiseBroken("T1: never")


def test_the_command_prints_what_it_lived_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--steps", "20"]) == 0
    home, session, total = capsys.readouterr().out.splitlines()
    assert (
        home.startswith("seed 3 (home): "),
        session.startswith("seed 3 (session): "),
        "2 runs from seed 3" in total,
    ) == (True, True, True)
