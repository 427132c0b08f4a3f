"""
The inputs of the runtime: ports, agents and current settings. Built by `assembly/`, or by a test.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Any

import msgspec

from holdfast import limits
from holdfast.errors import Unusable
from holdfast.ids import JobId, SessionId
from holdfast.ports.chat.platform import ConfiguredChat
from holdfast.ports.clock import Clock
from holdfast.ports.delivery import Channel
from holdfast.ports.index import Index
from holdfast.ports.jobs import JobPlace
from holdfast.ports.journal_store import JournalStore
from holdfast.ports.memory import Memory
from holdfast.ports.model import ModelCatalogue
from holdfast.ports.notifier import Notifier
from holdfast.ports.search import Search
from holdfast.ports.tool_servers import ToolServers
from holdfast.ports.tools import Prepared, ProcessFacts, Tool, ToolBox
from holdfast.ports.zones import FindZone, utc_alone
from holdfast.secrecy import Secret
from holdfast.session.authority.context import Workspace
from holdfast.session.authority.policy import Policy
from holdfast.session.view.compaction import CompactionRules

PROXY_AGENT = "mcp"
"""The agent of calls that other programs' agents make. It has every pinned tool, unless settings
define an agent of that name."""
ALL_SERVED_TOOLS = "*.*"
CODING_AGENTS = ("claude-code", "codex")
"""Agents that ask before they run tools of their own, which are named `AGENT.TOOL`."""


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """
    An agent as settings or a program describe it. `tools` are names in the toolbox, in the order
    the model sees them.
    """

    name: str
    model: str
    instructions: str = ""
    tools: tuple[str, ...] = ()
    delegates: tuple[str, ...] = ()  # agents that it may hand tasks to, by name


class ModelTimes(msgspec.Struct, frozen=True):
    """How long a model may be silent, and how retries are spaced."""

    first_token_seconds: float = limits.MODEL_FIRST_TOKEN_SECONDS
    gap_seconds: float = limits.MODEL_GAP_SECONDS
    retry_seconds: float = 0.5


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one process that change its costs and no result."""

    # Opening a session folds at most this many records, however long it is.
    snapshot_every_records: int = 200
    # The same for a session that is let go: it is likely to be opened again.
    snapshot_every_records_closed: int = 50
    # For each kind. A waiting caller asks only for one of the last few.
    remembered_max: int = 64
    # Longer than a turn of instant answers takes, shorter than a person takes to look.
    row_delay_seconds: float = 0.25
    # Notices are hints: a lost one costs a drive at most this much.
    look_again_seconds: float = 1.0

    @property
    def snapshot_records_min(self) -> int:
        """A session with fewer records has no snapshot."""
        return min(self.snapshot_every_records, self.snapshot_every_records_closed)


async def _any_clock() -> None:
    pass


@dataclass(kw_only=True)
class World:
    """Everything that the runtime depends on. One per open home."""

    store: JournalStore
    models: ModelCatalogue
    tools: ToolBox
    notifier: Notifier
    clock: Clock
    index: Index
    agents: Mapping[str, AgentSpec]
    default_agent: str
    policy: Callable[[], Policy]
    """The current policy: read again for every decision, so that tightening applies at once."""
    added_tools: dict[str, dict[str, Tool]] = field(default_factory=dict)
    """Tools that the program added after the home was opened, by agent and by name."""
    servers: ToolServers | None = None
    """Servers of tools that settings name. Their tools are in `tools` too."""
    folder_identity: Callable[[str], str | None]
    """`dev:ino` of a folder, or None if it does not exist."""
    node: str = ""
    """This process's node, in a home with several nodes: a folder or a process belongs to one."""
    shares_machine: Callable[[str], bool] = lambda _node: False
    """Whether that node is on this machine, so that its folders are here too."""
    is_heard_of: Callable[[str], bool] = lambda _node: False
    """Whether that node is alive, so that turns in its folders are left to it."""
    home: str | None = None
    secrets: tuple[Secret, ...] = ()
    """
    Known secrets beside tokens: the home's keys, provider keys, variables that settings name. See
    `holdfast.secrecy`.
    """
    tool_timeout_seconds: float = limits.TOOL_TIMEOUT_SECONDS
    model_times: ModelTimes = field(default_factory=ModelTimes)
    tuning: Tuning = field(default_factory=Tuning)
    search: Search | None = None
    memory: Memory | None = None
    recall_seconds: float = limits.MEMORY_RECALL_SECONDS
    """How long a turn waits for its memory. With 0 only the recall tool finds memory."""
    zones: FindZone = utc_alone
    channels: Callable[[], Mapping[str, Channel]] = dict
    """Channels that notify people, by name, from the current settings."""
    chats: Callable[[], Mapping[str, ConfiguredChat]] = dict
    """Chats with people, by name, from the current settings."""
    compaction: Callable[[], CompactionRules] = CompactionRules
    """When the view is compacted, from the current settings."""
    jobs: JobPlace | None = None
    """
    Where jobs that are processes are found again. None if there is no such place; then no such job
    is started.
    """
    code_folders: Callable[[str], tuple[str, ...]] = lambda _workspace: ()
    """Folders in that workspace from which this process has loaded the user's code."""
    warned: set[str] = field(default_factory=set)
    """Warnings that this process has logged; each is logged once, not for every turn."""
    random_bytes: Callable[[int], bytes] = token_bytes
    """The source of unguessable ids. A simulation brings its own, so that a seed repeats them."""
    check_clock: Callable[[], Awaitable[None]] = _any_clock
    """
    Called before a session is created. Raises Refused if the clock is far ahead of the home's
    journal. Set by the service.
    """
    now_ms: Callable[[], int] = field(init=False)
    """
    The later of the clock and the home's time, by which lists judge expiry and reminders. The clock
    alone until the service sets it.
    """
    on_job: "Callable[[SessionId, JobId, Prepared | None], None] | None" = None
    """
    Called for every job that this process has started; with a Prepared, the job runs here. Set by
    the service, which watches it.
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
                f"no agent {wanted!r}", code="unknown_agent", hint=f"known agents: {known}"
            ) from None

    def workspace(self, path: str) -> Workspace:
        identity = self.folder_identity(path)
        if identity is None:
            raise Unusable(
                f"{path} is not a folder",
                code="no_workspace",
                hint="name an existing folder with --workspace",
            )
        return Workspace(path, identity, self.node)

    def is_here(self, node: str) -> bool:
        """Whether a folder of that node is a folder of this process too."""
        return node in {"", self.node} or self.shares_machine(node)

    def is_left_to(self, node: str) -> bool:
        """Whether a turn in a folder of that node is left to it."""
        return not self.is_here(node) and self.is_heard_of(node)

    def process_facts(self, process: ProcessFacts) -> dict[str, Any]:
        """The journalled form of a process that this node has started."""
        facts = msgspec.structs.asdict(process)
        return facts | {"node": self.node} if self.node else _without_node(facts)


def _without_node(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name != "node"}
