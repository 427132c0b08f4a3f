"""
The two current versions of MCP, from the client's side: how a connection begins, how tools are
listed, and how one is called.

2026-07-28 has no handshake: each request carries the version and the client's capabilities.
2025-11-25 begins with `initialize`. A server is asked in the newer way first. Only capabilities
that Holdfast has are declared: a server may not ask for samples of a model or for folders.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.adapters.mcp.connection import Connection, OnQuestion, ReplyLost
from holdfast.adapters.mcp.messages import ServerReply
from holdfast.limits import (
    MCP_INSTRUCTIONS_BYTES_MAX,
    MCP_LIST_BYTES_MAX,
    MCP_LIST_SECONDS,
    MCP_TOOLS_PER_SERVER_MAX,
    MIB,
)

STATELESS = "2026-07-28"
HANDSHAKE = "2025-11-25"
_HANDSHAKES = (HANDSHAKE, "2025-06-18", "2025-03-26", "2024-11-05")
_UNSUPPORTED_VERSION = -32022
_PREFIX = "io.modelcontextprotocol/"
_CLIENT = {"name": "holdfast", "version": "0.1.0"}
_DISCOVER_SECONDS = 10.0  # an older server may leave a method that it does not know unanswered


class NotUsable(Exception):
    """The server answered, and cannot be used. The text says why."""


class Listed(NamedTuple):
    """The server's own texts: each tool as received, its instructions, the bytes of the list."""

    tools: tuple[Any, ...]
    instructions: str
    raw: tuple[bytes, ...] = ()


QUESTIONS: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}}
"""
The capability that a server may ask a person. The newer wire declares it with a call that may wait
for one, and with no other request. The older wire declares it once for the connection.
"""

