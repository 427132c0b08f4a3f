"""One request over HTTP with aiohttp, and what its end makes certain. Used by the chats."""

from typing import Any, NamedTuple

from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered

ANSWER_BYTES_MAX = 4 * 1024 * 1024  # a hundred of the longest messages are under 2 MiB
CONNECT_SECONDS = 10


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
            raw = await response.content.read(ANSWER_BYTES_MAX)
            found = {name.lower(): value for name, value in response.headers.items()}
            return HttpAnswer(response.status, found, raw)
    except aiohttp.ClientConnectorError as exc:
        raise NotDelivered(
            f"no connection to {vendor}: {exc.os_error.strerror or 'refused'}", may_pass=True
        ) from None
    except (TimeoutError, aiohttp.ClientError, OSError) as exc:
        raise DeliveryInDoubt(f"{vendor} gave no answer: {type(exc).__name__}") from None


def json_of(raw: bytes) -> Any:
    """The value of a JSON text, or None."""
    import msgspec

    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
