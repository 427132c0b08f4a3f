"""
G1: who is meant, from which page and in which form, judged layer by layer with no server around it.
"""

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.gateway.http.asgi import Message, Receive, Scope, Send
from holdfast.gateway.http.request_guard import (
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    SECURITY_HEADERS,
    RequestGuard,
    allowed_hosts,
)

HOST = b"127.0.0.1:8321"
PROXIED = b"agents.example"
ANSWER: tuple[Message, ...] = (
    {"type": "http.response.start", "status": 204, "headers": []},
    {"type": "http.response.body", "body": b"", "more": 1},
)


class Asked:
    """One request: what came back, and whether anything behind the guard heard of it."""

    def __init__(
        self,
        *headers: tuple[bytes, bytes],
        host: bytes | None = HOST,
        answer: tuple[Message, ...] = ANSWER,
        **scope: Any,
    ) -> None:
        self.reached = False
        self.sent: list[Message] = []
        self._answer = answer
        whole = [*([(b"host", host)] if host is not None else []), *headers]
        path: str = scope.get("path", "/v1/sessions")
        made = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": whole,
        }
        guard = RequestGuard(
            self._app,
            {*allowed_hosts("127.0.0.1", 8321), PROXIED.decode()},
            proxied=["Agents.Example"],
        )
        asyncio.run(guard({**made, **scope}, _never, self._send))

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        self.reached = True
        for each in self._answer:
            await send(each)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def told(self) -> tuple[int, str]:
        """Status and code; a request that got through has none."""
        assert self.reached is (self.sent[0]["status"] == 204)
        return self.sent[0]["status"], "" if self.reached else msgspec.json.decode(
            self.sent[1]["body"]
        )["code"]


async def _never() -> Message:
    raise AssertionError("nothing of a request is read here")


THROUGH = (204, "")
WRONG_HOST, WRONG_ORIGIN, MALFORMED = (403, "wrong_host"), (403, "wrong_origin"), (400, "malformed")


@pytest.mark.parametrize(
    ("host", "told"),
    [
        (b"127.0.0.1:8321", THROUGH),
        (b"localhost:8321", THROUGH),
        (b"LocalHost:8321", THROUGH),
        (PROXIED, THROUGH),
        (None, WRONG_HOST),
        (b"", WRONG_HOST),
        (b"127.0.0.1", WRONG_HOST),
        (b"127.0.0.1:8322", WRONG_HOST),
        (b"localhost.:8321", WRONG_HOST),
        (b"evil.example:8321", WRONG_HOST),
        (b"agents.example:8321", WRONG_HOST),
    ],
)
def test_only_our_own_names_are_answered(host: bytes | None, told: tuple[int, str]) -> None:
    assert Asked(host=host).told == told


@pytest.mark.parametrize("path", ["//evil.example/", "http://127.0.0.1:8321/", "", "*"])
def test_an_address_that_is_not_a_path_names_another_host(path: str) -> None:
    assert Asked(path=path).told == WRONG_HOST


def test_two_hosts_are_refused() -> None:
    assert Asked((b"host", HOST)).told == WRONG_HOST


def test_a_server_that_tells_no_raw_path_is_judged_by_the_path_it_tells() -> None:
    assert Asked(raw_path=None, path="/v1/a b").told == MALFORMED
    assert Asked(raw_path=None).told == THROUGH


@pytest.mark.parametrize(
    ("host", "origins", "told"),
    [
        (HOST, [b"http://127.0.0.1:8321"], THROUGH),
        (b"LOCALHOST:8321", [b"http://localhost:8321"], THROUGH),
        (PROXIED, [b"http://agents.example"], THROUGH),
        (PROXIED, [b"https://agents.example"], THROUGH),
        (b"Agents.Example", [b"https://agents.example"], THROUGH),
        (HOST, [b"https://127.0.0.1:8321"], WRONG_ORIGIN),  # nobody speaks TLS there
        (HOST, [b"http://localhost:8321"], WRONG_ORIGIN),  # ours, and another origin all the same
        (HOST, [b"http://127.0.0.1:8322"], WRONG_ORIGIN),
        (HOST, [b"http://127.0.0.1:8321.evil.example"], WRONG_ORIGIN),
        (HOST, [b"null"], WRONG_ORIGIN),
        (HOST, [b""], WRONG_ORIGIN),
        (HOST, [b"http://127.0.0.1:8321", b"http://127.0.0.1:8321"], WRONG_ORIGIN),
    ],
)
def test_only_the_page_of_the_very_name_that_is_asked_may_ask(
    host: bytes, origins: list[bytes], told: tuple[int, str]
) -> None:
    assert Asked(*((b"origin", each) for each in origins), host=host).told == told


