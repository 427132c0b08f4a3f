"""The servers, loaded at first use: a home without any loads no protocol."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import Unusable
from holdfast.ports.jobs import JobSeen
from holdfast.ports.tool_servers import PinBoard, ServerFound, ServersNow
from holdfast.ports.tools import CannotBind, ServerTask, Tool
from holdfast.secrecy import Secret

if TYPE_CHECKING:
    from holdfast.adapters.mcp.servers import McpServers


class LazyServers:
    """`settings` is asked at each use. It raises Unusable while the file has an error."""

    def __init__(
        self, home: str, settings: Callable[[], ServersNow], secrets: tuple[Secret, ...]
    ) -> None:
        self._home, self._settings, self._secrets = home, settings, secrets
        self._board: PinBoard | None = None
        self._servers: McpServers | None = None

    def attach(self, board: PinBoard) -> None:
        self._board = board

    def names(self) -> Sequence[str]:
        return sorted(self._settings().servers)

    def offers(self, server: str) -> Sequence[str]:
        return self._made().offers(server) if server in self._settings().servers else ()

    def get(self, name: str) -> Tool | None:
        server, dot, _ = name.partition(".")
        settings = self._settings().servers.get(server) if dot else None
        return None if settings is None else self._made().get(name, settings)

    async def find(self, server: str) -> ServerFound:
        return await self._made().find(server)

    def relayed(self, server: str) -> Sequence[str]:
        settings = self._settings().servers.get(server)
        return () if settings is None else settings.relay

    async def read(self, server: str, method: str, params: Mapping[str, Any]) -> bytes:
        return await self._made().read(server, method, params)

    async def task(self, task: ServerTask, *, stop: bool) -> JobSeen:
        return await self._made().task(task, stop=stop)

    async def close(self) -> None:
        if self._servers is not None:
            await self._servers.close()

    def _made(self) -> "McpServers":
        if self._servers is None:
            from holdfast.adapters.mcp.servers import McpServers

            self._servers = McpServers(
                home=self._home, settings=self._strictly, secrets=self._secrets
            )
            if self._board is not None:
                self._servers.attach(self._board)
        return self._servers

    def _strictly(self) -> ServersNow:
        try:
            return self._settings()
        except Unusable as exc:
            raise CannotBind(str(exc), code=exc.code) from exc
