"""
Decide a failed model call: whether it is tried again, and when.

A provider that is away does not fail a turn. The turn waits, with a doubled wait after each failure
or as long as the provider asks, until `limits.model_retry_for` is over. The next try is journalled,
so that a driver that takes over waits for the same moment. A failure that waiting cannot mend ends
the turn at once.

The length of each wait is journalled too, because a clock may be set back. It then neither makes a
wait longer nor moves the bound: the decided waits count against the bound as much as the clock.
"""

from typing import Literal, NamedTuple

from holdfast import limits
from holdfast.session.commands import TakeFailure
from holdfast.session.decide.decision import Decided
from holdfast.session.decide.turns import drop_late_answer, failed_end
from holdfast.session.events import ModelCallFailed
from holdfast.session.state import SessionState, Turn
from holdfast.session.view.messages import Usage

# Kinds that say something about the provider, and nothing about this request. Waiting may help.
AWAY = frozenset({"server", "rate_limit", "timeout", "unavailable"})

_HINTS = {
    "auth": "check the key of the provider",
    "overflow": "the conversation is too long for this model: start another session, or use a "
    "model with a larger window",
    "refused": "change the message, or use another model",
}


class NextTry(NamedTuple):
    """`at` is in Unix milliseconds; None means that the call is given up."""

    at: int | None
    hint: str | None = None  # why it is given up, if the bound on waiting is the reason


def take_failure(
    state: SessionState, command: TakeFailure, now: int
) -> Decided[Literal["dropped"] | None]:
    if dropped := drop_late_answer(state, command.turn, command.number, Usage()):
        return dropped
    turn = state.turns[command.turn]
    # A clock that was days ahead and is right again left a first failure that is still to come.
    since = min(turn.failing_since or now, now)
    tried = next_try(turn, command, since=since, now=now)
    hint = command.hint or tried.hint or _HINTS.get(command.kind)
    failed = ModelCallFailed(
        turn=turn.id,
        number=command.number,
        kind=command.kind,
        message=command.message,
        final=tried.at is None,
        line=command.line,
        hint=hint if tried.at is None else None,
        since=since,
        retry_at=tried.at,
        wait_ms=None if tried.at is None else tried.at - now,
    )
    if tried.at is not None:
        return Decided((failed,))
    again = hint or "send the message again, or use another model"
    return Decided((failed, failed_end(turn, command.kind, command.message, again)))


def next_try(turn: Turn, command: TakeFailure, *, since: int, now: int) -> NextTry:
    """
    Decide when the call is tried again.

    There are four cases:

    1. A view that is too long is tried again once, at once: it is summarised first.
    2. A failure that waiting cannot mend is not tried again.
    3. An answer that can't be read is tried a few times, and so is everything in a home that does
       not wait.
    4. A provider that is away is tried until the bound. A try that would come after it is not made.
    """
    tries = turn.model_failures + 1
    if command.kind == "overflow":
        return NextTry(now if turn.overflows == 0 and not command.final else None)
    if command.final:
        return NextTry(None)
    doubled_seconds = _doubled_seconds(tries, command.first_wait_seconds)
    if command.kind not in AWAY or command.first_wait_seconds == 0:
        more = tries < limits.MODEL_TRIES_MAX
        return NextTry(now + round(doubled_seconds * 1000) if more else None)
    wait_seconds = max(doubled_seconds, command.retry_after_seconds or 0.0)
    wait_ms = round(wait_seconds * 1000)
    # The session's time stands still while the clock is behind it. The waits pass all the same.
    passed_ms = max(now - since, turn.waited_ms)
    if passed_ms + wait_ms > round(command.retry_for_seconds * 1000):
        return NextTry(None, _gave_up(command, wait_seconds))
    return NextTry(now + wait_ms)


def _doubled_seconds(tries: int, first_wait_seconds: float) -> float:
    # The exponent is bounded too: a float has no room for the thousandth doubling.
    doubled = first_wait_seconds * 2.0 ** min(tries - 1, 32)
    return min(doubled, limits.MODEL_RETRY_WAIT_SECONDS_MAX)


def _gave_up(command: TakeFailure, wait_seconds: float) -> str:
    bound = f"limits.model_retry_for, {command.retry_for_seconds:g} s"
    if wait_seconds > command.retry_for_seconds:
        return (
            f"the provider asks to wait {wait_seconds:g} s, which is longer than {bound}; send the "
            "message again then"
        )
    return f"it was tried again until {bound}; send the message again when the provider is back"


def retry_wait_seconds(turn: Turn, *, now: int, retry_for_seconds: float) -> float:
    """
    Return how long to wait before the next try. A clock that was set back makes no wait longer than
    it was decided. An operator who lowers the bound shortens a wait that began before.
    """
    left_ms = turn.retry_at - now if turn.retry_at else 0
    return min(max(left_ms, 0) / 1000, turn.retry_wait_ms / 1000, retry_for_seconds)
