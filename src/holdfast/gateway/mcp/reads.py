"""
Requests of a client that only read: resources, prompts and completions of one server, if its
settings let them through (`relay`).

Nobody is asked about a read, so it is off unless a person has named it in settings. The server must
be as it was pinned. A request is written anew from the members that its method has, and nothing
else of the client reaches the server. A reply that asks for input is refused: no form of a server
reaches a client, and no client's answer a server. Reading a resource or a prompt is a turn of the
client's session, with the digest of what came.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.errors import HoldfastError
from holdfast.gateway.mcp.clients import session_of_client, source_of_call
from holdfast.gateway.mcp.rpc import INVALID_PARAMS, SERVER_ERROR, ClientMessage, RpcProblem
from holdfast.gateway.server.tokens import Bearer
from holdfast.runtime.cancellation import finish
from holdfast.runtime.context import PROXY_AGENT
from holdfast.runtime.external_loop.turn import ExternalTurn
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.view.safe_text import render_line

_TEXT_CHARS_MAX = 4096
_ARGUMENTS_MAX = 64
_COMPLETE = "complete"

Check = Callable[[Any], Any]


class ReadMethod(NamedTuple):
    """A method that has no effect: the kinds that let it through, and its members."""

    kinds: tuple[str, ...]
    needed: Mapping[str, Check]
    optional: Mapping[str, Check]
    subject: str | None = None  # the member that names what is read, if the journal keeps it


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_CHARS_MAX:
        raise ValueError
    return value


def _name(value: Any) -> str:
    """A name or an address, which may have to stand in a header."""
    text = _text(value)
    if not text or not text.isascii() or not text.isprintable():
        raise ValueError
    return text


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > _ARGUMENTS_MAX:
        raise ValueError
    return {_text(key): _text(each) for key, each in value.items()}


def _reference(value: Any) -> dict[str, str]:
    match value:
        case {"type": "ref/prompt", "name": name, **rest} if not set(rest) - {"title"}:
            return {"type": "ref/prompt", "name": _name(name)}
        case {"type": "ref/resource", "uri": uri, **rest} if not rest:
            return {"type": "ref/resource", "uri": _name(uri)}
    raise ValueError


def _argument(value: Any) -> dict[str, str]:
    found = _texts(value)
    if set(found) != {"name", "value"}:
        raise ValueError
    return found


def _context(value: Any) -> dict[str, dict[str, str]]:
    if not isinstance(value, dict) or set(value) - {"arguments"}:
        raise ValueError
    return {"arguments": _texts(value.get("arguments", {}))}


_PAGE: Mapping[str, Check] = {"cursor": _text}
READS: Mapping[str, ReadMethod] = {
    "resources/list": ReadMethod(("resources",), {}, _PAGE),
    "resources/templates/list": ReadMethod(("resources",), {}, _PAGE),
    "resources/read": ReadMethod(("resources",), {"uri": _name}, {}, "uri"),
    "prompts/list": ReadMethod(("prompts",), {}, _PAGE),
    "prompts/get": ReadMethod(("prompts",), {"name": _name}, {"arguments": _texts}, "name"),
    "completion/complete": ReadMethod(
        ("prompts", "resources"),
        {"ref": _reference, "argument": _argument},
        {"context": _context},
    ),
}
_CAPABILITIES: Mapping[str, tuple[str, ...]] = {
    "prompts": ("prompts",),
    "resources": ("resources",),
    "completions": ("prompts", "resources"),
}


class ReadingClient(NamedTuple):
    """The client that reads, and the one server that it sees."""

    bearer: Bearer
    name: str
    server: str
    key: str | None


def capabilities_of(relayed: tuple[str, ...]) -> dict[str, Any]:
    return {name: {} for name, kinds in _CAPABILITIES.items() if set(kinds) & set(relayed)}


def is_relayed(method: str | None, relayed: tuple[str, ...]) -> bool:
    known = READS.get(method or "")
    return known is not None and bool(set(known.kinds) & set(relayed))


async def read_for(service: Service, reader: ReadingClient, message: ClientMessage) -> bytes:
    """Return the server's reply: `{"result": ...}` or `{"error": ...}`. Raise RpcProblem."""
    method = message.method or ""
    params = _params(READS[method], message.params)
    subject = READS[method].subject
    if subject is None:
        return _plain(await service.servers.read(reader.server, method, params))
    incoming = Incoming(
        text=f"{reader.name} reads {render_line(params[subject]).text} from {reader.server}",
        source=source_of_call(reader.bearer, shares_user=False),
        agent=PROXY_AGENT,
        dedup=reader.key,
    )
    session = session_of_client(reader.bearer, reader.name)
    turn = await service.loops.begin(session, incoming)
    try:
        reply = _plain(await service.servers.read(reader.server, method, params))
        await turn.finish(f"{len(reply)} bytes, blake3 {blake3(reply).hexdigest()}")
    except BaseException as exc:
        why = exc.message if isinstance(exc, RpcProblem | HoldfastError) else "its client left"
        await finish(_end(turn, why))
        raise
    finally:
        await turn.leave()
    return reply


async def _end(turn: ExternalTurn, why: str) -> None:
    """A read that failed is over. Nobody has to find out whether it happened."""
    await turn.fail("not_read", why)


def _params(method: ReadMethod, given: Mapping[str, Any]) -> dict[str, Any]:
    known = {**method.needed, **method.optional}
    members = {key: value for key, value in given.items() if key != "_meta"}
    if odd := sorted(set(members) - set(known)):
        raise RpcProblem(INVALID_PARAMS, f"params has a member that is not taken: {odd[0][:64]!a}")
    if missing := sorted(set(method.needed) - set(members)):
        raise RpcProblem(INVALID_PARAMS, f"params lacks {missing[0]}")
    found: dict[str, Any] = {}
    for key, value in members.items():
        try:
            found[key] = known[key](value)
        except ValueError:
            raise RpcProblem(INVALID_PARAMS, f"params.{key} is not one") from None
    return found


class _Reply(msgspec.Struct):
    result: dict[str, msgspec.Raw] | None = None


def _plain(reply: bytes) -> bytes:
    result = msgspec.json.decode(reply, type=_Reply).result
    if result is None or "resultType" not in result:
        return reply
    if msgspec.json.decode(result["resultType"]) != _COMPLETE:
        text = "the server asked for input, which is not passed on to a client"
        raise RpcProblem(SERVER_ERROR, text)
    return reply
