"""
The methods of MCP that a client may call. There is no method, tool or form by which a client could
approve anything: an answer comes from the page, a terminal or a channel.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import HoldfastError, Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.mcp.calls.flight import Flight, OnWait, say_nothing
from holdfast.gateway.mcp.calls.outcomes import find_outcome
from holdfast.gateway.mcp.calls.relayed_call import RelayedCall
from holdfast.gateway.mcp.clients import session_of_client, source_of_call
from holdfast.gateway.mcp.offer import OUTCOME, ClientOffer
from holdfast.gateway.mcp.param_headers import HeaderValues, check_param_headers
from holdfast.gateway.mcp.reads import ReadingClient, capabilities_of, is_relayed, read_for
from holdfast.gateway.mcp.rpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_ERROR,
    ClientMessage,
    RpcProblem,
    progress_message,
    result_message,
    server_message,
)
from holdfast.gateway.mcp.versions import PREFIX, STATELESS, agreed
from holdfast.gateway.server.tokens import Bearer
from holdfast.limits import ARGUMENTS_BYTES_MAX
from holdfast.runtime.external_loop.gate import Gate
from holdfast.secrecy import secrecy_of

_INFO = {"name": "holdfast", "version": "0.1.0"}
_CAPABILITIES: dict[str, Any] = {"tools": {}}
_CALL_MEMBERS = frozenset({"name", "arguments", "_meta"})
_TOKEN_CHARS_MAX = 256
_NOTE_STEP = 1e-6  # progress must grow with each note, and a call that waits has not come far
_ABOUT = (
    "Tool calls go through Holdfast. Some wait for a person: their result then names an id, and "
    f"{OUTCOME} gives the result later. Nothing that you send can approve a call."
)


class ProxyClient(NamedTuple):
    """The client of one request: facts from its token and connection, and its own name."""

    bearer: Bearer
    name: str
    is_stateless: bool
    server: str | None  # None: all servers
    shares_user: bool
    key: str | None  # of this very request, if the client may send it again
    headers: HeaderValues | None  # of a request whose arguments may stand in them too


class ClientReply(NamedTuple):
    """The answer, the flight whose client gets it, and the code of an error of the server."""

    body: bytes
    flight: Flight | None = None
    code: int = 0


Note = Callable[[bytes], Awaitable[None]]
"""Sends a message to the client before the answer."""


class McpMethods:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._service = gateway.service

    @asynccontextmanager
    async def answer(
        self, message: ClientMessage, client: ProxyClient, note: Note
    ) -> AsyncGenerator[ClientReply, None]:
        """Yield the answer to a request. Raise RpcProblem."""
        ident, params = message.id, message.params
        match message.method:
            case "tools/call" if params.get("name") == OUTCOME:
                yield ClientReply(await self._outcome(message, client))
            case "tools/call":
                async with self._called(message, client, _notes(message, note)) as reply:
                    yield reply
            case "tools/list":
                result = {"tools": (await self._offer(client)).tools()}
                yield ClientReply(result_message(ident, _listed(result, client)))
            case "initialize" if not client.is_stateless:
                yield ClientReply(result_message(ident, await self._initialized(params, client)))
            case "server/discover" if client.is_stateless:
                yield ClientReply(result_message(ident, await self._discovered(client)))
            case "ping" if not client.is_stateless:
                yield ClientReply(result_message(ident, {}))
            case method if is_relayed(method, self._relayed(client)):
                yield await self._read(message, client)
            case _:
                raise RpcProblem(METHOD_NOT_FOUND, "Method not found")

    def _relayed(self, client: ProxyClient) -> tuple[str, ...]:
        """A client that sees all servers reads from none: names of two servers could be equal."""
        return () if client.server is None else tuple(self._service.servers.relayed(client.server))

    async def _read(self, message: ClientMessage, client: ProxyClient) -> ClientReply:
        reader = ReadingClient(client.bearer, client.name, client.server or "", client.key)
        try:
            reply = await read_for(self._service, reader, message)
        except HoldfastError as exc:
            raise self._problem(exc) from exc
        return ClientReply(server_message(message.id, _unkept(reply, client)), code=_code(reply))

    async def _offer(self, client: ProxyClient) -> ClientOffer:
        return ClientOffer(await self._service.servers.offered(), client.server)

    async def _initialized(self, params: dict[str, Any], client: ProxyClient) -> dict[str, Any]:
        return {
            "protocolVersion": agreed(params.get("protocolVersion")),
            "capabilities": self._capabilities(client),
            "serverInfo": _INFO,
            "instructions": await self._instructions(client),
        }

    async def _discovered(self, client: ProxyClient) -> dict[str, Any]:
        result = {
            "supportedVersions": [STATELESS],
            "capabilities": self._capabilities(client),
            "instructions": await self._instructions(client),
            "_meta": {f"{PREFIX}serverInfo": _INFO},
        }
        return _listed(result, client)

    def _capabilities(self, client: ProxyClient) -> dict[str, Any]:
        return {**_CAPABILITIES, **capabilities_of(self._relayed(client))}

    async def _instructions(self, client: ProxyClient) -> str:
        theirs = (await self._offer(client)).instructions()
        return f"{_ABOUT}\n\n{theirs}" if theirs else _ABOUT

    # --- calls

    @asynccontextmanager
    async def _called(
        self, message: ClientMessage, client: ProxyClient, on_wait: OnWait
    ) -> AsyncGenerator[ClientReply, None]:
        given = _call_name(message, client)
        pin = (await self._offer(client)).pin_of(given)
        if pin is None:
            raise RpcProblem(INVALID_PARAMS, f"Unknown tool: {given[:128]!a}")
        if client.headers is not None and "x-mcp-header" in pin.definition:
            schema = msgspec.json.decode(pin.definition).get("inputSchema")
            check_param_headers(schema, message.params.get("arguments"), client.headers)
        arguments = _arguments(message)
        if (size := len(arguments.encode())) > ARGUMENTS_BYTES_MAX:  # no record could hold the call
            text = (
                f"Not run: {size} bytes of arguments are too many (at most {ARGUMENTS_BYTES_MAX})"
            )
            yield ClientReply(_said(message, client, text))
            return
        call = RelayedCall(
            session=session_of_client(client.bearer, client.name),
            source=source_of_call(client.bearer, shares_user=client.shares_user),
            client=client.name,
            tool=pin.name,
            arguments=arguments,
            key=client.key,
        )
        wait_seconds = self._gateway.settings.mcp_wait_seconds
        try:
            async with self._gateway.desk.call(
                call, wait_seconds=wait_seconds, on_wait=on_wait
            ) as (flight, gate):
                code = 0 if gate.result is None else _code(gate.result)
                yield ClientReply(self._reply(message, client, gate, given), flight, code)
        except HoldfastError as exc:
            raise self._problem(exc) from exc

    async def _outcome(self, message: ClientMessage, client: ProxyClient) -> bytes:
        """Give the result of an earlier call to the person who asked for it, and to nobody else."""
        arguments = message.params.get("arguments")
        name = arguments.get("id") if isinstance(arguments, dict) else None
        if not isinstance(name, str) or arguments != {"id": name}:
            raise RpcProblem(INVALID_PARAMS, f'{OUTCOME} takes {{"id": "a-..."}}')
        bearer = client.bearer
        try:
            self._gateway.spend_miss(bearer)
            found = await find_outcome(self._service, bearer, name)
            if found is None:
                return _said(message, client, f"No call of yours has the id {name[:64]!a}.")
            self._gateway.refund_miss(bearer)
            if found.gate.closed:
                await self._gateway.desk.collected(found.session, found.turn)
        except HoldfastError as exc:
            raise self._problem(exc) from exc
        return self._reply(message, client, found.gate, found.gate.tool, name)

    def _reply(
        self, message: ClientMessage, client: ProxyClient, gate: Gate, tool: str, name: str = ""
    ) -> bytes:
        """Write a call's result, or the state that it is in."""
        if gate.result is not None:
            return server_message(message.id, _typed(gate.result, client))
        if gate.closed and gate.outcome == "ok":
            return _said(message, client, gate.text, is_error=False)
        if gate.closed:
            return _said(message, client, gate.text or f"{tool} was not run.")
        if not gate.waiting:
            return _said(message, client, f"{tool} runs now; its result is not there yet.")
        name = gate.approval.id if gate.approval is not None else name
        return _said(message, client, _waits(tool, name), meta={"holdfast/approval": name})

    def _problem(self, exc: HoldfastError) -> RpcProblem:
        text = secrecy_of(self._service.live.secrets).hidden(
            exc.message + (f"; {exc.hint}" if isinstance(exc, Refused) and exc.hint else "")
        )
        return RpcProblem(SERVER_ERROR, text, {"code": exc.code})


