"""
A random model: it says little, often requests tools, sometimes nonsense ones, and fails in every
possible way. Once faults have stopped, it ends its turns.

It also checks its requests. Every request keeps T5, and canaries of memory in a request are
reported to the home with the request's turn.
"""

import asyncio
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime

from holdfast.errors import Unusable
from holdfast.ids import SessionId, TurnId
from holdfast.ports.model import Model, ModelFailed, ModelRequest, OnText
from holdfast.session.view.messages import FailureKind, ModelAnswer, ProposedCall, Usage
from proof.checkers.states import check_view
from proof.simulation.kinds import BELOW, ONLY_BELOW, Has
from proof.simulation.world.memory import CANARY
from proof.simulation.world.ports import START_MS, Chaos

_FAILURES: tuple[FailureKind, ...] = ("server", "rate_limit", "timeout", "overflow")
_PLAIN = ("act", "act", "tidy", "look", "charge", "ask_person", "nosuch")
_MORE = {
    Has.DELEGATES: ("delegate_helper", "delegate_helper", "delegate_helper"),
    Has.REMINDERS: ("set_reminder", "set_reminder", "list_reminders", "cancel_reminder"),
    Has.MEMORY: ("remember", "recall", "recall"),
    Has.JOBS: ("dig", "dig", "dig", "brew", "brew", "job_status"),
}
_BELOW = (ONLY_BELOW, ONLY_BELOW, ONLY_BELOW, "delegate_scout")
_DRIVES = re.compile(r"(?P<session>\S+) model (?P<turn>\S+) -\Z")

Shown = Callable[[SessionId | None, TurnId | None, frozenset[str]], None]
"""
Called with the canaries in a request and its turn, or None for a summary that somebody requested.
"""


class SimulatedModel:
    name = "dice"
    context_tokens = 4_000

    def __init__(self, chaos: Chaos, kind: frozenset[Has], shown: Shown) -> None:
        self._chaos = chaos
        self._names = _PLAIN + tuple(name for each in Has if each in kind for name in _MORE[each])
        self._shown = shown

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        check_view(request.messages)  # T5, in every request
        self._look_for_canaries(request)
        chaos, dice = self._chaos, self._chaos.dice
        await asyncio.sleep(dice.uniform(0, 1))
        if chaos.strikes(0.03):
            await asyncio.sleep(10_000)  # never returns: the runtime's own time limit ends it
        if chaos.strikes(0.08):
            raise ModelFailed(dice.choice(_FAILURES), "dice", may_pass=dice.random() < 0.8)
        usage = Usage(input_tokens=100, output_tokens=10)
        if not request.tools:
            return ModelAnswer(text="they talked", usage=usage)
        on_text("so")
        await chaos.dawdle(3, 0.3)
        if chaos.is_over or dice.random() < 0.4:
            return ModelAnswer(text="so be it", usage=usage)
        names = self._names + _BELOW if request.instructions == BELOW else self._names
        return ModelAnswer(
            text="",
            calls=tuple(_call(dice, names) for _ in range(dice.choice((1, 1, 2, 3)))),
            usage=usage,
        )

    def _look_for_canaries(self, request: ModelRequest) -> None:
        """The driver's task knows the request's turn. A request without one belongs to nobody."""
        found = frozenset(CANARY.findall("\n".join(message.text for message in request.messages)))
        if found:
            task = asyncio.current_task()
            place = _DRIVES.match(task.get_name()) if task is not None else None
            self._shown(
                SessionId(place["session"]) if place else None,
                TurnId(place["turn"]) if place else None,
                found,
            )


def _call(dice: random.Random, names: tuple[str, ...]) -> ProposedCall:
    name = dice.choice(names)
    match name:
        case "ask_person":
            return ProposedCall(name, '{"question":"which?","choices":["left","right"]}')
        case "delegate_helper" | "delegate_scout":
            return ProposedCall(
                name,
                dice.choice(
                    ('{"task":"see to it"}',) * 3 + ('{"task":"see to it","audience":"public"}',)
                ),
            )
        case "set_reminder":
            when = f'"at":"{soon(dice.uniform(1, 25))}"' if dice.random() < 0.7 else '"every":"1m"'
            return ProposedCall(
                name,
                f'{{"text":"again '
                f'{dice.randrange(10**9)}",{when},"may_prompt":{dice.choice(("true", "false"))}}}',
            )
        case "remember":
            return ProposedCall(name, f'{{"text":"the service said {dice.randrange(10**9)}"}}')
        case "recall":
            return ProposedCall(name, '{"query":"service"}')
        case "list_reminders":
            return ProposedCall(name, "{}")
        case "cancel_reminder":
            return ProposedCall(name, '{"reminder":"r-nosuch"}')
        case "job_status":
            return ProposedCall(name, '{"job":"j-nosuch"}')
        case _:
            return ProposedCall(
                name, dice.choice(('{"what":"a"}',) * 5 + ('{"what":"b"}', '{"what":1}', "{broken"))
            )


def soon(seconds: float) -> str:
    """Return that far from now by the true time, whatever a process's clock shows."""
    moment = START_MS / 1000 + asyncio.get_running_loop().time() + seconds
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class OneModel:
    def __init__(self, model: Model) -> None:
        self._model = model

    def resolve(self, name: str) -> Model:
        if name != self._model.name:
            raise Unusable(f"no model {name!r}", code="unknown_model")
        return self._model
