"""The step `go`: everything that a driver would do by itself, one step after the other."""

from holdfast.ids import CallId, TurnId
from holdfast.session.effects import (
    AwaitTool,
    BeginTurn,
    CallModel,
    Finish,
    LookAtCalls,
    Park,
    ReportJob,
    Resume,
    RunTools,
    SessionEffect,
)
from holdfast.session.react import react
from proof.scenarios.pure_session import BACKGROUND
from proof.scenarios.steps_background import BackgroundSteps
from proof.scenarios.steps_turns import TurnSteps


class DriverSteps(TurnSteps, BackgroundSteps):
    def step_go(self) -> None:
        """
        Do owed work until only a model or a person can continue, or nothing is owed. Tools return
        `done`.
        """
        for _ in range(100):
            before = len(self.pure.records)
            if not any(self._perform(effect) for effect in react(self.pure.state)):
                return
            if len(self.pure.records) == before:
                self._said.append("owed, but nothing moves")
                return

    def _perform(self, effect: SessionEffect) -> bool:
        match effect:
            case BeginTurn():
                self.step_begin()
            case Resume(turn=turn):
                self.step_resume(turn)
            case CallModel(turn=turn):
                self.step_think(turn)
            case LookAtCalls(turn=turn):
                self.step_decide(turn)
            case RunTools(turn=turn, calls=calls):
                for call in calls:
                    (self.step_start if self._goes_on_beside(turn, call) else self.step_run)(
                        self._words.name(call)
                    )
            case AwaitTool(call=call, epoch=epoch) if epoch < self.pure.epoch:
                self.step_run(self._words.name(call))
            case Park(turn=turn):
                self.step_park(turn)
            case Finish(turn=turn):
                self.step_end(turn)
            case ReportJob(job=job):
                self.step_report_job(job)
            case _:
                return False
        return True

    def _goes_on_beside(self, turn: TurnId, call: CallId) -> bool:
        """Return whether the turn only has to start this call: a job or a delegate."""
        made = self.pure.state.open_call(turn, call)
        tool = self.pure.tools.get(made.tool) if made is not None else None
        return tool is not None and (tool.kind == "delegate" or tool.name in BACKGROUND)
