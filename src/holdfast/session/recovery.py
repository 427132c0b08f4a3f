"""
Work that an earlier driver left in flight, as lettered cases. Everything else after a crash is
`react`, unchanged.

A case is a combination of findings about one turn. Exactly one case matches any combination (a test
walks them all). Work started under this driver's own epoch is not in flight from an earlier driver,
and is left alone.
"""

from enum import Enum
from typing import NamedTuple

from holdfast import limits
from holdfast.session.state import CallStatus, Phase, SessionState, Turn


class Findings(NamedTuple):
    model_out: bool  # a model call started under an older epoch
    once_started: bool  # a call that must not run twice, started under an older epoch
    again_started: bool  # a pure or idempotent call, started under an older epoch
    cancelled: bool
    crash_loop: bool  # attempts in a row that died with no finished step between them


class RecoveryAction(Enum):
    GO_ON = "go on where it stood"
    LOSE_MODEL_CALL = "repeat the model call under a new number"
    RECORD_IN_DOUBT = "say that the outcome is unknown; never run it again"
    RUN_AGAIN = "run it again: it declared that this is safe"
    END_CANCELLED = "settle what was started, then end as cancelled"
    FAIL = "end the turn as crash_loop"
    IMPOSSIBLE = "a model call and a tool are never out together"


ANY = None


class RecoveryCase(NamedTuple):
    letter: str
    pattern: tuple[bool | None, ...]
    action: RecoveryAction
    sentence: str

    def matches(self, findings: Findings) -> bool:
        return all(
            want is ANY or want == found for want, found in zip(self.pattern, findings, strict=True)
        )


CASES = (
    #          model  once   again  cancel loop
    RecoveryCase(
        "A",
        (False, False, False, False, False),
        RecoveryAction.GO_ON,
        "nothing was in flight; it goes on where it stood",
    ),
    RecoveryCase(
        "B",
        (True, False, False, False, False),
        RecoveryAction.LOSE_MODEL_CALL,
        "crash in a model call; it is repeated under a new number",
    ),
    RecoveryCase(
        "C",
        (False, True, ANY, False, False),
        RecoveryAction.RECORD_IN_DOUBT,
        "crash in a tool; whether it happened is unknown, and it is not run again",
    ),
    RecoveryCase(
        "D",
        (False, False, True, False, False),
        RecoveryAction.RUN_AGAIN,
        "crash in a tool that may be repeated; it is run again",
    ),
    RecoveryCase(
        "E",
        (False, ANY, ANY, True, ANY),
        RecoveryAction.END_CANCELLED,
        "crash after a cancel; what had started is in doubt, the rest is cancelled",
    ),
    RecoveryCase(
        "F",
        (False, ANY, ANY, False, True),
        RecoveryAction.FAIL,
        "attempts keep dying with no step finished; the turn is given up",
    ),
    RecoveryCase(
        "G",
        (True, False, False, False, True),
        RecoveryAction.FAIL,
        "model calls keep dying with no answer; the turn is given up",
    ),
    RecoveryCase(
        "X",
        (True, True, ANY, ANY, ANY),
        RecoveryAction.IMPOSSIBLE,
        "a model call and a tool are never out together",
    ),
    RecoveryCase(
        "Y",
        (True, False, True, ANY, ANY),
        RecoveryAction.IMPOSSIBLE,
        "a model call and a tool are never out together",
    ),
    RecoveryCase(
        "Z",
        (True, False, False, True, ANY),
        RecoveryAction.IMPOSSIBLE,
        "a cancel takes the model call with it",
    ),
)


def findings_of(turn: Turn, epoch: int) -> Findings:
    # A call that became a job is not in flight. The job runs on, and it is found separately.
    started = [
        call
        for call in turn.calls
        if call.status is CallStatus.STARTED and call.epoch < epoch and call.job is None
    ]
    return Findings(
        model_out=turn.model_call is not None and turn.model_call.epoch < epoch,
        once_started=any(call.contract == "once" for call in started),
        again_started=any(call.contract != "once" for call in started),
        cancelled=turn.cancelled_by is not None,
        crash_loop=turn.attempts >= limits.CRASHES_IN_A_ROW_MAX,
    )


def case_for(findings: Findings) -> RecoveryCase:
    return next(case for case in CASES if case.matches(findings))


def turns_to_recover(state: SessionState, epoch: int) -> tuple[Turn, ...]:
    """
    Return turns that an earlier attempt was driving: not parked, and not begun by this driver.
    """
    return tuple(
        turn
        for turn in state.turns.values()
        if turn.epoch < epoch and turn.phase is not Phase.PARKED
    )
