"""Another host, origin or site gets a clear refusal, and every answer keeps browsers strict."""

import re

import httpx
import pytest

from tests.acceptance.gateway.attacks.conftest import get
from tests.acceptance.gateway.conftest import Gateway, status, until


@pytest.mark.parametrize(
    "host",
    [
        "evil.com", "evil.com:{port}", "localhost.:{port}", "localhost.", "0.0.0.0:{port}", "[::ffff:127.0.0.1]:{port}", "127.0.0.1", "localhost",
        "127.0.0.1:1", "127.1:{port}", "2130706433:{port}", "127.0.0.1:{port}@evil.com", "evil.com#127.0.0.1:{port}", "127.0.0.1:{port}.evil.com",
        "", " ", "127.0.0.1:{port}, evil.com",
    ],
)  # fmt: skip
def test_another_host_is_refused_before_anything_is_parsed(shared: Gateway, host: str) -> None:
    for target in ("/healthz", "/", "/v1/sessions", "/assets/app.js"):
        answer = get(shared, f"Host: {host.format(port=shared.port)}", target=target)
        assert status(answer) == 403, answer
        assert b'"wrong_host"' in answer


def test_the_gateway_counts_and_logs_requests_that_the_guard_refuses(
    shared: Gateway, alice: httpx.Client
) -> None:
    """
    An operator whose page stays empty behind a proxy finds the reason there; the name that was asked
    for is in neither.
    """

    def counted() -> int:
        found = re.search(
            r'holdfast_http_requests_total\{method="GET",route="-",status="403"\} (\d+)',
            alice.get("/metrics").text,
        )
        return int(found[1]) if found else 0

    before = counted()
    assert status(get(shared, "Host: agents.elsewhere.example")) == 403
    assert counted() == before + 1
    until(lambda: "GET - 403" in shared.log.read_text(), "the refusal in the log")
    assert "elsewhere" not in shared.log.read_text() + alice.get("/metrics").text


def test_our_own_two_names_are_answered(shared: Gateway) -> None:
    assert status(get(shared, f"Host: 127.0.0.1:{shared.port}")) == 204
    assert status(get(shared, f"Host: localhost:{shared.port}")) == 204


def test_two_hosts_no_host_and_a_whole_address_are_refused(shared: Gateway) -> None:
    mine = f"Host: 127.0.0.1:{shared.port}"
    for answer in (
        get(shared, mine, "Host: evil.com"),
        get(shared, "Host: evil.com", mine),
        get(shared, mine, mine),
        get(shared),
        get(shared, mine, target=f"http://127.0.0.1:{shared.port}/healthz"),
        get(shared, mine, target="http://evil.com/healthz"),
        get(shared, mine, target="//evil.com/healthz"),
        get(shared, mine, target="*", method="OPTIONS"),
    ):
        assert status(answer) == 403, answer


@pytest.mark.parametrize(
    "origin",
    [
        "null", "http://127.0.0.1:1", "http://localhost", "http://localhost.evil.com", "http://localhost.evil.com:{port}", "http://evil.com",
        "https://127.0.0.1:{port}", "http://127.0.0.1:{port}.evil.com", "http://localhost:{port}", "http://127.0.0.1:{port}/", "file://", "",
        "http://127.0.0.1:{port} http://evil.com", "HTTP://127.0.0.1:{port}",
    ],
)  # fmt: skip
def test_another_origin_is_refused_even_with_a_valid_token(
    shared: Gateway, alice: httpx.Client, origin: str
) -> None:
    for method, path in (
        ("GET", "/v1/sessions"),
        ("POST", "/v1/sessions/ops/api/messages"),
        ("GET", "/"),
        ("POST", "/v1/codes"),
    ):
        answer = alice.request(method, path, headers={"origin": origin.format(port=shared.port)})
        assert (answer.status_code, answer.json()["code"]) == (403, "wrong_origin")


def test_our_own_origin_is_answered_without_any_cors(shared: Gateway, alice: httpx.Client) -> None:
    answer = alice.get("/v1/sessions", headers={"origin": shared.url})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "evil", ""])
def test_a_request_that_another_site_started_is_refused(alice: httpx.Client, site: str) -> None:
    assert alice.get("/v1/sessions", headers={"sec-fetch-site": site}).status_code == 403
    assert (
        alice.get("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}).status_code
        == 403
    )
    # A link somewhere may open the page: it has no power of its own.
    assert (
        alice.get("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"}).status_code
        == 200
    )


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/json5",
             "application/json, text/plain", "application/json; charset=utf-16", "text/json"]
)  # fmt: skip
def test_a_body_that_is_not_declared_as_json_is_refused(alice: httpx.Client, kind: str) -> None:
    for path in (
        "/v1/sessions/ops/api/messages",
        "/v1/codes",
        "/v1/approvals/a-aaaaaaaaaaaaaaaaaaaaaaaaaa/answer",
    ):
        answer = alice.post(path, content=b'{"text": "hello"}', headers={"content-type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "media_type")


def test_the_gateway_refuses_a_websocket_upgrade(shared: Gateway, token: str) -> None:
    answer = get(
        shared, f"Host: 127.0.0.1:{shared.port}", f"Authorization: Bearer {token}", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", target="/v1/sessions/ops/api/events",
    )  # fmt: skip
    assert status(answer) == 400
    assert b"101" not in answer.split(b"\r\n", 1)[0]


def test_every_answer_carries_the_headers_that_keep_browsers_strict(
    shared: Gateway, alice: httpx.Client
) -> None:
    for answer in (
        alice.get("/"),
        alice.get("/v1/sessions"),
        alice.get("/nowhere"),
        httpx.get(f"{shared.url}/v1/sessions"),
        alice.get("/healthz"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "set-cookie" not in answer.headers
        assert "server" not in answer.headers
    policy = alice.get("/").headers["content-security-policy"]
    for part in (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "require-trusted-types-for 'script'",
        "base-uri 'none'",
    ):
        assert part in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "name",
    [
        "../app.py",
        "..%2fapp.py",
        "index.html",
        "app.js/",
        "nothing.js",
        ".",
        "..",
        "app.js%00",
        "%2e%2e/tokens.py",
    ],
)
def test_nothing_but_the_pages_own_files_is_served(shared: Gateway, name: str) -> None:
    answer = get(shared, f"Host: 127.0.0.1:{shared.port}", target=f"/assets/{name}")
    assert status(answer) in (400, 401, 404)
    assert b"import" not in answer
