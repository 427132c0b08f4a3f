"""Calls of tools: decide them, start one, finish it."""

from typing import Any, Literal

import msgspec

from holdfast.ids import CallId, InstanceId, JobId, SessionId, TurnId
from holdfast.session.authority.policy import BoundCall, Policy
from holdfast.session.commands.base import Command
from holdfast.session.events import Blob, CallOutcome, JobHost
from holdfast.session.features.forms.form import ServerForm
from holdfast.session.home.events import GrantProposed


class DecideCalls(Command[None], frozen=True):
    """Decide for each bound call whether it runs, asks or is denied."""

    turn: TurnId
    bound: tuple[BoundCall, ...]
    policy: Policy
    grants: tuple[GrantProposed, ...] = ()


class NewDelegate(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a call to a delegate would start. `tools` are the calling agent's tools."""

    agent: str
    session: SessionId
    instance: InstanceId
    tools: tuple[str, ...]


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """
    A job that is ready to run in the background: its host, the facts to find it again, and its
    bounds.
    """

    host: JobHost
    process: dict[str, Any]
    seconds_max: float
    bytes_max: int


class StartTool(Command[int | None], frozen=True):
    """
    Start a prepared call: judge it once more under the current policy, then make the start durable.
    With `job` it goes on in the background.
    """

    turn: TurnId
    bound: BoundCall
    policy: Policy
    grants: tuple[GrantProposed, ...]
    epoch: int
    process: dict[str, Any] | None = None
    delegate: NewDelegate | None = None
    job: JobPlan | None = None


class FinishCall(Command[Literal["dropped"] | None], frozen=True):
    turn: TurnId
    call: CallId
    run: int
    outcome: CallOutcome
    text: str
    code: str | None = None
    output: str | None = None
    result: Blob | None = None


class ContinueAsJob(Command[JobId | Literal["dropped"] | None], frozen=True):
    """A started call's server goes on with it as a task: from now on it is a job."""

    turn: TurnId
    call: CallId
    run: int
    plan: JobPlan


class AskForInput(Command[str | None], frozen=True):
    """
    A started call's server wants a form filled in before it goes on. The call waits as a question.
    Its outcome is the reason why nobody is asked, if nobody is.
    """

    turn: TurnId
    call: CallId
    run: int
    bound: BoundCall
    form: ServerForm
    display: str
    policy: Policy
    warnings: tuple[str, ...] = ()
    seconds_max: int | None = None  # the longest time that it may stand; None: as policy says
