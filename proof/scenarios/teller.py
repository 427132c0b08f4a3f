"""
Run a session's scenario: text in; events, phase and owed work out.

A file consists of blocks: steps, a line `----`, and the expected output up to an empty line. Lines
with `#` before the first block name the promise. `retold` replays a file through the real decide,
evolve, react and codec and writes it again. A test compares the two, and `pytest --rewrite` makes
the diff to review.

>>> print(retold('submit "hello"\\nbegin\\n----\\n'), end="")
submit "hello"
begin
----
2 InputAccepted i1 alice                               phase=-               owes=BeginTurn
3 TurnStarted t1                                       phase=ready           owes=CallModel t1

Steps are the methods of `Teller` named `step_*`, grouped by topic. Words after the step are its
arguments, and `key=value` are its options.
"""

import shlex
from collections.abc import Callable, Iterable

from proof.scenarios.steps_driving import DriverSteps
from proof.scenarios.world import WorldSteps

SEPARATOR = "----"


def retold(text: str) -> str:
    """Return the scenario with its real output. It equals `text` if nothing changed."""
    teller = Teller()
    out: list[str] = []
    for block in text.rstrip("\n").split("\n\n"):
        steps, separator, _ = block.partition(f"\n{SEPARATOR}")
        if separator:
            out.append("\n".join([steps, SEPARATOR, *teller.tell(steps.split("\n"))]))
        else:
            out.append(block)
    return "\n\n".join(out) + "\n"


class Teller(DriverSteps, WorldSteps):
    """One scenario while it runs."""

    def tell(self, steps: Iterable[str]) -> list[str]:
        self._said = []
        for step in steps:
            if step.strip() and not step.startswith("#"):
                self._step(shlex.split(step))
        return self._said

    def _step(self, words: list[str]) -> None:
        verb, *rest = words
        options = dict(
            word.split("=", 1) for word in rest if "=" in word and " " not in word.split("=", 1)[0]
        )
        plain = [word for word in rest if "=" not in word or " " in word.split("=", 1)[0]]
        method: Callable[..., None] = getattr(self, f"step_{verb.replace('-', '_')}")
        method(*plain, **options)
