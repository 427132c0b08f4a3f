"""
The outermost layer checks Host, Origin and form before a request is routed, read or parsed.

A browser can be made to send almost anything to a port of this machine. It can't send another
site's request with our Host and our Origin. So both are compared exactly, with the port. There is
no CORS and no WebSocket. A request that a foreign site started is always refused.
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from holdfast.gateway.http.asgi import AsgiApp, Message, Receive, Scope, Send
from holdfast.gateway.http.problems import ProblemDetails, problem, problem_response

HEADERS_MAX = 64
HEAD_BYTES_MAX = 32 * 1024
SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
_API_CSP = (
    b"content-security-policy",
    b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
)
_PATH = re.compile(rb"/[A-Za-z0-9._~/-]*\Z")
_OURS = (b"same-origin", b"none")


def allowed_hosts(host: str, port: int, more: Iterable[str] = ()) -> frozenset[str]:
    """
    Return the allowed Host values. A server on loopback is also called localhost, and nothing else.

    >>> sorted(allowed_hosts("127.0.0.1", 8321))
    ['127.0.0.1:8321', 'localhost:8321']
    """
    named = f"[{host}]" if ":" in host else host
    names = {f"{named}:{port}", *(each.lower() for each in more)}
    if host in ("127.0.0.1", "::1", "localhost"):
        names.add(f"localhost:{port}")
    return frozenset(names)


class RequestGuard:
    """Wrap the whole application and add the headers that every answer carries."""

    def __init__(
        self,
        app: AsgiApp,
        hosts: Collection[str],
        *,
        proxied: Collection[str] = (),
        refused: Callable[[Scope, int], None] = lambda _, __: None,
    ) -> None:
        self._app = app
        self._refused = refused
        self._hosts = frozenset(each.encode() for each in hosts)
        # Names that a proxy serves. Browsers reach them by https, which ends at the proxy.
        self._proxied = frozenset(each.lower().encode() for each in proxied)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        safe_send = _with_headers(send)
        if (refusal := self._refusal(scope)) is not None:
            self._refused(scope, refusal.status)
            await problem_response(refusal, {"connection": "close"})(safe_send)
            return
        await self._app(scope, receive, safe_send)

    def _refusal(self, scope: Scope) -> ProblemDetails | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        host = _values(headers, b"host")
        if (
            len(host) != 1
            or host[0].lower() not in self._hosts
            or not raw.startswith(b"/")
            or raw.startswith(b"//")
        ):
            return problem(
                403,
                "wrong_host",
                "this server does not answer under that name",
                "use the address that `holdfast serve` printed",
            )
        if not self._is_own_page(headers, host[0]) or not self._is_own_fetch(scope, headers):
            return problem(403, "wrong_origin", "another site's page may not use this server")
        size = (
            len(raw)
            + len(scope["query_string"])
            + sum(len(name) + len(value) for name, value in headers)
        )
        if len(headers) > HEADERS_MAX or size > HEAD_BYTES_MAX:
            return problem(
                400,
                "malformed",
                f"a request's head has at most {HEADERS_MAX} headers and {HEAD_BYTES_MAX} bytes",
            )
        if _values(headers, b"upgrade") or scope["method"] == "CONNECT":
            return problem(
                400,
                "malformed",
                "this server speaks HTTP only; nothing is upgraded",
                "follow a session with GET .../events",
            )
        if not _PATH.match(raw):
            return problem(
                400,
                "malformed",
                "the path holds characters that no name of ours has",
                "CHANNEL/THREAD of a-z, 0-9, '.', '_', '-'",
            )
        return None

    def _is_own_page(self, headers: list[tuple[bytes, bytes]], host: bytes) -> bool:
        origins, name = _values(headers, b"origin"), host.lower()
        own = (
            {b"http://" + name, b"https://" + name}
            if name in self._proxied
            else {b"http://" + name}
        )
        return not origins or (len(origins) == 1 and origins[0] in own)

    @staticmethod
    def _is_own_fetch(scope: Scope, headers: list[tuple[bytes, bytes]]) -> bool:
        """
        Return whether the server's own page sent the request. Only a link may come from another
        site.
        """
        site = _values(headers, b"sec-fetch-site")
        if not site or (len(site) == 1 and site[0] in _OURS):
            return True
        return (
            scope["path"] == "/"
            and scope["method"] == "GET"
            and _values(headers, b"sec-fetch-mode") == [b"navigate"]
        )


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _with_headers(send: Send) -> Send:
    async def safe_send(message: Message) -> None:
        if message["type"] == "http.response.start":
            given: list[Any] = list(message.get("headers", []))
            names = {bytes(key).lower() for key, _ in given}
            given += [
                (key, value) for key, value in (*SECURITY_HEADERS, _API_CSP) if key not in names
            ]
            if b"cache-control" not in names:
                given.append((b"cache-control", b"no-store"))
            message = {**message, "headers": given}
        await send(message)

    return safe_send
