"""
A call that runs in the background: prepared, submitted durably with the turn's narrowed context,
and only then started. And the tool that stops a job.

If the process dies before the commit, the launcher sees its pipe close and nothing ran. If it dies
after the commit, the job runs on or is found gone, and is never started again. The job is started
from its record after the commit, read back: a job whose record cannot be restored never starts.
"""

import msgspec

from holdfast import limits
from holdfast.errors import Refused
from holdfast.ids import CallId, JobId, TurnId, job_id
from holdfast.ports.journal_store import Check
from holdfast.ports.tools import (
    CannotBind,
    LaunchesJobs,
    OnOutput,
    Prepared,
    PreparedJob,
    ProcessFacts,
    ServerTask,
    ToolReturned,
)
from holdfast.runtime.cancellation import finish
from holdfast.runtime.context import World
from holdfast.runtime.drive.bound_call import scene_of, tool_for
from holdfast.runtime.drive.drive import Drive
from holdfast.runtime.jobs.watcher import hosted_here
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.policy import BoundCall
from holdfast.session.commands import CancelJob, ContinueAsJob, EndJob, JobPlan, StartTool
from holdfast.session.events import JobHost
from holdfast.session.state import Call, Job, Turn

CANCELS_JOBS = "job_cancel"
"""The kind of the tool that only the runtime can run: it writes into the session."""


async def run_as_job(drive: Drive, turn: Turn, call: Call, bound: BoundCall) -> None:
    world, ledger = drive.world, drive.ledger
    job = job_id(ledger.instance, call.call)
    prepared: PreparedJob | Prepared | None = None
    try:
        prepared, plan = await _prepared(drive, turn, call, bound, job)
    except CannotBind as exc:
        plan, bound = None, BoundCall(call=call.call, problem=(exc.code, str(exc)))
    submitted: Job | None = None
    try:
        submitted = await _submit(drive, turn, bound, plan, job)
    finally:
        if submitted is None and prepared is not None:
            await finish(prepared.abandon())
    if submitted is not None and prepared is not None:
        await finish(_let_go(world, ledger, submitted, prepared))


async def _prepared(
    drive: Drive, turn: Turn, call: Call, bound: BoundCall, job: JobId
) -> tuple[PreparedJob | Prepared, JobPlan]:
    world, ledger = drive.world, drive.ledger
    tool = tool_for(world, turn, call.tool)
    if tool is None or bound.arguments is None or bound.binding is None or world.jobs is None:
        raise CannotBind("jobs can't be run here")
    policy = world.policy()
    if (running := len(await world.jobs.present()) + hosted_here()) >= policy.home_jobs_max:
        text = (
            f"{running} of at most {policy.home_jobs_max} background jobs of this home run already;"
            " wait for one to end"
        )
        raise CannotBind(text, code="too_many_jobs")
    arguments, scene = bound.arguments.encode(), scene_of(world, ledger.state, turn, call.call)
    if not isinstance(tool, LaunchesJobs):
        task = await tool.prepare(arguments, bound.binding, scene, idempotency_key=call.call)
        return task, _plan(world, "task", world.jobs.own_process(), policy.job_seconds)
    key = world.jobs.key_of(ledger.instance, job)
    if key is None:
        raise CannotBind(
            "a job's report could not be verified: the home's key is not there", code="no_key"
        )
    launched = await tool.prepare_job(
        arguments, bound.binding, scene, job=job, key=key, seconds=policy.job_seconds
    )
    return launched, _plan(world, "process", launched.process, launched.seconds_max)


def _plan(world: World, host: JobHost, process: ProcessFacts, seconds: float) -> JobPlan:
    return JobPlan(
        host=host,
        process=world.process_facts(process),
        seconds_max=seconds,
        bytes_max=limits.JOB_OUTPUT_BYTES_MAX,
    )


