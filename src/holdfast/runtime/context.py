"""
What the runtime is given: ports, agents and settings of now. Built by `wiring.py`, or by a test.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_bytes

import msgspec

from holdfast import limits
from holdfast.errors import Unusable
from holdfast.ids import JobId, SessionId
from holdfast.ports.clock import Clock
from holdfast.ports.delivery import Channel
from holdfast.ports.index import Index
from holdfast.ports.jobs import JobPlace
from holdfast.ports.journal_store import JournalStore
from holdfast.ports.memory import Memory
from holdfast.ports.model import Model, ModelCatalogue
from holdfast.ports.notifier import Notifier
from holdfast.ports.search import Search
from holdfast.ports.tools import Prepared, ToolBox
from holdfast.ports.zones import FindZone, utc_alone
from holdfast.secrecy import Secret
from holdfast.session.authority.context import Workspace
from holdfast.session.authority.policy import Policy
from holdfast.session.view.compaction import CompactionRules


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """
    An agent as settings or a program describe it. `tools` are names in the box, in the order the
    model sees them.
    """

    name: str
    model: str
    instructions: str = ""
    tools: tuple[str, ...] = ()
    delegates: tuple[str, ...] = ()  # agents it may hand tasks to, by name


class ModelTimes(msgspec.Struct, frozen=True):
    """How long a model may be silent, and how failures are spaced."""

    first_token_seconds: float = limits.MODEL_FIRST_TOKEN_SECONDS
    gap_seconds: float = limits.MODEL_GAP_SECONDS
    retry_seconds: float = 0.5


async def _any_clock() -> None:
    pass


@dataclass(kw_only=True)
class World:
    """Everything that the runtime moves by. One per open home."""

    store: JournalStore
    models: ModelCatalogue
    tools: ToolBox
    notifier: Notifier
    clock: Clock
    index: Index
    agents: Mapping[str, AgentSpec]
    default_agent: str
    policy: Callable[[], Policy]
    """Settings of now: read again for every decision, so that tightening applies at once."""
    folder_identity: Callable[[str], str | None]
    """`dev:ino` of a folder, or None when there is none."""
    home: str | None = None
    secrets: tuple[Secret, ...] = ()
    """
    Known ones beside tokens: the home's keys, provider keys, variables that settings name. See
    `holdfast.secrecy`.
    """
    tool_timeout_seconds: float = limits.TOOL_TIMEOUT_SECONDS
    model_times: ModelTimes = field(default_factory=ModelTimes)
    search: Search | None = None
    memory: Memory | None = None
    recall_seconds: float = limits.MEMORY_RECALL_SECONDS
    """How long a turn waits for its memory; 0: it has none, but for what the recall tool finds."""
    zones: FindZone = utc_alone
    channels: Callable[[], Mapping[str, Channel]] = dict
    """Ways out to people, by name: settings of now."""
    compaction: Callable[[], CompactionRules] = CompactionRules
    """When what the model sees is made smaller: settings of now."""
    jobs: JobPlace | None = None
    """
    Where jobs that are processes are found again; None where there is no such place, and none are
    started.
    """
    code_folders: Callable[[str], tuple[str, ...]] = lambda _workspace: ()
    """Folders in that workspace from which this process has loaded code of the user's."""
    warned: set[str] = field(default_factory=set)
    """Said once by this process, and not for every turn."""
    random_bytes: Callable[[int], bytes] = token_bytes
    """
    What ids that nobody may guess are made of; a simulation brings its own, so that a seed repeats
    them.
    """
    check_clock: Callable[[], Awaitable[None]] = _any_clock
    """
    Asked before a session is made: raises Refused where the clock is far ahead of the home's
    journal. Set by the service.
    """
    now_ms: Callable[[], int] = field(init=False)
    """
    The later of the clock and the home's time: what ends and reminders are listed by. The clock
    alone until the service sets it.
    """
    on_job: "Callable[[SessionId, JobId, Prepared | None], None] | None" = None
    """
    Told of every job that this process has let go; with a Prepared, it is to be run here. Set by
    the service, which keeps watch.
    """

    def __post_init__(self) -> None:
        self.now_ms = self.clock.now_ms

    def agent(self, name: str | None) -> AgentSpec:
        wanted = name or self.default_agent
        try:
            return self.agents[wanted]
        except KeyError:
            known = ", ".join(sorted(self.agents))
            raise Unusable(
                f"there is no agent {wanted!r}", code="unknown_agent", hint=f"known agents: {known}"
            ) from None

    def model(self, name: str) -> Model:
        return self.models.resolve(name)

    def workspace(self, path: str) -> Workspace:
        identity = self.folder_identity(path)
        if identity is None:
            raise Unusable(
                f"{path} is no folder",
                code="no_workspace",
                hint="name an existing folder with --workspace",
            )
        return Workspace(path, identity)
