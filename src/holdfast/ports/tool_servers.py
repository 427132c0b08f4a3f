"""
Servers of tools: other programs that offer tools over a protocol, such as MCP.

A server's word about its tools is data. A person pins the definition of a tool after seeing all of
it. Only a pinned tool is offered to a model, and it starts only if the server still defines it in
the same way.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from blake3 import blake3

from holdfast.ports.jobs import JobSeen
from holdfast.ports.tools import ServerTask, Tool
from holdfast.session.home.events import ToolPinned

Transport = Literal["stdio", "http"]


class ToolServer(msgspec.Struct, frozen=True, kw_only=True):
    """`[mcp.NAME]` of holdfast.toml: exactly one of `command` and `url`."""

    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()  # names of variables that the server may see
    network: bool = False
    read: tuple[str, ...] = ()  # paths that it may read, beside the system
    write: tuple[str, ...] = ()  # folders that it may change
    url: str | None = None
    token_env: str | None = None
    login: Literal["person", "client"] = "person"  # who logs in, if the server wants it
    issuer: str | None = None  # the only one that gets a secret of these settings
    client_id: str | None = None
    client_secret_env: str | None = None
    client_key_env: str | None = None
    identity_file: str | None = None  # a token that says who this client is
    identity_issuer: str | None = None  # that gives the server's issuer another one for it
    identity_client_id: str | None = None  # there; as at the server's issuer if not given
    scopes: tuple[str, ...] = ()  # to ask for, instead of those that the server names
    trust_hints: bool = False
    relay: tuple[str, ...] = ()  # beside tools: `resources`, `prompts`, read by clients unasked

    @property
    def transport(self) -> Transport:
        return "http" if self.url is not None else "stdio"

    @property
    def secret_variables(self) -> tuple[str, ...]:
        found = (self.token_env, self.client_secret_env, self.client_key_env)
        return tuple(each for each in found if each is not None)


class ServersNow(NamedTuple):
    """The current settings that servers depend on."""

    servers: Mapping[str, ToolServer]
    confine: Literal["auto", "require", "off"]  # as for commands of the shell


class ToolFound(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One tool as its server defines it now, with everything that a pin covers."""

    server: str
    tool: str
    definition: str  # as received, as JSON text with sorted keys
    instructions: str
    identity: str

    @property
    def name(self) -> str:
        return f"{self.server}.{self.tool}"

    @cached_property
    def digest(self) -> str:
        """Return the fingerprint that a person pins."""
        parts = (self.server, self.tool, self.definition, self.instructions, self.identity)
        return blake3(msgspec.json.encode(parts)).hexdigest()

    def pinned(self, *, by: str) -> ToolPinned:
        return ToolPinned(
            server=self.server,
            tool=self.tool,
            digest=self.digest,
            definition=self.definition,
            instructions=self.instructions,
            identity=self.identity,
            by=by,
        )


class ServerFound(msgspec.Struct, frozen=True, kw_only=True):
    """
    The answer of one server. `problem` says why it could not be asked, or why its list is refused.
    """

    server: str
    transport: Transport
    tools: tuple[ToolFound, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()  # tools that can't be offered, each with the reason
    problem: str = ""


class PinBoard(Protocol):
    """The pins of the home's journal."""

    def pins(self) -> Mapping[str, ToolPinned]:
        """Return the pins as last read, by `SERVER.TOOL`."""
        ...

    async def refresh(self) -> Mapping[str, ToolPinned]:
        """Read the home's journal to its end, and return the pins."""
        ...

    async def compare(self, found: ServerFound) -> Mapping[str, ToolPinned]:
        """
        Withdraw, durably, every pinned tool of this server that is gone or differs. Return the pins
        that stand.
        """
        ...

    def is_doubted(self, server: str) -> bool:
        """Whether a tool of this server changed, and no person has pinned it again."""
        ...


class ToolServers(Protocol):
    """The servers that settings name, as tools."""

    def attach(self, board: PinBoard) -> None:
        """Use these pins. Called once, before anything else."""
        ...

    def names(self) -> Sequence[str]:
        """Return the servers of the current settings, sorted."""
        ...

    def offers(self, server: str) -> Sequence[str]:
        """Return the pinned tools of a server as `SERVER.TOOL`, sorted; empty if it is unknown."""
        ...

    def get(self, name: str) -> Tool | None:
        """
        Return a tool of a server by `SERVER.TOOL`; None if no setting names the server. A tool that
        is not pinned can be bound by nobody, and says why.
        """
        ...

    async def find(self, server: str) -> ServerFound:
        """Ask the server for its tools, without a cache."""
        ...

    def relayed(self, server: str) -> Sequence[str]:
        """Return the kinds of things beside tools that clients may read from this server."""
        ...

    async def read(self, server: str, method: str, params: Mapping[str, Any]) -> bytes:
        """
        Ask the server for something that has no effect, and return its reply as JSON text: an
        object with `result` or `error`, without known secrets. Its tools are listed and compared
        right before. Raise CannotBind if it is not as it was pinned, or gives no reply.
        """
        ...

    async def task(self, task: ServerTask, *, stop: bool) -> JobSeen:
        """
        Ask the server how its task stands; with `stop`, ask it to end the task first. Nothing is
        started. A server that cannot be asked now proves nothing: the task counts as running.
        """
        ...

    async def close(self) -> None:
        """End every server that this process has started."""
        ...
