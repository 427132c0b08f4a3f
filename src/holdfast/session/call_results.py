"""
Give calls the one result that is already decided, with the same text at once or after a crash.

A decision that takes several records (a denial and its result, a supersede and all its results) is
durable with the first of them. If a crash cuts the rest off, `react` owes a `Finish`, and these
functions make the records that follow.
"""

from holdfast.ids import CallId, InputId, TurnId
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalClosed,
    CallFinished,
    CallOutcome,
    ClosedAs,
    PromptKind,
    SessionEvent,
    TurnEnded,
)
from holdfast.session.state import Call, CallStatus, Turn

_WHEN_CLOSED: dict[str, tuple[CallOutcome, str]] = {
    "expired": ("denied", "Not run: nobody answered in time."),
    "superseded": ("superseded", "Not run: the person sent another message instead of answering."),
    "cancelled": ("cancelled", "Not run: it was cancelled."),
    "voided": ("voided", "Not run: what would run has changed, or may no longer run."),
}


def _ended(text: str) -> str:
    """Return a sentence with one mark at its end. A person's reason may bring its own."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def result_of_answer(call: Call, kind: PromptKind, answer: ApprovalAnswered) -> CallFinished | None:
    """
    Return the result that an answer decides. A denial and a question's answer are results at once;
    an approval gives a result only after the call ran.
    """
    why = f": {answer.reason}" if answer.reason else ""
    if call.is_asking:
        return None  # the open call gives it
    if answer.option == "deny" and call.run:
        return unfinished(answer.turn, call, f"{answer.by} declined to answer{why}", "declined")
    if answer.option == "deny":
        return CallFinished(
            turn=answer.turn,
            call=call.call,
            outcome="denied",
            text=_ended(f"Not run: {answer.by} denied it{why}"),
            code="denied",
        )
    if kind == "question" and not call.run:
        text = answer.reason if answer.option == "answer" else answer.option
        return CallFinished(
            turn=answer.turn, call=call.call, outcome="ok", text=f"{answer.by} answered: {text}"
        )
    return None


def unfinished(turn: TurnId, call: Call, why: str, code: str) -> CallFinished:
    """
    Return the result of a call whose server wants a form filled in and will not get it. It started,
    so that its outcome is the server's own word: it did not finish (T6).
    """
    text = (
        f"Not finished: the server of {call.tool} asked for input, and {why}. Nothing more was sent"
        " to it; it may have done a part before it asked."
    )
    return CallFinished(turn=turn, call=call.call, outcome="error", text=text, code=code)


def result_of_closing(turn: Turn, call: Call, closed_as: str) -> CallFinished:
    outcome, text = _WHEN_CLOSED[closed_as]
    if call.run:
        why = text.removeprefix("Not run: ").removesuffix(".")
        return unfinished(turn.id, call, why, closed_as)
    return CallFinished(turn=turn.id, call=call.call, outcome=outcome, text=text, code=closed_as)


def result_of_job(turn: Turn, call: Call) -> CallFinished:
    """
    Return the result of a call that goes on in the background. It says only that the job started.
    """
    text = (
        f"Started in the background as job {call.job}. Its result comes as a message of its own;"
        " job_status tells how it is doing."
    )
    return CallFinished(turn=turn.id, call=call.call, outcome="ok", text=with_edit(call, text))


def with_edit(call: Call, text: str) -> str:
    """Report a person's edit of the arguments to the model."""
    if call.edited_by is None:
        return text
    return f"({call.edited_by} changed the arguments to {call.arguments} before approving.)\n{text}"


def owed_result(turn: Turn, call: Call) -> CallFinished | None:
    """Return the missing result of a call whose prompt is over or that became a job."""
    if call.job is not None and call.owes_result:
        return result_of_job(turn, call)
    approval = call.approval
    if approval is None or not call.owes_result:
        return None
    if approval.closed_as is not None:
        return result_of_closing(turn, call, approval.closed_as)
    return (
        result_of_answer(call, approval.asked.kind, approval.answer)
        if approval.answer is not None
        else None
    )


def question_closed(
    turn: Turn, call: Call, reason: str, closed_as: ClosedAs = "cancelled"
) -> list[SessionEvent]:
    """Close the question that a call's server asks inside of the open call, if it asks one."""
    if call.approval is None or not call.is_asking:
        return []
    approval = call.approval.asked.approval
    return [
        ApprovalClosed(
            approval=approval, turn=turn.id, call=call.call, closed_as=closed_as, reason=reason
        )
    ]


def lost_call(turn: Turn, call: Call) -> list[SessionEvent]:
    """Return the events of a started call that nobody waits for any more: it is in doubt."""
    closed = question_closed(turn, call, "the process that made the call is gone")
    return [*closed, in_doubt(turn, call)]


def in_doubt(turn: Turn, call: Call) -> CallFinished:
    text = (
        f"In doubt: {call.tool} was started and its outcome is unknown. It may or may not have"
        " happened; check before trying again."
    )
    return CallFinished(
        turn=turn.id, call=call.call, outcome="in_doubt", text=text, code="in_doubt"
    )


def superseding(turn: Turn, by: InputId, *, ended: CallId | None = None) -> list[SessionEvent]:
    """
    Give every call that has not started a synthetic result, answered calls too: the person has
    moved on.

    Delegates at work are stopped first and end with the work they did. The turn ends after them.
    `ended` is a call that just finished.
    """
    events: list[SessionEvent] = []
    for call in turn.calls:
        if call.status in (CallStatus.FINISHED, CallStatus.DELEGATED):
            continue
        if (owed := owed_result(turn, call)) is not None:
            events.append(owed)
            continue
        if call.status is CallStatus.STARTED:
            # Only a turn whose external loop has left has one, for a nested agent.
            events.extend(lost_call(turn, call))
            continue
        if call.approval is not None:
            events.append(
                ApprovalClosed(
                    approval=call.approval.asked.approval,
                    turn=turn.id,
                    call=call.call,
                    closed_as="superseded",
                    reason=f"another message ({by}) was sent instead",
                )
            )
        events.append(result_of_closing(turn, call, "superseded"))
    if any(call.status is CallStatus.DELEGATED and call.call != ended for call in turn.calls):
        return events
    events.append(
        TurnEnded(
            turn=turn.id,
            outcome="superseded",
            code="superseded",
            message="another message was sent instead",
            by_input=by,
        )
    )
    return events