def _waits(tool: str, approval: str) -> str:
    return (
        f"Not run yet: this call of {tool} waits for a person's approval, {approval}. Nothing that "
        "you send can approve it. If it is approved it runs once, also without you. Call "
        f'{OUTCOME} with {{"id": "{approval}"}} for its result. The same call again waits for the '
        "same approval, and does not run twice."
    )


def _notes(message: ClientMessage, note: Note) -> OnWait:
    """Return what tells a client that its call waits, if the client asked for progress."""
    meta = message.params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if isinstance(token, bool) or not isinstance(token, int | str):
        return say_nothing
    if isinstance(token, str) and len(token) > _TOKEN_CHARS_MAX:
        return say_nothing
    count = 0

    async def tell(gate: Gate) -> None:
        nonlocal count
        count += 1
        name = gate.approval.id if gate.approval is not None else ""
        text = f"Waits for a person's approval: {name}"
        await note(progress_message(token, count * _NOTE_STEP, text))

    return tell


def _call_name(message: ClientMessage, client: ProxyClient) -> str:
    name = message.params.get("name")
    if not isinstance(name, str):
        raise RpcProblem(INVALID_PARAMS, "params.name must name a tool")
    known = _CALL_MEMBERS | (_answers(message.params) if client.is_stateless else set())
    if odd := sorted(set(message.params) - known):
        raise RpcProblem(INVALID_PARAMS, f"params has a member that is not taken: {odd[0][:64]!a}")
    return name


