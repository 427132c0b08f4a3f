"""
A scenario while it runs: its session and its output so far. The steps are in the `steps_` files and
in `world.py`.
"""

from holdfast.ids import TurnId
from holdfast.session.commands import SessionCommand
from holdfast.session.decide.commit import Committed
from proof.scenarios.pure_session import PureSession
from proof.scenarios.words import StoryWords


class Telling:
    def __init__(self) -> None:
        self.pure = PureSession()
        self._said: list[str] = []
        # Short names in order of appearance make scenarios readable: c1 for a call, a1 for a
        # prompt.
        self._names: dict[str, str] = {}
        self._words = StoryWords(self._names)

    def _do(self, *commands: SessionCommand) -> Committed:
        before = len(self.pure.records)
        committed = self.pure.do(*commands)
        self._say_events(before)
        for decided in committed.decided:
            if decided.refusal is not None:
                self._said.append(f"refused: {decided.refusal.code}")
        return committed

    def _say_events(self, before: int) -> None:
        for seq, (event, state) in enumerate(self.pure.states(), 1):
            if seq > before:
                self._said.append(self._words.line(seq, event, state))

    @property
    def _running(self) -> TurnId:
        return self.pure.state.running or TurnId("t?")

    def _turn_of(self, call: str) -> TurnId:
        real = self._words.real(call)
        return next(
            (
                turn.id
                for turn in self.pure.state.turns.values()
                if any(each.call == real for each in turn.calls)
            ),
            TurnId("t?"),
        )
