"""
Tools: which calls exist, how a call is bound to its exact plan, and how it runs.

A call goes through four steps, each of which may refuse:

1. `validate`: check the model's arguments against the types, before any prompt.
2. `bind`: inspect the system and return the exact plan: rendered text, working folder by identity,
   interpreter, script contents. No effect.
3. `prepare`: get ready, still without effect (a forked launcher, blocked on a pipe). Its facts go
   into the journalled ToolStarted.
4. `Prepared.go`: only after ToolStarted is durable. `Prepared.abandon`: if it will not be.

`bind` is called again right before `prepare`, and its result must equal the approved plan.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeGuard, runtime_checkable

import msgspec

from holdfast.ids import CallId, InstanceId, JobId, SessionId, TurnId
from holdfast.secrecy import Secret
from holdfast.session.authority.plan import Binding, ToolDefinition
from holdfast.session.features.forms.form import FilledForm, ServerForm
from holdfast.session.features.memory.items import Origin, ReaderSet

if TYPE_CHECKING:
    from holdfast.ports.jobs import JobKey

BUILTIN_TOOLS = (
    "ask_person",
    "cancel_reminder",
    "edit_file",
    "forget",
    "job_cancel",
    "job_status",
    "list_files",
    "list_reminders",
    "now",
    "read_file",
    "recall",
    "remember",
    "search_files",
    "set_reminder",
    "shell",
    "write_file",
)
"""The tools of every install, by name: settings know them without loading them."""

WRITING_TOOLS = frozenset({"shell", "write_file", "edit_file"})
"""Built-in tools that change files in a workspace."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """
    Where a call would run: from the turn's journalled context and the home's settings, never from
    live transport data.
    """

    session: SessionId
    instance: InstanceId
    turn: TurnId
    call: CallId
    # Absolute path. The runtime checks its identity against the journalled one.
    workspace: str | None
    # "dev:ino", as journalled. A tool that opens the folder compares it with the opened one.
    workspace_identity: str | None = None
    requester: str | None
    audience: str
    boundary: str
    # The Holdfast home, hard-denied to every built-in tool; None for stores without files.
    home: str | None
    # Values that may not appear in arguments, output or environment.
    secrets: tuple[Secret, ...] = ()
    reader_set: ReaderSet | None = (
        None  # the reader that memory is recalled for; None recalls nothing
    )
    # The origin that a new memory item gets, or the reason why nothing may be remembered.
    origin: Origin | str = "nothing says who asked"
    # Jobs that this turn may see: those of its session, audience and boundary.
    jobs: tuple["JobFacts", ...] = ()
    # The program that asked runs as a user who can read the home, so it could answer for a person.
    asker_shares_user: bool = False
    may_ask: bool = False  # the call may wait for a form that its server wants filled in
    may_go_on: bool = False  # the call may go on as a job if its server makes a task of it
    filled: FilledForm | None = None  # such a form, filled in by a person


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a job that a tool of the same audience and boundary may know."""

    job: JobId
    tool: str
    submitted_at: int
    ended_at: int | None = None
    outcome: str | None = None
    cancelled_by: str | None = None
    process: "ProcessFacts | None" = None  # only for a running job that is a process of its own


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """
    The facts that a Python tool may know of its call. A parameter annotated with this type is
    injected, and is not in the schema.

    All of it comes from the journal: after a crash a tool sees the same values.
    """

    session: SessionId
    instance: InstanceId
    turn: TurnId
    call: CallId
    # Equal for every run of this call. Pass it to services that can refuse a repetition.
    idempotency_key: str
    workspace: str | None
    requester: str | None
    audience: str
    boundary: str


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """
    Enough to find a launched process again after a crash, and never to mistake another for it.
    """

    boot_id: str
    group: int
    start_time: int  # clock ticks since boot, from /proc/PID/stat
    node: str = ""  # of a home with several nodes: only this one may look for the process


class InputWanted(msgspec.Struct, frozen=True, kw_only=True):
    """
    A server wants a form filled in before the call can go on. `display` is the whole question.
    """

    form: ServerForm
    display: str
    warnings: tuple[str, ...] = ()


class PersonSaid(NamedTuple):
    """
    The end of a question that a server asked inside of an open call. If it is neither filled in nor
    declined, nobody answered: `why` says why not.
    """

    filled: FilledForm | None = None
    declined: bool = False
    why: str = ""


AskPerson = Callable[[InputWanted], Awaitable[PersonSaid]]
"""Asks a person, durably, and waits for the end of the question."""


class ServerTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task by which a server goes on with a call: enough to ask for it again, by its own id."""

    server: str
    tool: str  # as `SERVER.TOOL`
    task: str  # the server's own id
    identity: str  # digest of the server that made it; no other one is asked
    poll_seconds: float


class ToolReturned(msgspec.Struct, frozen=True, kw_only=True):
    """
    How a run ended. `error` is the tool's own, known failure. `in_doubt` is for a tool that runs
    elsewhere: the request left, and no result came back.
    """

    outcome: Literal["ok", "error", "timed_out", "cancelled", "in_doubt"]
    text: str  # the text that the model sees, already within limits.TOOL_OUTPUT_VIEW_BYTES
    full: bytes | None = None  # the whole output if `text` is shortened; kept beside the journal
    reply: bytes | None = None  # of a server: `{"result": ...}` or `{"error": ...}`, as it was sent
    # Only if the scene may ask. A caller that cannot ask has the outcome and the text above.
    wants: InputWanted | None = None
    task: ServerTask | None = None  # only if the scene may go on


class InvalidArguments(Exception):
    """The arguments do not fit the tool. The message is for the model, and names the field."""


class CannotBind(Exception):
    """
    The plan cannot be determined (missing folder, not a regular script, too long to show), or is
    hard-denied. The message is for model and person.
    """

    def __init__(self, message: str, *, code: str = "cannot_bind") -> None:
        super().__init__(message)
        self.code = code  # cannot_bind, hard_deny, secret, too_long, unconfined, no_network


OnOutput = Callable[[bytes], None]


class Prepared(Protocol):
    @property
    def process(self) -> ProcessFacts | None: ...

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        """
        Run to the end. Cancelling the awaiting task ends the whole process group, waits for it,
        then raises CancelledError.
        """
        ...

    async def abandon(self) -> None:
        """Give up before `go`: nothing ran. Idempotent."""
        ...


class Tool(Protocol):
    @property
    def definition(self) -> ToolDefinition: ...

    def validate(self, arguments: bytes) -> bytes:
        """
        Return the arguments as they would run, as JSON text (defaults filled in, keys in the
        schema's order). Raise InvalidArguments.
        """
        ...

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        """Return the exact plan. May inspect the system, changes nothing. Raise CannotBind."""
        ...

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared: ...


class AsksInside(Protocol):
    """
    A prepared call whose server may ask a person while the call is open. Without `ask_with` nobody
    is asked, and the server hears so at once.
    """

    def ask_with(self, ask: AskPerson) -> None: ...


def asks_inside(prepared: object) -> TypeGuard[AsksInside]:
    """Return True if it does. `isinstance` takes a hundred times as long, for every call."""
    return hasattr(prepared, "ask_with")


@runtime_checkable
class RunsInBackground(Protocol):
    """
    A tool with calls that continue as jobs, beside the turn that made them. Its definition and its
    display say so.
    """

    def is_background(self, arguments: bytes) -> bool:
        """Whether a call with these validated arguments becomes a job."""
        ...


class PreparedJob(Protocol):
    """
    A job that is ready, without effect, and waits for one byte. After that byte it outlives this
    process.
    """

    @property
    def process(self) -> ProcessFacts: ...

    @property
    def seconds_max(self) -> float: ...

    async def let_go(self) -> None:
        """
        Start the job; only after `job_submitted` is durable. Raise CannotBind if the plan has
        changed since it was approved; then nothing ran.
        """
        ...

    async def abandon(self) -> None:
        """Give up before `let_go`: nothing ran. Idempotent."""
        ...


@runtime_checkable
class LaunchesJobs(Protocol):
    """
    A tool whose jobs are processes of their own. Jobs of other tools are tasks of the program.
    """

    async def prepare_job(
        self,
        arguments: bytes,
        binding: Binding,
        scene: Scene,
        *,
        job: JobId,
        key: "JobKey",
        seconds: float,
    ) -> PreparedJob:
        """
        `key` is only for the job's own report. `seconds` is the bound if the arguments name none.
        """
        ...


class ToolBox(Protocol):
    """The tools that this process has."""

    def get(self, name: str) -> Tool | None:
        """
        Return the tool of this name. The model calls it by the same name, unless the name has a
        colon (`module:attribute`).
        """
        ...

    def names(self) -> Sequence[str]: ...

    def end_survivors(self, call: CallId, facts: ProcessFacts | None) -> int:
        """
        After a crash, end the remaining processes of this call's group, found by boot id and start
        time or by HOLDFAST_TOOL. Return how many were ended.
        """
        ...