def _answers(params: dict[str, Any]) -> set[str]:
    """
    Return the members of a newer client's answer to a server that asked for input. No question of a
    server reaches a client, so a well-formed answer is read over, and reaches nobody.
    """
    given, state = params.get("inputResponses"), params.get("requestState")
    is_given = isinstance(given, dict) and all(isinstance(each, dict) for each in given.values())
    found = {"inputResponses": is_given, "requestState": isinstance(state, str)}
    return {member for member, is_read in found.items() if is_read}


def _arguments(message: ClientMessage) -> str:
    """Write the arguments anew: one text for equal ones."""
    arguments = message.params.get("arguments")
    if not isinstance(arguments, dict | None):
        raise RpcProblem(INVALID_PARAMS, "params.arguments must be an object")
    return msgspec.json.encode(arguments or {}, order="sorted").decode()


def _said(
    message: ClientMessage,
    client: ProxyClient,
    text: str,
    *,
    is_error: bool = True,
    meta: dict[str, str] | None = None,
) -> bytes:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": is_error}
    if meta is not None:
        result["_meta"] = meta
    if client.is_stateless:
        result["resultType"] = "complete"
    return result_message(message.id, result)


def _listed(result: dict[str, Any], client: ProxyClient) -> dict[str, Any]:
    """A pin may be withdrawn at any time, so nothing may be kept."""
    if not client.is_stateless:
        return result
    return {**result, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def _unkept(reply: bytes, client: ProxyClient) -> bytes:
    """Newer clients need the type of a result, and a note to keep none. See `_listed`."""
    result = msgspec.json.decode(reply, type=_Typed).result
    if not client.is_stateless or result is None:
        return reply
    return msgspec.json.encode({"result": _listed(result, client)})


class _Typed(msgspec.Struct):
    result: dict[str, msgspec.Raw] | None = None


class _Failed(msgspec.Struct):
    error: dict[str, msgspec.Raw] | None = None


def _code(reply: bytes) -> int:
    """Return the code of a server's error; 0 for a result, and for an error without a code."""
    if not reply.startswith(b'{"error"'):
        return 0
    error = msgspec.json.decode(reply, type=_Failed).error or {}
    code = msgspec.json.decode(error["code"]) if "code" in error else 0
    return code if isinstance(code, int) else 0


def _typed(reply: bytes, client: ProxyClient) -> bytes:
    """Newer clients need the type of a result, which older servers do not send."""
    result = msgspec.json.decode(reply, type=_Typed).result
    if not client.is_stateless or result is None or "resultType" in result:
        return reply
    rest = reply[reply.index(b"{", 1) + 1 :]
    comma = b"," if result else b""
    return b'{"result":{"resultType":"complete"' + comma + rest
