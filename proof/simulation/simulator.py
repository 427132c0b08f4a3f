"""
A deterministic world around a session: a seed moves people, a model, tools and a clock, and causes
crashes at any record.

Safety (`Watcher`) is checked after every record, liveness once the faults stop. Then every person
answers, the model ends, and every turn must end too. `Subject` hides the simulated thing: the pure
core (`simulation/session.py`) by default. The same seed gives the same run.
"""

import random
from typing import NamedTuple, Protocol

from proof.checkers.states import PromiseBroken

PEOPLE = ("alice", "bob", "carol")


class Lived(NamedTuple):
    """The result of a seed, for people."""

    seed: int
    records: int
    turns: int
    starts: int
    crashes: int
    effects: int = 0
    faults: int = 0


class Subject(Protocol):
    """
    The simulated thing. Every method may be called at any time, and its effects must be on record
    when it returns.
    """

    def submit(self, person: str, text: str, dice: random.Random) -> None: ...

    def answer(self, person: str, dice: random.Random) -> None: ...

    def cancel(self, person: str, dice: random.Random) -> None: ...

    def step(self, dice: random.Random) -> bool:
        """
        Do one owed thing, or end something in flight. Return False if nothing is owed or in flight.
        """
        ...

    def crash(self, dice: random.Random) -> None: ...

    def disturb(self, dice: random.Random) -> None:
        """Time passes, settings change, a grant is revoked, the world changes."""
        ...

    def calm(self) -> None:
        """Stop the faults: settings are restored, the model ends, people answer prompts."""
        ...

    def settle_one(self, dice: random.Random) -> bool:
        """Make one more step without faults. Return False if there is nothing left to do."""
        ...

    def check(self) -> None: ...

    def lived(self, seed: int) -> Lived: ...


def simulate(seed: int, subject: Subject | None = None, *, steps: int = 60) -> Lived:
    """
    Run one simulation. Raise PromiseBroken, or any error of the core. The seed is enough to repeat
    it.
    """
    from proof.simulation.session import PureSubject

    dice = random.Random(seed)
    subject = subject or PureSubject()
    for _ in range(steps):
        _something_happens(subject, dice)
        subject.check()
    subject.calm()
    for _ in range(2_000):
        busy = subject.settle_one(dice)
        subject.check()
        if not busy:
            return subject.lived(seed)
    raise PromiseBroken(
        "T7: faults have stopped, everybody has answered, and it still does not end"
    )


def _something_happens(subject: Subject, dice: random.Random) -> None:
    roll = dice.random()
    if roll < 0.13:
        subject.submit(
            dice.choice(PEOPLE), dice.choice(("do it", "do more", "yes", "stop that")), dice
        )
    elif roll < 0.27:
        subject.answer(dice.choice((*PEOPLE, "mallory")), dice)
    elif roll < 0.30:
        subject.cancel(dice.choice(PEOPLE), dice)
    elif roll < 0.37:
        subject.crash(dice)
    elif roll < 0.43:
        subject.disturb(dice)
    else:
        subject.step(dice)