async def _submit(
    drive: Drive, turn: Turn, bound: BoundCall, plan: JobPlan | None, job: JobId
) -> Job | None:
    """
    Commit point: start, job, the call's result and the next model call, in one commit. Return None
    if the call may not start after all.

    Crash before it: nothing ran, and the call is asked about or started anew. Crash after it,
    before the job is started: the job is found gone, and is in doubt.
    """
    command = StartTool(
        turn=turn.id,
        bound=bound,
        policy=drive.world.policy(),
        grants=await drive.grants_of(turn),
        epoch=drive.epoch,
        process=plan.process if plan is not None and plan.host == "process" else None,
        job=plan,
    )
    outcome = await drive.ledger.drive(command, check=Check.FENCE)
    if outcome.of(command) is None:
        return None
    submitted = drive.ledger.state.jobs.get(job)
    return (
        submitted if submitted is not None and isinstance(submitted.context, TurnContext) else None
    )


async def _let_go(world: World, ledger: Ledger, job: Job, prepared: PreparedJob | Prepared) -> None:
    tell = world.on_job
    if job.host == "task":
        if tell is not None and not hasattr(prepared, "let_go"):
            tell(ledger.session, job.job, prepared)
        return
    try:
        await prepared.let_go()  # type: ignore[union-attr]  # what `host` says
    except CannotBind as exc:
        await ledger.commit(
            EndJob(job=job.job, outcome="error", text=f"nothing was run: {exc}", code=exc.code)
        )
    else:
        if tell is not None:
            tell(ledger.session, job.job, None)


async def continue_as_job(
    drive: Drive, turn: TurnId, call: CallId, run: int, task: ServerTask
) -> None:
    """
    Commit point: the server's id of the task is durable before anybody asks for it. Crash before
    it: the call is in doubt. Crash after it: the task is asked for by its id, and never started
    again.
    """
    ledger, world = drive.ledger, drive.world
    plan = JobPlan(
        host="server",
        process=msgspec.to_builtins(task),
        seconds_max=world.policy().job_seconds,
        bytes_max=limits.JOB_OUTPUT_BYTES_MAX,
    )
    command = ContinueAsJob(turn=turn, call=call, run=run, plan=plan)
    produced = ledger.attempt.produced("tool_outcome", msgspec.json.encode(task))
    await ledger.drive(command, check=Check.FENCE, keeping=[produced])
    job = job_id(ledger.instance, call)
    if world.on_job is not None and job in ledger.state.jobs:
        world.on_job(ledger.session, job, None)


# --- the tool that stops a job


class _CancelArguments(msgspec.Struct):
    job: JobId


def prepared_cancel(world: World, ledger: Ledger, turn: Turn, arguments: str) -> Prepared:
    return _PreparedCancel(
        world, ledger, turn, msgspec.json.decode(arguments, type=_CancelArguments).job
    )


class _PreparedCancel:
    process: ProcessFacts | None = None

    def __init__(self, world: World, ledger: Ledger, turn: Turn, job: JobId) -> None:
        self._world, self._ledger, self._turn, self._job = world, ledger, turn, job

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        del timeout_seconds, on_output
        context = self._turn.context
        if not isinstance(context, TurnContext):
            return ToolReturned(outcome="error", text=f"no job {self._job}")
        by = context.requester or "nobody"
        command = CancelJob(
            job=self._job, by=by, audience=context.audience, boundary=context.boundary
        )
        try:
            return ToolReturned(
                outcome="ok", text=await cancel_and_tell(self._world, self._ledger, command)
            )
        except Refused as refused:
            return ToolReturned(outcome="error", text=refused.message)

    async def abandon(self) -> None:
        """Nothing is prepared, so there is nothing to give up."""


async def cancel_and_tell(world: World, ledger: Ledger, command: CancelJob) -> str:
    """
    Record the cancel request durably before the job is asked to end. The same commit decides
    whether the caller may see the job; otherwise it raises `Refused`.
    """
    outcome = (await ledger.commit(command)).of(command)
    if outcome == "over":
        return f"Job {command.job} is over already."
    job = ledger.state.jobs.get(command.job)
    if job is not None and job.ended is None and job.host == "process" and world.jobs is not None:
        await world.jobs.ask_to_end(ProcessFacts(**job.process))
    return f"Job {command.job} is asked to end. How it ended comes as a message of its own."
