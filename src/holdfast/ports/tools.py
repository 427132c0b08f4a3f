"""
Tools: what can be called, how a call is bound to exactly what would run, and how it is run.

A call goes through four steps, each of which may refuse:

1. `validate`: the arguments as the model wrote them, against the types; before anyone is asked.
2. `bind`: look at the world and say what exactly would run: rendered text, working folder by identity, interpreter, script contents. No effect.
3. `prepare`: get ready, still without effect (a forked launcher, blocked on a pipe). Its facts go into the journalled ToolStarted.
4. `Prepared.go`: only after ToolStarted is durable.  `Prepared.abandon`: if it won't be.

`bind` is called again right before `prepare`, and what it says must be equal to what was approved.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

from holdfast.ids import CallId, InstanceId, JobId, SessionId, TurnId
from holdfast.secrecy import Secret
from holdfast.session.authority.plan import Binding, ToolDefinition
from holdfast.session.features.memory.items import Circle, Origin

if TYPE_CHECKING:
    from holdfast.ports.jobs import JobKey

BUILTIN_TOOLS = (
    "ask_person",
    "cancel_reminder",
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
WRITING_TOOLS = frozenset({"shell", "write_file", "edit_file"})
"""Built-in tools that change files in a workspace."""
"""What every install has, by name: settings know them without loading them."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """
    Where a call would run: from the turn's journalled context and the home's settings, never from
    live transport data.
    """

    session: SessionId
    instance: InstanceId
    turn: TurnId
    call: CallId
    workspace: (
        str | None
    )  # absolute path; its identity is checked against the journalled one by the runtime
    workspace_identity: str | None = (
        None  # "dev:ino", as journalled: a tool that opens it looks at what it has opened
    )
    requester: str | None
    audience: str
    boundary: str
    home: (
        str | None
    )  # the Holdfast home, hard-denied to every built-in tool; None for stores without files
    secrets: tuple[
        Secret, ...
    ] = ()  # values that may not appear in arguments, output or environment
    circle: Circle | None = None  # whom memory may be recalled for; None: nobody
    origin: Origin | str = (
        "nothing says who asked"  # under what something may be remembered; or why nothing may
    )
    jobs: tuple[
        "JobFacts", ...
    ] = ()  # those that are there for this turn: of its session, audience and boundary


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool may know of a job of its own circle."""

    job: JobId
    tool: str
    submitted_at: int
    ended_at: int | None = None
    outcome: str | None = None
    cancelled_by: str | None = None
    process: "ProcessFacts | None" = None  # of a running one that is a process of its own


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a Python tool may know of the call it serves: a parameter annotated with it is injected,
    and is not in the schema.

    All of it comes from the journal: after a crash a tool sees the same values.
    """

    session: SessionId
    instance: InstanceId
    turn: TurnId
    call: CallId
    idempotency_key: (
        str  # equal for every run of this call; hand it to whatever can refuse doing a thing twice
    )
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


class ToolReturned(msgspec.Struct, frozen=True, kw_only=True):
    """
    How a run ended. `error` is the tool's own failure, known; what is unknown is in doubt, and only
    the runtime says that.
    """

    outcome: Literal["ok", "error", "timed_out", "cancelled"]
    text: str  # what the model sees, already within limits.TOOL_OUTPUT_VIEW_BYTES
    full: bytes | None = None  # the whole output, when `text` is shortened; kept beside the journal


class InvalidArguments(Exception):
    """The arguments don't fit the tool. The message is for the model, and names the field."""


class CannotBind(Exception):
    """
    What would run can't be said for sure (no such folder, not a regular script, too long to show),
    or is hard-denied. For model and person.
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
        Run to the end. Cancelling the awaiting task ends the whole process group and waits for it,
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
        The arguments as they would run, as JSON text (defaults filled in, keys in the schema's
        order); raises InvalidArguments.
        """
        ...

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        """What exactly would run. May look at the world, changes nothing; raises CannotBind."""
        ...

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared: ...


@runtime_checkable
class RunsInBackground(Protocol):
    """
    A tool some of whose calls go on as jobs, beside the turn that made them. Its definition and its
    display say so.
    """

    def is_background(self, arguments: bytes) -> bool:
        """Of validated arguments."""
        ...


class PreparedJob(Protocol):
    """
    A job that is ready, without effect, and waits for one byte. It outlives this process once it
    has it.
    """

    @property
    def process(self) -> ProcessFacts: ...

    @property
    def seconds_max(self) -> float: ...

    async def let_go(self) -> None:
        """
        Only after `job_submitted` is durable. Raises CannotBind if what would run has changed since
        it was approved; nothing ran then.
        """
        ...

    async def abandon(self) -> None:
        """Give up before `let_go`: nothing ran. Idempotent."""
        ...


@runtime_checkable
class LaunchesJobs(Protocol):
    """A tool whose jobs are processes of their own. The others' are tasks of the program."""

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
        `key` is for the job's own report, and for nobody else. `seconds` is the bound where the
        arguments name none.
        """
        ...


class ToolBox(Protocol):
    """The tools this process has."""

    def get(self, name: str) -> Tool | None:
        """
        The tool that goes by this name here. It is called by the same one, unless there is a colon
        in it (`module:attribute`).
        """
        ...

    def names(self) -> Sequence[str]: ...

    def end_survivors(self, call: CallId, facts: ProcessFacts | None) -> int:
        """
        After a crash: end what is left of this call's process group, found by boot id and start
        time or by its HOLDFAST_TOOL. Returns how many were ended.
        """
        ...
