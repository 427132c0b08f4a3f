"""A started call goes on in the background, and its end is reported."""

from typing import Any, Literal

import msgspec

from holdfast.ids import (
    CallId,
    JobId,
    TurnId,
)
from holdfast.session.events.base import Event

JobOutcome = Literal["ok", "error", "timed_out", "in_doubt"]
JobHost = Literal["process", "task", "server"]


class JobSubmitted(Event, frozen=True):
    """
    A started call goes on in the background. Durable, with `tool_started` and the call's result,
    before the job is let go.

    `context` is the turn's own, narrowed, and restored on every fold: without it nothing starts and
    nothing is reported.
    """

    job: JobId
    turn: TurnId
    call: CallId
    tool: str
    arguments: str
    digest: str
    contract: Literal["pure", "idempotent", "once"]
    context: msgspec.Raw
    agent: str  # the agent that receives the result
    model: str
    epoch: int
    # a process of its own, a task of the program that drove the turn, or a task of a tool's server
    host: JobHost
    # of the job's supervisor, of that program, or of that server: enough to ask how it stands
    process: dict[str, Any]
    seconds_max: float
    bytes_max: int


class JobCancelled(Event, frozen=True):
    """
    Wished for, and durable, before the job is asked to end; it ends with its real outcome, or in
    doubt.
    """

    job: JobId
    turn: TurnId
    by: str


class JobEnded(Event, frozen=True):
    """
    How a job ended, recorded once by the first process that found out. The input that reports it
    follows; without authority none does.
    """

    job: JobId
    turn: TurnId
    outcome: JobOutcome
    text: str
    code: str | None = None
    output: str | None = None  # digest of the full output kept beside the journal
