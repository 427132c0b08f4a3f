"""
Apply events to a session's jobs. Pure; `evolve/fold.py` routes the events here.

Every fold restores a job's authority from its own record. An authority that lost a field, or that
belongs to another session, instance or turn, is kept as lost. Such a job can be shown, stopped and
marked as ended, and nothing else.
"""

from typing import Any

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from holdfast.ids import JobId
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.authority.restore import restore
from holdfast.session.events import InputAccepted, JobCancelled, JobEnded, JobSubmitted
from holdfast.session.evolve.turn import with_turn
from holdfast.session.state import CallStatus, EndedJob, Job, SessionState, Turn
from holdfast.session.transitions import IllegalTransition


def call_key(tool: str, arguments: str) -> str:
    """Return the key that equal calls share: the tool and the action it would take."""
    return exact_key(tool, _deed(tool, arguments))


def exact_key(tool: str, arguments: str) -> str:
    """
    Return the key over every byte. Earlier versions passed such keys from a session to its
    delegate.
    """
    return blake3(f"{tool}\0{arguments}".encode("utf-8", "surrogatepass")).hexdigest(length=16)


def _deed(tool: str, arguments: str) -> str:
    """
    Remove the arguments that control how a call runs but not its action. A call in doubt stays in
    doubt for an equal call that would run in the background, or longer.

    The names are listed here and not in a constant above, so that a state cached by a version with
    other names is not read (`LAYOUT` in snapshots/session.py).
    """
    if tool != "shell":
        return arguments
    try:
        values = msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError):
        return arguments  # it was never validated, so it equals only itself
    return msgspec.json.encode(
        {
            name: value
            for name, value in values.items()
            if name not in ("background", "timeout_seconds")
        }
    ).decode()


def job_of_call(turn: Turn, event: JobSubmitted) -> Turn:
    for index, call in enumerate(turn.calls):
        if call.call != event.call:
            continue
        if call.status is not CallStatus.STARTED or call.job is not None:
            raise IllegalTransition(
                turn.phase, event, "only a call that has just started becomes a job, and only one"
            )
        if (call.tool, call.arguments, call.digest) != (event.tool, event.arguments, event.digest):
            raise IllegalTransition(turn.phase, event, "it is not the call that started")
        return replace(
            turn,
            calls=(*turn.calls[:index], replace(call, job=event.job), *turn.calls[index + 1 :]),
        )
    raise IllegalTransition(turn.phase, event, "no such call in the open batch")


def job_moved(
    state: SessionState, event: JobSubmitted | JobCancelled | JobEnded, seq: int, at: int
) -> SessionState:
    match event:
        case JobSubmitted():
            return _submitted(with_turn(state, event, job_of_call), event, seq, at)
        case JobCancelled():
            return _cancelled(state, event)
        case JobEnded():
            return _ended(state, event, seq, at)


def _submitted(state: SessionState, event: JobSubmitted, seq: int, at: int) -> SessionState:
    if event.job in state.jobs or event.job in state.ended_jobs:
        raise IllegalTransition(None, event, "it was submitted before")
    job = Job(
        job=event.job,
        turn=event.turn,
        call=event.call,
        tool=event.tool,
        arguments=event.arguments,
        contract=event.contract,
        context=_context_of(state, event),
        agent=event.agent,
        model=event.model,
        host=event.host,
        process=event.process,
        seconds_max=event.seconds_max,
        bytes_max=event.bytes_max,
        submitted_at=at,
        submitted_seq=seq,
    )
    return replace(state, jobs={**state.jobs, event.job: job})


def _context_of(state: SessionState, event: JobSubmitted) -> TurnContext | LostContext:
    """
    Restore the job's context. It must belong to this session, instance and turn, and to a job. Any
    other context allows nothing.
    """
    context = restore(event.context, session=state.session, instance=state.instance)
    if isinstance(context, LostContext):
        return context
    if context.turn != event.turn:
        return LostContext(f"the job's context belongs to turn {context.turn}", "turn")
    if context.provenance.kind != "job":
        return LostContext(
            f"the job's context is that of a {context.provenance.kind}", "provenance"
        )
    return context


def _cancelled(state: SessionState, event: JobCancelled) -> SessionState:
    job = state.jobs.get(event.job)
    if job is None or job.ended is not None or job.cancelled_by is not None:
        raise IllegalTransition(None, event, "no such job to cancel")
    return replace(state, jobs={**state.jobs, event.job: replace(job, cancelled_by=event.by)})


def _ended(state: SessionState, event: JobEnded, seq: int, at: int) -> SessionState:
    job = state.jobs.get(event.job)
    if job is None or job.ended is not None or job.turn != event.turn:
        raise IllegalTransition(None, event, "no such job to end")
    context = job.context if isinstance(job.context, TurnContext) else None
    over = EndedJob(
        job=job.job,
        turn=job.turn,
        tool=job.tool,
        outcome=event.outcome,
        code=event.code,
        audience=context.audience if context is not None else None,
        boundary=context.boundary if context is not None else None,
        submitted_at=job.submitted_at,
        ended_at=at,
        submitted_seq=job.submitted_seq,
        ended_seq=seq,
    )
    in_doubt = state.in_doubt
    if event.outcome == "in_doubt" and job.contract == "once":
        in_doubt = in_doubt.add(call_key(job.tool, job.arguments), job.call)
    jobs = (
        {**state.jobs, job.job: replace(job, ended=event)}
        if context is not None
        else _without(state, job.job)
    )
    return replace(
        state, jobs=jobs, ended_jobs=state.ended_jobs.add(job.job, over), in_doubt=in_doubt
    )


def job_reported(state: SessionState, event: InputAccepted) -> SessionState:
    """
    Remove a job whose result is in the queue: nothing more is owed. The job's id is the message's
    dedup key.
    """
    job = state.jobs.get(JobId(event.dedup or ""))
    return (
        state if job is None or job.ended is None else replace(state, jobs=_without(state, job.job))
    )


def _without(state: SessionState, gone: JobId) -> dict[JobId, Job]:
    return {name: job for name, job in state.jobs.items() if name != gone}
