"""
A deterministic world around a session: people, a model, tools and a clock that a seed moves, and
crashes at any record.

Safety (`Watcher`) is checked after every record, liveness once the faults stop: then everybody
answers, the model comes to an end, and everything must end too. What is simulated is behind
`Subject`: the pure core (`simulation/session.py`), unless another is given. The same seed gives the
same life.
"""

import random
from typing import NamedTuple, Protocol

from proof.checkers.promises import PromiseBroken

PEOPLE = ("alice", "bob", "carol")


class Lived(NamedTuple):
    """What a seed led to, for people."""

    seed: int
    records: int
    turns: int
    starts: int
    crashes: int
    effects: int = 0
    faults: int = 0


class Subject(Protocol):
    """
    What is simulated. Every verb may be called at any time; whatever it does must be on record when
    it returns.
    """

    def submit(self, person: str, text: str, dice: random.Random) -> None: ...

    def answer(self, person: str, dice: random.Random) -> None: ...

    def cancel(self, person: str, dice: random.Random) -> None: ...

    def step(self, dice: random.Random) -> bool:
        """
        Do one thing that is owed, or let something in flight end. False: nothing is owed and
        nothing is in flight.
        """
        ...

    def crash(self, dice: random.Random) -> None: ...

    def disturb(self, dice: random.Random) -> None:
        """Time passes, settings change, a grant is revoked, the world moves."""
        ...

    def calm(self) -> None:
        """
        Faults stop: settings are as they were, the model comes to an end, people answer what they
        are asked.
        """
        ...

    def settle_one(self, dice: random.Random) -> bool:
        """One more step of calm life; False when there is nothing left to do."""
        ...

    def check(self) -> None: ...

    def lived(self, seed: int) -> Lived: ...


def simulate(seed: int, subject: Subject | None = None, *, steps: int = 60) -> Lived:
    """
    One life. Raises PromiseBroken, or any error of the core; the seed is all that is needed to see
    it again.
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