@pytest.mark.parametrize(
    ("sites", "mode", "scope", "told"),
    [
        ([b"same-origin"], b"cors", {}, THROUGH),
        ([b"none"], b"navigate", {}, THROUGH),
        ([b"same-site"], b"cors", {}, WRONG_ORIGIN),
        ([b"cross-site"], b"cors", {}, WRONG_ORIGIN),
        ([b"same-origin", b"same-origin"], b"cors", {}, WRONG_ORIGIN),
        ([b"cross-site"], b"navigate", {"path": "/"}, THROUGH),  # a link to the page
        ([b"cross-site"], b"no-cors", {"path": "/"}, WRONG_ORIGIN),
        ([b"cross-site"], b"navigate", {"path": "/", "method": "POST"}, WRONG_ORIGIN),
        ([b"cross-site"], b"navigate", {"path": "/v1/sessions"}, WRONG_ORIGIN),
    ],
)
def test_another_site_may_link_to_the_page_and_no_more(
    sites: list[bytes], mode: bytes, scope: dict[str, str], told: tuple[int, str]
) -> None:
    assert (
        Asked(
            *((b"sec-fetch-site", each) for each in sites), (b"sec-fetch-mode", mode), **scope
        ).told
        == told
    )


@pytest.mark.parametrize(("more", "told"), [(0, THROUGH), (1, MALFORMED)])
def test_a_head_is_bounded_in_headers_and_in_bytes(more: int, told: tuple[int, str]) -> None:
    """As much as the bounds say, all of it counted: path, query, names and values."""
    assert Asked(*[(b"x", b"y")] * (HEADERS_MAX - 1 + more)).told == told
    counted = len(b"/v1/sessions") + len(b"after=1") + len(b"host") + len(HOST) + len(b"filling")
    assert (
        Asked((b"filling", b"z" * (HEAD_BYTES_MAX - counted + more)), query_string=b"after=1").told
        == told
    )


@pytest.mark.parametrize(
    ("headers", "scope"),
    [
        ([(b"upgrade", b"websocket")], {}),
        ([], {"method": "CONNECT"}),
        ([], {"path": "/v1/sessions/a%2f..%2fb"}),
        ([], {"path": "/v1/sessions/a\n"}),
        ([], {"path": "/v1/a?b"}),
    ],
)
def test_the_guard_refuses_unsupported_requests_as_malformed(
    headers: list[tuple[bytes, bytes]], scope: dict[str, str]
) -> None:
    assert Asked(*headers, **scope).told == MALFORMED


def test_no_websocket_is_opened_and_nothing_else_gets_past() -> None:
    asked = Asked(type="websocket")
    assert (asked.reached, asked.sent) == (False, [{"type": "websocket.close", "code": 1008}])
    asked = Asked(type="lifespan")
    assert (asked.reached, asked.sent) == (False, [])


def test_a_refused_connection_is_not_kept() -> None:
    assert Asked(host=b"evil.example").headers[b"connection"] == b"close"


def test_every_answer_carries_the_strict_headers_and_an_answers_own_are_kept() -> None:
    plain = Asked()
    assert plain.headers.items() >= {*SECURITY_HEADERS, (b"cache-control", b"no-store")}
    assert plain.headers[b"content-security-policy"].startswith(b"default-src 'none'")
    assert plain.sent[1] == ANSWER[1]
    refused = Asked(host=None)
    assert refused.headers.items() >= {*SECURITY_HEADERS, (b"cache-control", b"no-store")}
    own = [
        (b"Cache-Control", b"max-age=1"),
        (b"X-Frame-Options", b"SAMEORIGIN"),
        (b"content-security-policy", b"default-src 'self'"),
    ]
    answered = Asked(
        answer=({"type": "http.response.start", "status": 204, "headers": own}, ANSWER[1])
    )
    assert answered.sent[0]["headers"][:3] == own
    assert sorted(key for key, _ in answered.sent[0]["headers"][3:]) == sorted(
        key for key, _ in SECURITY_HEADERS if key != b"x-frame-options"
    )
    assert (
        Asked(answer=({"type": "http.response.start", "status": 204}, ANSWER[1])).headers.keys()
        == plain.headers.keys()
    )


@pytest.mark.parametrize(
    ("host", "more", "names"),
    [
        ("127.0.0.1", (), {"127.0.0.1:8321", "localhost:8321"}),
        ("localhost", (), {"localhost:8321"}),
        ("::1", (), {"[::1]:8321", "localhost:8321"}),
        ("10.0.0.5", ("Agents.Example",), {"10.0.0.5:8321", "agents.example"}),
    ],
)
def test_only_a_server_on_loopback_is_called_localhost(
    host: str, more: tuple[str, ...], names: set[str]
) -> None:
    assert allowed_hosts(host, 8321, more) == names
