"""
The tools by which a model manages its jobs. A job of another session, audience or boundary is
reported as missing, in the same words as a job that never existed.

The scene lists the jobs, from the journal. `job_cancel` is only bound here: it writes into the
session, so the runtime runs it.
"""

import contextlib

from holdfast import limits
from holdfast.adapters.tools.builtin.base import Builtin, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.jobs.files import unverified_end
from holdfast.adapters.tools.output import CapturedOutput
from holdfast.adapters.tools.python.arguments import REQUIRED, ArgumentTypes
from holdfast.errors import InvariantBroken
from holdfast.ports.tools import CannotBind, JobFacts, Scene
from holdfast.session.authority.plan import Binding
from holdfast.session.view.safe_text import framed, render

_UNVERIFIED = "Output so far, which is not verified before the job ends:\n"


def job_status() -> Builtin:
    types = ArgumentTypes("job_status", {"job": (str, REQUIRED)})
    definition = definition_of(
        "job_status",
        "Tell how a background job of this conversation is doing, and what it said last.",
        types,
        contract="pure",
        mode="auto",
        kind="plain",
        audience="team",
    )
    return Builtin(
        definition,
        types,
        check=_any,
        bind=lambda values, scene: _bind("look at job", values, scene),
        work=_status,
    )


def job_cancel() -> Builtin:
    types = ArgumentTypes("job_cancel", {"job": (str, REQUIRED)})
    definition = definition_of(
        "job_cancel",
        "Stop a background job of this conversation. What it had done by then stays done.",
        types,
        contract="idempotent",
        mode="ask",
        kind="job_cancel",
        audience="team",
    )
    return Builtin(
        definition,
        types,
        check=_any,
        bind=lambda values, scene: _bind("stop job", values, scene),
        work=_never,
    )


def _any(values: Values) -> None:
    """Accept any text. `_found` refuses unknown jobs."""
    del values


def _found(values: Values, scene: Scene) -> JobFacts:
    job = next((each for each in scene.jobs if each.job == values["job"]), None)
    if job is None:
        raise CannotBind(f"no job {values['job']!r} here")
    return job


def _bind(doing: str, values: Values, scene: Scene) -> Binding:
    """
    Bind a display that does not depend on the job's state, because the display is part of the
    binding.
    """
    job = _found(values, scene)
    return Binding(display=display_of([doing, framed(render(f"{job.job}  {job.tool}").text)]))


def _status(values: Values, binding: Binding, scene: Scene) -> str:
    del binding
    job = _found(values, scene)
    if job.ended_at is not None:
        return (
            f"{job.job} ({job.tool}) is over: {job.outcome}. Its result has come, or comes, as a"
            " message of its own."
        )
    asked = (
        f" {job.cancelled_by} asked for it to be stopped." if job.cancelled_by is not None else ""
    )
    return f"{job.job} ({job.tool}) runs.{asked}\n{_said_last(job, scene)}"


def _said_last(job: JobFacts, scene: Scene) -> str:
    """
    Return the end of the output so far. It is empty for a task of the program, a job without
    output, or a job that ended and was cleared.
    """
    output = CapturedOutput(secrets=scene.secrets, on_output=lambda _: None)
    if scene.home is not None and job.process is not None:
        with contextlib.suppress(OSError):
            output.feed(
                unverified_end(
                    scene.home,
                    job.job,
                    job.process,
                    limits.TOOL_OUTPUT_VIEW_BYTES - len(_UNVERIFIED),
                )
            )
    output.close()
    said = output.view()[0]
    return f"{_UNVERIFIED}{said}" if said else ""


def _never(values: Values, binding: Binding, scene: Scene) -> str:
    raise InvariantBroken(
        f"job_cancel of {scene.call} was run as a tool instead of by the runtime "
        f"({binding.display!r}, {len(values)} values)"
    )
