"""A request that is malformed, too large or endless is refused before it costs anything."""

import json

import httpx
import pytest

from tests.acceptance.gateway.attacks.conftest import get
from tests.acceptance.gateway.conftest import Gateway, status


@pytest.mark.parametrize(
    "ident",
    ["..%2f/x", "..%2fetc/passwd", "%00/x", "a/%00", "x" * 300 + "/y", "a/" + "x" * 65, "A/b", "e%CC%81/x", "%C3%A9/x", "../x", "a/..", ".a/b", "-a/b",
     "a b/c", "a%20b/c", "a/b%0a", "a;b/c", "a/b\\c", "a/%2e%2e"]
)  # fmt: skip
def test_a_name_that_is_not_a_session_id_is_malformed(
    shared: Gateway, token: str, ident: str
) -> None:
    for rest in ("", "/events", "/messages", "/cancel"):
        method = "POST" if rest in ("/messages", "/cancel") else "GET"
        body = ("Content-Type: application/json", "Content-Length: 12") if method == "POST" else ()
        lines = [
            f"{method} /v1/sessions/{ident}{rest} HTTP/1.1",
            f"Host: 127.0.0.1:{shared.port}",
            f"Authorization: Bearer {token}",
            *body,
            "Connection: close",
            "",
            "",
        ]
        answer = shared.raw("\r\n".join(lines).encode() + (b'{"text":"x"}' if body else b""))
        assert status(answer) == 400, (ident, rest, answer)


@pytest.mark.parametrize(
    "query",
    [
        "x') OR '1'='1=1",
        "limit=0",
        "limit=501",
        "limit=1e3",
        "limit=-1",
        "limit=1&limit=2",
        "after=",
        "after=../x",
        "scopes=admin",
        "limit=９",
    ],
)
def test_an_unknown_or_odd_query_is_malformed(alice: httpx.Client, query: str) -> None:
    for path in ("/v1/sessions", "/v1/approvals", "/v1/grants"):
        if query == "after=../x" and path != "/v1/sessions":
            continue
        answer = alice.get(f"{path}?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"null", b'{"text": 1}', b'{"text": "a", "text": "b"}', b'{"text": NaN}', b'{"text": "\\ud800"}', b'{"text": "\xff"}', b'{"text": ""}',
     b'{"text": " \\n"}', b'{"text": "x"} {}', b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"n": ' + b"9" * 5_000 + b"}", b'{"text": "x", "n": 1e999}'],
)  # fmt: skip
def test_a_body_that_is_not_strict_json_of_the_right_shape_is_malformed(
    alice: httpx.Client, body: bytes
) -> None:
    answer = alice.post(
        "/v1/sessions/ops/api/messages", content=body, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed"), answer.text


def test_too_large_is_said_before_it_is_read(
    shared: Gateway, alice: httpx.Client, token: str
) -> None:
    answer = alice.post("/v1/sessions/ops/api/messages", json={"text": "x" * (300 * 1024)})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    head = f"POST /v1/sessions/ops/api/messages HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    assert status(shared.raw(f"{head}Content-Length: 99999999999\r\n\r\n".encode())) == 413
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    assert (
        status(shared.raw(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 40)) == 413
    )


def test_heads_that_never_end_and_garbage_are_refused_and_the_server_lives(
    shared: Gateway, alice: httpx.Client
) -> None:
    host = f"Host: 127.0.0.1:{shared.port}"
    assert status(get(shared, host, "X: " + "a" * 100_000)) == 400
    assert status(get(shared, host, *[f"X-{n}: 1" for n in range(100)])) == 400
    assert status(shared.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")) == 400
    assert status(
        shared.raw(
            f"GET / HTTP/1.1\r\n{host}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode()
        )
    ) in (200, 400)
    assert alice.get("/v1/sessions").status_code == 200


def test_methods_that_are_not_there_are_reported_with_those_that_are(alice: httpx.Client) -> None:
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        answer = alice.request(method, "/v1/sessions")
        assert (answer.status_code, answer.json()["code"]) == (405, "method")
        assert answer.headers["allow"] == "GET, HEAD" or answer.headers["allow"] == "HEAD, GET"
    assert alice.head("/v1/sessions").status_code == 200
    assert alice.head("/v1/sessions").content == b""
    assert (
        alice.head("/v1/sessions/ops/api/events")
        .headers["content-type"]
        .startswith("text/event-stream")
    )


def test_the_openapi_document_says_which_codes_there_are(alice: httpx.Client) -> None:
    document = alice.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert json.dumps(document).count("operationId") == 35
