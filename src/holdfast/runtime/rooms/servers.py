"""Servers of tools: names, offered tools, list, show, pin, unpin."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import Refused
from holdfast.ports.tools import CannotBind
from holdfast.runtime.runtime import Runtime

if TYPE_CHECKING:
    from holdfast.runtime.tool_servers.reports import ServerReport, ToolReport
    from holdfast.session.home.events import ToolPinned


class ServerVerbs:
    """Servers of tools: what a person sees and decides about them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def list(self, names: Sequence[str] = ()) -> "tuple[ServerReport, ...]":
        """Ask the servers of the settings, or these, and withdraw what has changed."""
        from holdfast.runtime.tool_servers.verbs import list_servers

        return await list_servers(self._runtime, names)

    def names(self) -> Sequence[str]:
        """Return the servers of the settings."""
        servers = self._runtime.world.servers
        return servers.names() if servers is not None else ()

    async def offered(self) -> "Sequence[ToolPinned]":
        """Return the pins of the servers that settings name, without asking a server."""
        names = self.names()
        if not names:
            return ()
        return [pin for pin in (await self._runtime.pins.refresh()).values() if pin.server in names]

    def relayed(self, server: str) -> Sequence[str]:
        """Return the kinds of things beside tools that clients may read from this server."""
        servers = self._runtime.world.servers
        return servers.relayed(server) if servers is not None else ()

    async def read(self, server: str, method: str, params: Mapping[str, Any]) -> bytes:
        """Ask a server for something that has no effect. Return its reply as JSON text."""
        servers = self._runtime.world.servers
        if servers is None or server not in servers.names():
            raise Refused("no such server", code="unknown", hint="see `holdfast mcp list`")
        try:
            return await servers.read(server, method, params)
        except CannotBind as exc:
            raise Refused(str(exc), code=exc.code, hint="`holdfast mcp list` asks it") from exc

    async def known(self) -> Sequence[str]:
        """Return the servers of the settings and the pinned tools, without asking a server."""
        return (
            *self.names(),
            *sorted(await self._runtime.pins.refresh()),
        )

    async def show(self, names: Sequence[str]) -> "tuple[ToolReport, ...]":
        """Return tools whole, by `SERVER.TOOL` or all of a `SERVER`."""
        from holdfast.runtime.tool_servers.verbs import show_tools

        return await show_tools(self._runtime, names)

    async def pin(self, wanted: Sequence[tuple[str, str]], *, by: str) -> "tuple[ToolReport, ...]":
        """Pin tools, each by its name and the digest that was shown."""
        from holdfast.runtime.tool_servers.verbs import pin_tools

        return await pin_tools(self._runtime, wanted, by=by)

    async def unpin(self, names: Sequence[str], *, by: str) -> Sequence[str]:
        """Withdraw tools; return the withdrawn ones."""
        from holdfast.runtime.tool_servers.verbs import unpin_tools

        return await unpin_tools(self._runtime, names, by=by)