EXTENSION: Mapping[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
"""The capability that is declared with a call that may go on, and with requests about its task."""


class CallExtra(NamedTuple):
    """The parts of a call beside its name and arguments."""

    members: Mapping[str, Any]  # of its params
    capabilities: Mapping[str, Any]  # that are declared with this one request


NOTHING_EXTRA = CallExtra({}, {})


class ServerSession:
    """One connection that has agreed on a version."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._version = STATELESS
        self._instructions = ""

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def version(self) -> str:
        return self._version

    @property
    def is_stateless(self) -> bool:
        """Whether each request stands alone, and carries the client's capabilities."""
        return self._version == STATELESS

    async def begin(self, *, with_handshake: bool = False) -> None:
        """
        Agree on a version. Raise NotUsable, NeverSent or ReplyLost. `with_handshake` is for a
        server that ended when it was asked in the newer way.
        """
        if with_handshake:
            await self._initialize()
            return
        try:
            found = await self._discover()
        except ReplyLost:
            if not self._connection.is_open:
                raise
            found = None  # it left the question unanswered, as older servers may
        if found is None:
            await self._initialize()
        else:
            self._instructions = found

    async def _discover(self) -> str | None:
        """Return the instructions of a server of the newer version; None for an older one."""
        self._connection.speak(STATELESS, names_requests=True)
        reply = await self._asked_to_discover()
        if STATELESS in _supported(reply):
            reply = await self._asked_to_discover()  # it refused the version that it names itself
        return self._found(reply)

    def _found(self, reply: ServerReply) -> str | None:
        if reply.result is None:
            supported = _supported(reply)
            if supported and not any(each in _HANDSHAKES for each in supported):
                raise NotUsable(f"the server speaks none of {STATELESS}, {', '.join(_HANDSHAKES)}")
            return None
        versions = reply.result.get("supportedVersions")
        if not isinstance(versions, list) or STATELESS not in versions:
            return None
        return _instructions(reply.result)

    async def _asked_to_discover(self) -> ServerReply:
        return await self._request("server/discover", {}, timeout_seconds=_DISCOVER_SECONDS)

    async def _initialize(self) -> None:
        self._version = HANDSHAKE
        self._connection.speak("")
        params = {
            "protocolVersion": HANDSHAKE,
            "capabilities": QUESTIONS,
            "clientInfo": _CLIENT,
        }
        result = _result_of(await self._request("initialize", params), "initialize")
        version = result.get("protocolVersion")
        if version not in _HANDSHAKES:
            raise NotUsable("the server answered with a version that Holdfast does not know")
        self._version = version
        self._instructions = _instructions(result)
        self._connection.speak(version)
        await self._connection.notify("notifications/initialized")

    async def listed(self) -> Listed:
        """
        List every tool, page by page, without a cache. Raise NotUsable, NeverSent or ReplyLost.
        """
        reply = await self._first_page()
        tools: list[Any] = []
        raw: list[bytes] = []
        cursor: str | None = None
        until = time.monotonic() + MCP_LIST_SECONDS
        while True:
            if cursor is not None:
                reply = await self._request("tools/list", {"cursor": cursor})
            result = _result_of(reply, "tools/list")
            raw.append(reply.raw)
            if sum(map(len, raw)) > MCP_LIST_BYTES_MAX:
                most = MCP_LIST_BYTES_MAX // MIB
                raise NotUsable(f"the server's list of tools is longer than {most} MiB")
            page = result.get("tools")
            if not isinstance(page, list):
                raise NotUsable("the server's list of tools is not a list")
            tools += page
            if len(tools) > MCP_TOOLS_PER_SERVER_MAX:
                raise NotUsable(f"the server lists more than {MCP_TOOLS_PER_SERVER_MAX} tools")
            following = result.get("nextCursor")
            if following is None:
                return Listed(tuple(tools), self._instructions, tuple(raw))
            if not isinstance(following, str) or following == cursor or not page:
                raise NotUsable("the server's list of tools does not end")
            if time.monotonic() > until:
                raise NotUsable(
                    f"the server's list of tools did not end within {MCP_LIST_SECONDS:g} s"
                )
            cursor = following

    async def _first_page(self) -> ServerReply:
        """Ask for the tools and, on the newer wire, for the server's instructions beside them."""
        if self._version != STATELESS:
            return await self._request("tools/list", {})
        asked = [(method, self._params({}, {})) for method in ("server/discover", "tools/list")]
        found, page = await self._connection.read(asked, timeout_seconds=MCP_LIST_SECONDS)
        again = STATELESS in _supported(found)
        self._instructions = (await self._discover() if again else self._found(found)) or ""
        return page

    async def call(
        self,
        tool: str,
        arguments: bytes,
        *,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        extra: CallExtra = NOTHING_EXTRA,
        on_question: OnQuestion | None = None,
    ) -> ServerReply:
        """
        Send exactly one `tools/call`, with these bytes. Raise NeverSent or ReplyLost. A server of
        the newer wire asks in its reply, never inside of the call.
        """
        params = {"name": tool, "arguments": msgspec.Raw(arguments), **extra.members}
        return await self._request(
            "tools/call",
            params,
            timeout_seconds=timeout_seconds,
            headers=headers,
            capabilities=extra.capabilities,
            on_question=None if self.is_stateless else on_question,
        )

    async def read(self, method: str, params: Mapping[str, Any]) -> ServerReply:
        """Send one request that has no effect. Raise NeverSent or ReplyLost."""
        return await self._request(method, dict(params))

    async def task(self, method: str, task: str) -> ServerReply:
        """Ask about a task, or ask the server to stop it. Raise NeverSent or ReplyLost."""
        return await self._request(method, {"taskId": task}, capabilities=EXTENSION)

    async def _request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout_seconds: float = MCP_LIST_SECONDS,
        headers: Mapping[str, str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        on_question: OnQuestion | None = None,
    ) -> ServerReply:
        return await self._connection.request(
            method,
            self._params(params, capabilities or {}),
            timeout_seconds=timeout_seconds,
            headers=headers,
            on_question=on_question,
        )

    def _params(self, params: dict[str, Any], capabilities: Mapping[str, Any]) -> dict[str, Any]:
        return {**params, "_meta": _meta(capabilities)} if self._version == STATELESS else params

    async def close(self) -> None:
        await self._connection.close()


def _meta(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{_PREFIX}protocolVersion": STATELESS,
        f"{_PREFIX}clientInfo": _CLIENT,
        f"{_PREFIX}clientCapabilities": capabilities,
    }


def _result_of(reply: ServerReply, method: str) -> dict[str, Any]:
    if reply.result is None:
        code = (reply.error or {}).get("code")
        said = f" (code {code})" if isinstance(code, int) else ""
        raise NotUsable(f"the server refused {method}{said}")
    return reply.result


def _instructions(result: dict[str, Any]) -> str:
    text = result.get("instructions", "")
    if not isinstance(text, str | None):
        raise NotUsable("the server's instructions are not text")
    if len((text or "").encode(errors="replace")) > MCP_INSTRUCTIONS_BYTES_MAX:
        raise NotUsable(
            f"the server's instructions are longer than {MCP_INSTRUCTIONS_BYTES_MAX} bytes"
        )
    return text or ""


def _supported(reply: ServerReply) -> list[str]:
    """Return the versions that a server names when it refuses ours; empty for any other reply."""
    error = reply.error or {}
    data = error.get("data")
    if error.get("code") != _UNSUPPORTED_VERSION or not isinstance(data, dict):
        return []
    supported = data.get("supported")
    return [str(each) for each in supported] if isinstance(supported, list) else []
