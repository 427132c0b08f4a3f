"""One request over HTTP with aiohttp, and what its end makes certain. Used by the chats."""

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered

if TYPE_CHECKING:
    import aiohttp

ANSWER_BYTES_MAX = 4 * 1024 * 1024  # a hundred of the longest messages are under 2 MiB
CONNECT_SECONDS = 10
_PIECE_BYTES = 64 * 1024


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def ask(
    vendor: str,
    method: str,
    address: str,
    *,
    seconds: float,
    headers: dict[str, str] | None = None,
    body: object = None,
) -> HttpAnswer:
    """
    `NotDelivered`: the request certainly had no effect. `DeliveryInDoubt`: nobody knows. Neither
    names the address, which may hold a token.
    """
    import aiohttp

    limit = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
    try:
        # A connection of its own for each request: one that the server closed while it was idle
        # would leave a message in doubt.
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, address, json=body, headers=headers, timeout=limit, allow_redirects=False
            ) as response,
        ):
            raw = await _whole(response.content, vendor)
            found = {name.lower(): value for name, value in response.headers.items()}
            return HttpAnswer(response.status, found, raw)
    except aiohttp.ClientConnectorError as exc:
        raise NotDelivered(
            f"no connection to {vendor}: {exc.os_error.strerror or 'refused'}", may_pass=True
        ) from None
    except (TimeoutError, aiohttp.ClientError, OSError) as exc:
        raise DeliveryInDoubt(f"{vendor} gave no answer: {type(exc).__name__}") from None


async def _whole(content: "aiohttp.StreamReader", vendor: str) -> bytes:
    """
    Read to the end. A single `read(n)` returns what has come so far: of a long answer, a part.
    """
    found = bytearray()
    async for piece in content.iter_chunked(_PIECE_BYTES):
        found += piece
        if len(found) > ANSWER_BYTES_MAX:
            raise DeliveryInDoubt(f"{vendor} gave an answer of more than {ANSWER_BYTES_MAX} bytes")
    return bytes(found)


def json_of(raw: bytes) -> Any:
    """The value of a JSON text, or None."""
    import msgspec

    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
