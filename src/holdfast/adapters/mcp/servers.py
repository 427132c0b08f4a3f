"""
The servers that settings name: started at first use, asked again before each start, ended with this
process.

One connection per server is shared by all sessions of this process. A dead server is connected
again for the next call, never for the one that was lost. Settings are read at each use: a server
whose settings changed is ended, and its identity no longer equals its pins.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.adapters.mcp.connection import Challenged, NeverSent, OnQuestion, ReplyLost
from holdfast.adapters.mcp.definitions import read_definitions
from holdfast.adapters.mcp.http import HttpConnection, flaw_of_headers, param_headers
from holdfast.adapters.mcp.messages import ServerReply
from holdfast.adapters.mcp.oauth.credentials import credentials_of
from holdfast.adapters.mcp.pipe import PipeConnection
from holdfast.adapters.mcp.process import (
    ServerProcess,
    confinement_of,
    end_abandoned,
    start_server,
    what_lacks,
)
from holdfast.adapters.mcp.program import SeenProgram, http_identity, see_server_program
from holdfast.adapters.mcp.protocol import CallExtra, Listed, NotUsable, ServerSession
from holdfast.adapters.mcp.replies.tasks import asks_for_input, identity_digest, seen_from
from holdfast.adapters.mcp.stderr import StderrFile
from holdfast.adapters.mcp.tool import PinnedTool, WithdrawnTool
from holdfast.adapters.tools.shell.confinement.levels import Confinement
from holdfast.adapters.tools.shell.shell import Confine
from holdfast.errors import HoldfastError, InvariantBroken, Unusable
from holdfast.limits import MCP_STARTS_PER_MINUTE_MAX
from holdfast.ports.jobs import JobSeen
from holdfast.ports.tool_servers import PinBoard, ServerFound, ServersNow, ToolServer
from holdfast.ports.tools import CannotBind, ServerTask, Tool
from holdfast.secrecy import Secret, secrecy_of
from holdfast.session.home.events import ToolPinned
from holdfast.threads import BLOCKING

_MINUTE_SECONDS = 60.0


class _Open(NamedTuple):
    """A server in use: its settings and identity when it was connected, and the connection."""

    settings: ToolServer
    identity: str
    session: ServerSession
    seen: SeenProgram | None = None
    process: ServerProcess | None = None
    errors: StderrFile | None = None


class _ListKey(NamedTuple):
    """Everything that the definitions of a server are read from."""

    raw: tuple[bytes, ...]
    instructions: str
    identity: str  # of a program, or the address


def _found(server: str, listed: Listed, opened: _Open) -> ServerFound:
    tools, refused = read_definitions(server, listed, opened.identity)
    transport = opened.settings.transport
    if transport == "http":
        flawed = [(each.tool, flaw) for each in tools if (flaw := flaw_of_headers(each.definition))]
        tools = tuple(each for each in tools if each.tool not in dict(flawed))
        refused = (*refused, *flawed)
    return ServerFound(server=server, transport=transport, tools=tools, refused=refused)


def _identity(settings: ToolServer, seen: SeenProgram | None) -> str:
    return http_identity(settings.url or "") if seen is None else seen.program.identity(settings)


def _settings_of(now: ServersNow, server: str) -> ToolServer:
    settings = now.servers.get(server)
    if settings is None:
        raise CannotBind(f"no setting names the server {server} any more", code="withdrawn")
    return settings


class McpServers:
    """One per open home. `settings` is asked at each use."""

    def __init__(
        self, *, home: str, settings: Callable[[], ServersNow], secrets: tuple[Secret, ...]
    ) -> None:
        self._home, self._settings, self._secrets = home, settings, secrets
        end_abandoned(Path(home) / "run" / "mcp")  # of a process of this home that was killed
        self._board: PinBoard | None = None
        self._open: dict[str, _Open] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._starts: dict[str, list[float]] = {}
        self._calling: dict[str, int] = {}
        # Starts whose task was cancelled. Nobody else ends their processes.
        self._unclaimed: list[asyncio.Future[ServerProcess]] = []
        self._found: dict[str, tuple[_ListKey, ServerFound]] = {}  # as last listed
        self._made: dict[str, tuple[ToolPinned, ToolServer, PinnedTool]] = {}

    def attach(self, board: PinBoard) -> None:
        self._board = board

    def _pins(self) -> PinBoard:
        if self._board is None:
            raise InvariantBroken("the servers have no pins")
        return self._board

    # --- tools

    def names(self) -> Sequence[str]:
        return sorted(self._settings().servers)

    def offers(self, server: str) -> Sequence[str]:
        return sorted(name for name, pin in self._pins().pins().items() if pin.server == server)

    def get(self, name: str, settings: ToolServer) -> Tool:
        """Return the tool of this name, of a server with these settings."""
        pin = self._pins().pins().get(name)
        if pin is None:
            return WithdrawnTool(name)
        made = self._made.get(name)
        if made is None or made[0] is not pin or made[1] != settings:
            made = pin, settings, PinnedTool(pin, settings, self)
            self._made[name] = made
        return made[2]

    def confinement(self, server: str) -> Confinement | None:
        now = self._settings()
        settings = _settings_of(now, server)
        if settings.url is not None:
            return None
        return confinement_of(settings, self._home, now.confine)

    # --- asking

    async def find(self, server: str) -> ServerFound:
        transport = self._settings().servers[server].transport
        try:
            async with self._locked(server):
                return await self._listed(server)
        except (NeverSent, ReplyLost, NotUsable, CannotBind, Unusable) as exc:
            return ServerFound(server=server, transport=transport, problem=str(exc))

    async def check(self, pin: ToolPinned) -> ServerSession:
        server = pin.server
        self._refuse_unpinned(pin, self._pins().pins())  # by the newest pins below
        try:
            async with self._locked(server):
                found = await self._listed(server)
                checked = self._open[server].session
        except (ReplyLost, NotUsable, Unusable) as exc:
            # It was asked for its tools, and for nothing else.
            raise NeverSent(str(exc)) from exc
        self._refuse_unpinned(pin, await self._pins().compare(found))
        return checked

    @staticmethod
    def _refuse_unpinned(pin: ToolPinned, pins: Mapping[str, ToolPinned]) -> None:
        standing = pins.get(pin.name)
        if standing is not None and standing.digest == pin.digest:
            return
        raise CannotBind(
            f"{pin.name} is no longer what was pinned; `holdfast mcp show {pin.name}` shows the "
            "difference",
            code="withdrawn",
        )

    async def call(
        self,
        pin: ToolPinned,
        arguments: bytes,
        *,
        checked: ServerSession,
        timeout_seconds: float,
        extra: CallExtra,
        on_question: OnQuestion,
    ) -> ServerReply:
        opened = self._open.get(pin.server)
        # Another task may have connected anew, to a program that nobody compared for this call.
        if opened is None or opened.session is not checked or not checked.is_open:
            raise NeverSent("the server ended before the call was sent")
        headers = None if opened.process is not None else param_headers(pin.definition, arguments)
        self._calling[pin.server] = self._calling.get(pin.server, 0) + 1
        try:
            return await opened.session.call(
                pin.tool,
                arguments,
                timeout_seconds=timeout_seconds,
                headers=headers,
                extra=extra,
                on_question=on_question,
            )
        finally:
            self._calling[pin.server] -= 1

    def relayed(self, server: str) -> Sequence[str]:
        settings = self._settings().servers.get(server)
        return () if settings is None else settings.relay

    async def read(self, server: str, method: str, params: Mapping[str, Any]) -> bytes:
        try:
            async with self._locked(server):
                found = await self._listed(server)
                session = self._open[server].session
            pins = await self._pins().compare(found)
            if self._pins().is_doubted(server) or all(p.server != server for p in pins.values()):
                raise CannotBind(
                    f"{server} is not as it was pinned; `holdfast mcp show {server}` shows it",
                    code="withdrawn",
                )
            reply = await session.read(method, params)
        except (NeverSent, ReplyLost, NotUsable, Unusable) as exc:
            raise CannotBind(f"the server {server} gives no answer: {exc}") from exc
        part = b'{"result":' if reply.result is not None else b'{"error":'
        return secrecy_of(self._secrets).hidden_json(part + reply.raw + b"}")

    async def task(self, task: ServerTask, *, stop: bool) -> JobSeen:
        if task.server not in self._settings().servers:
            return JobSeen(state="gone", why="no setting names its server any more")
        try:
            async with self._locked(task.server):
                opened = await self._connected(task.server)
            if identity_digest(opened.identity) != task.identity:
                return JobSeen(state="gone", why="its server is not the one that made the task")
            if stop:
                await opened.session.task("tasks/cancel", task.task)
            reply = await opened.session.task("tasks/get", task.task)
            if asks_for_input(reply):
                await opened.session.task("tasks/cancel", task.task)
        except (NeverSent, ReplyLost, NotUsable, CannotBind, Unusable):
            return JobSeen(state="running")  # it cannot be asked now, which proves nothing
        pin = self._pins().pins().get(task.tool)
        schema = None if pin is None else msgspec.json.decode(pin.definition).get("outputSchema")
        return seen_from(
            reply,
            output_schema=schema if isinstance(schema, dict) else None,
            secrets=self._secrets,
        )

    async def _listed(self, server: str) -> ServerFound:
        """List the tools. A connection that was left over may be dead, and is made anew once."""
        was_open = server in self._open
        opened = await self._connected(server)
        try:
            listed = await opened.session.listed()
        except Challenged:
            raise
        except (ReplyLost, NeverSent) as exc:
            if opened.session.is_open and self._calling.get(server):
                raise NeverSent(f"the server is busy with another call, and {exc}") from exc
            await self._drop(server)
            if not was_open:
                raise
            opened = await self._connected(server)
            listed = await opened.session.listed()
        except NotUsable:
            if not self._calling.get(server):  # else its reply would be lost too
                await self._drop(server)
            raise
        key = _ListKey(listed.raw, listed.instructions, opened.identity)
        known = self._found.get(server)
        if known is None or known[0] != key:  # equal bytes say the same
            known = self._found[server] = key, _found(server, listed, opened)
        return known[1]

    # --- connections

    def _locked(self, server: str) -> asyncio.Lock:
        return self._locks.setdefault(server, asyncio.Lock())

    async def _connected(self, server: str) -> _Open:
        """Return the server's connection, made anew if it is gone or its settings changed."""
        now = self._settings()
        settings = _settings_of(now, server)
        opened = self._open.get(server)
        if opened is not None and (not opened.session.is_open or opened.settings != settings):
            opened = None
        seen = None if opened is None else opened.seen
        if settings.url is None and (seen is None or not seen.stands(settings)):
            seen = await BLOCKING.call(lambda: see_server_program(settings))
        identity = _identity(settings, seen)
        if opened is not None and opened.identity == identity:
            if opened.seen is not seen:
                self._open[server] = opened = opened._replace(seen=seen)
            return opened
        if opened is not None and seen is not None:
            seen = await BLOCKING.call(lambda: see_server_program(settings))
            identity = _identity(settings, seen)
        return await self._begun(server, settings, identity, seen, now.confine)

    async def _begun(
        self,
        server: str,
        settings: ToolServer,
        identity: str,
        seen: SeenProgram | None,
        confine: Confine,
        *,
        with_handshake: bool = False,
    ) -> _Open:
        """
        Connect anew, and agree on a version. A program of the older wire may end when it is asked
        in the newer way, and is then started once more. No call was sent yet.
        """
        await self._drop(server)
        self._count_start(server)
        if seen is None:
            connection = HttpConnection(
                settings.url or "", credentials=credentials_of(server, settings, self._home)
            )
            opened = _Open(settings, identity, ServerSession(connection))
        else:
            opened = await self._started(server, settings, identity, seen, confine)
        self._open[server] = opened
        try:
            await opened.session.begin(with_handshake=with_handshake)
        except (ReplyLost, NeverSent) as exc:
            has_ended = not opened.session.is_open
            await self._drop(server)
            if seen is None:
                raise
            if not has_ended or with_handshake:
                words = f"{what_lacks(settings)}its own words are in {self._stderr(server)}"
                raise type(exc)(f"{exc}; {words}") from exc
        except BaseException:
            await self._drop(server)
            raise
        else:
            return opened
        return await self._begun(server, settings, identity, seen, confine, with_handshake=True)

    async def _started(
        self,
        server: str,
        settings: ToolServer,
        identity: str,
        seen: SeenProgram,
        confine: Confine,
    ) -> _Open:
        starting = asyncio.ensure_future(
            BLOCKING.call(
                lambda: start_server(
                    server, settings, seen.program, home=self._home, confine=confine
                )
            )
        )
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._unclaimed.append(starting)  # it starts in any case, and `close` ends it
            raise
        errors = StderrFile(process.errors, self._stderr(server), self._secrets)
        connection = PipeConnection(reads=process.reads, writes=process.writes)
        return _Open(settings, identity, ServerSession(connection), seen, process, errors)

    def _count_start(self, server: str) -> None:
        """Bound the starts: a server that dies at once must not be started in a loop."""
        now = time.monotonic()
        recent = [each for each in self._starts.get(server, ()) if now - each < _MINUTE_SECONDS]
        if len(recent) >= MCP_STARTS_PER_MINUTE_MAX:
            raise NeverSent(
                f"the server was started {len(recent)} times within a minute; its own words are in "
                f"{self._stderr(server)}"
            )
        self._starts[server] = [*recent, now]

    def _stderr(self, server: str) -> Path:
        return Path(self._home) / "run" / "mcp" / f"{server}.stderr"

    async def _drop(self, server: str) -> None:
        opened = self._open.pop(server, None)
        if opened is None:
            return
        await opened.session.close()
        if opened.process is not None:
            await BLOCKING.call(opened.process.end)
        if opened.errors is not None:
            opened.errors.close()

    async def close(self) -> None:
        for server in tuple(self._open):
            async with self._locked(server):
                await self._drop(server)
        for starting in self._unclaimed:
            with contextlib.suppress(CannotBind, OSError, HoldfastError):
                process = await starting
                for descriptor in (process.reads, process.writes, process.errors):
                    os.close(descriptor)
                await BLOCKING.call(process.end)
        self._unclaimed.clear()
