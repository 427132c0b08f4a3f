"""
Every row of the gateway's table of attacks: a clear refusal, nothing logged that should not be,
nothing run.
"""

import asyncio
import contextlib
import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.errors import Refused
from holdfast.gateway.http import protocol
from holdfast.gateway.http.context import GatewaySettings
from holdfast.gateway.http.problems import status_of
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.inbox_stream import Inbox
from holdfast.gateway.streams.prompt_board import Board
from holdfast.gateway.streams.registry import Streams
from holdfast.gateway.streams.session_tail import Follower, SharedTail
from holdfast.ids import SessionId
from holdfast.limits import RECORD_BYTES_MAX
from holdfast.session.home.events import TokenAdded
from tests.acceptance.gateway.conftest import WAIT_SECONDS, Gateway, status, until

IMPATIENT = """
from holdfast.cli.main import main
from holdfast.gateway.http import protocol

protocol.SILENT_SECONDS = 0.5
main()
"""


@pytest.fixture(scope="module")
def token(shared: Gateway) -> str:
    return shared.token("alice")


@pytest.fixture(scope="module")
def alice(shared: Gateway, token: str) -> httpx.Client:
    client = shared.client(token)
    assert shared.send(client, "ops/api", "help").status_code == 202
    return client


def get(shared: Gateway, *headers: str, target: str = "/healthz", method: str = "GET") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *headers, "Connection: close", "", ""]
    return shared.raw("\r\n".join(lines).encode())


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


def test_what_the_guard_refuses_is_counted_and_logged(shared: Gateway, alice: httpx.Client) -> None:
    """
    Whoever wonders why a page stays empty behind a proxy finds it there; the name that was asked
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


def test_nothing_is_upgraded(shared: Gateway, token: str) -> None:
    answer = get(
        shared, f"Host: 127.0.0.1:{shared.port}", f"Authorization: Bearer {token}", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", target="/v1/sessions/ops/api/events",
    )  # fmt: skip
    assert status(answer) == 400
    assert b"101" not in answer.split(b"\r\n", 1)[0]


def test_a_token_counts_only_in_its_header_exactly_and_is_never_logged(
    shared: Gateway, token: str
) -> None:
    host = f"Host: 127.0.0.1:{shared.port}"
    bad = [
        (f"/v1/sessions?token={token}", ()),
        (f"/v1/sessions?access_token={token}", ()),
        ("/v1/sessions", (f"Authorization: Bearer {token.swapcase()}",)),
        ("/v1/sessions", (f"Authorization: Bearer {token.upper()}",)),
        ("/v1/sessions", (f"Authorization: Bearer {token}%0a",)),
        ("/v1/sessions", (f"Authorization: Bearer {token}\\n",)),
        ("/v1/sessions", (f"Authorization: Bearer {token},",)),
        ("/v1/sessions", (f"Authorization: Bearer  {token}",)),
        ("/v1/sessions", (f"Authorization: Basic {token}",)),
        ("/v1/sessions", (f"Authorization: {token}",)),
        ("/v1/sessions", (f"Authorization: Bearer {token}", f"Authorization: Bearer {token}")),
        ("/v1/sessions", (f"Cookie: token={token}",)),
        ("/v1/sessions", (f"X-Api-Key: {token}",)),
        ("/v1/sessions", (f"Authorization: Bearer {token[:-1]}",)),
        ("/v1/sessions", ("Authorization: Bearer hf_" + "a" * 49,)),
        ("/v1/nowhere", ()),
        ("/metrics", ()),
        ("/openapi.json", ()),
    ]
    for target, headers in bad:
        answer = get(shared, host, *headers, target=target)
        assert status(answer) == 401, (target, answer)
        assert b'"unauthorized"' in answer
        assert token.encode() not in answer
    assert token[3:] not in shared.log.read_text()
    assert "token=" not in shared.log.read_text()


def test_errors_and_the_log_never_echo_a_secret(
    shared: Gateway, alice: httpx.Client, token: str
) -> None:
    for answer in (
        alice.post("/v1/sessions/ops/api/messages", json={"text": "x", token: 1}),
        alice.post(
            "/v1/sessions/ops/api/messages",
            content=b'{"text": "x", "%s": 1, "%s": 2}' % (token.encode(), token.encode()),
            headers={"content-type": "application/json"},
        ),
        alice.get(f"/v1/approvals/{token}"),
        alice.get(f"/{token}"),
        alice.get("/v1/sessions", params={"after": token}),
        alice.get("/v1/sessions", params={token: "x"}),
        alice.post("/v1/codes", json={"code": token}),
    ):
        assert answer.status_code >= 400
        assert token not in answer.text
    assert token not in shared.log.read_text()


def test_our_own_token_in_a_message_goes_into_no_journal(
    shared: Gateway, alice: httpx.Client, token: str
) -> None:
    answer = shared.send(alice, "ops/api", f"keep this: {token}")
    assert (answer.status_code, answer.json()["code"]) == (422, "secret")
    for path in shared.home.rglob("*.jsonl"):
        assert token.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    "ident",
    ["..%2f/x", "..%2fetc/passwd", "%00/x", "a/%00", "x" * 300 + "/y", "a/" + "x" * 65, "A/b", "e%CC%81/x", "%C3%A9/x", "../x", "a/..", ".a/b", "-a/b",
     "a b/c", "a%20b/c", "a/b%0a", "a;b/c", "a/b\\c", "a/%2e%2e"]
)  # fmt: skip
def test_a_name_that_is_no_session_id_is_malformed(shared: Gateway, token: str, ident: str) -> None:
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


def test_what_a_client_declares_about_itself_is_ignored_or_refused(shared: Gateway) -> None:
    reader = shared.client(shared.token("rita", "read"))
    declared = {
        "x-scopes": "admin,approve,send",
        "x-person": "alice",
        "x-holdfast-audience": "personal",
        "scopes": "admin",
    }
    answer = reader.post("/v1/sessions/rita/x/messages", json={"text": "hello"}, headers=declared)
    assert (answer.status_code, answer.json()["code"]) == (403, "no_authority")
    assert reader.get("/v1/me", headers=declared).json()["scopes"] == ["read"]
    assert reader.get("/v1/sessions/ops/api", headers=declared).status_code == 404
    sender = shared.client(shared.token("sam", "send"))
    for more in (
        {"scopes": ["admin"]},
        {"person": "alice"},
        {"workspace": "/"},
        {"channel": "local"},
        {"audience": "public"},
        {"model": "demo"},
    ):
        answer = sender.post("/v1/sessions/sam/x/messages", json={"text": "hello", **more})
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


def test_methods_that_are_not_there_are_told_with_those_that_are(alice: httpx.Client) -> None:
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


def test_a_foreign_session_and_an_absent_one_answer_alike(
    shared: Gateway, alice: httpx.Client
) -> None:
    mallory = shared.client(shared.token("mallory"))
    for rest, method in (("", "GET"), ("/events", "GET"), ("/cancel", "POST")):
        for cursor in (
            {},
            {"last-event-id": "0"},
            {"last-event-id": "3"},
            {"last-event-id": "999999"},
            {"last-event-id": "x"},
        ):
            foreign = mallory.request(method, f"/v1/sessions/ops/api{rest}", headers=cursor)
            absent = mallory.request(method, f"/v1/sessions/ops/none{rest}", headers=cursor)
            assert (foreign.status_code, foreign.json()) == (absent.status_code, absent.json())
            assert foreign.status_code == 404
    assert mallory.get("/v1/sessions").json()["sessions"] == []
    assert [each["session"] for each in alice.get("/v1/sessions").json()["sessions"]] == ["ops/api"]


@pytest.mark.usefixtures("alice")
def test_nobody_gets_into_anothers_session_by_writing_to_it(shared: Gateway) -> None:
    mallory = shared.client(shared.token("mallory"))
    answer = shared.send(mallory, "ops/api", "let me in")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown")
    assert mallory.get("/v1/sessions/ops/api").status_code == 404


def test_every_route_that_reads_needs_the_scope_read_streams_too(shared: Gateway) -> None:
    """G2: a person who takes part in the session, with a token that may send and approve only."""
    writer = shared.client(shared.token("alice", "send,approve"))
    assert shared.send(writer, "ops/unread", "help").status_code == 202
    for path in (
        "/v1/sessions",
        "/v1/sessions/ops/unread",
        "/v1/sessions/ops/unread/events",
        "/v1/approvals",
        "/v1/approvals/events",
        f"/v1/approvals/a-{'a' * 26}",
        "/v1/grants",
    ):
        with writer.stream("GET", path) as answer:  # a stream that began would not end
            assert answer.status_code == 403, path
            assert json.loads(answer.read())["code"] == "no_authority"


def test_a_prompt_of_others_is_unknown_and_answering_it_is_refused_and_audited(
    shared: Gateway, alice: httpx.Client
) -> None:
    assert shared.send(alice, "ops/prompted", "run: echo never > never.txt").status_code == 202
    prompt = shared.waiting(alice, "ops/prompted")
    mallory = shared.client(shared.token("mallory"))
    assert mallory.get(f"/v1/approvals/{prompt['id']}").status_code == 404
    assert mallory.get("/v1/approvals").json()["approvals"] == []
    answer = shared.answer(mallory, prompt, "approve_once")
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_approver")
    assert "alice" not in answer.text
    journal = "".join(
        path.read_text()
        for path in (shared.home / "sessions" / "ops" / "prompted").rglob("*.jsonl")
    )
    assert '"answer_refused"' in journal
    assert '"by":"mallory"' in journal
    assert not (shared.work / "never.txt").exists()
    short = alice.post(
        f"/v1/approvals/{prompt['id'][:10]}/answer",
        json={"option": "approve_once", "answer_id": "x", "digest": prompt["digest"]},
    )
    assert (short.status_code, short.json()["code"]) == (404, "unknown")
    wrong = alice.post(
        f"/v1/approvals/{prompt['id']}/answer",
        json={"option": "approve_once", "answer_id": "x", "digest": "0" * 64},
    )
    assert (wrong.status_code, wrong.json()["code"]) == (409, "plan_changed")
    assert shared.send(alice, "ops/prompted", "yes").json()["code"] == "answer_word"
    assert shared.answer(alice, prompt, "deny").status_code == 200


def test_how_a_prompt_of_others_ended_is_told_in_the_words_for_one_that_never_was(
    gateway: Gateway,
) -> None:
    """
    Answered, beyond the token's audience, or in a session that was sealed: 404 in the very words,
    and no name of a person, a session or a file.
    """
    gateway.start()
    alice, team, mallory = (
        gateway.client(gateway.token(*who))
        for who in (("alice",), ("alice", "read,approve", "team:ops"), ("mallory",))
    )
    standing, over, sealed = (
        gateway.ask(f"ops/{name}", f"run: echo {name}") for name in ("standing", "over", "sealed")
    )
    assert gateway.answer(alice, {"id": over.id, "digest": over.digest}, "deny").status_code == 200
    path = min((gateway.home / "sessions" / "ops" / "sealed").glob("*.jsonl"))
    path.write_bytes(path.read_bytes().replace(b"run: echo sealed", b"run: echo SEALED"))
    assert gateway.send(alice, "ops/sealed", "help").status_code == 423

    never = {"id": "a-" + "a" * 26, "digest": "0" * 64}
    words = gateway.answer(mallory, never, "deny").json()
    assert (words["status"], words["code"]) == (404, "unknown")
    for prompt in (over, sealed):
        assert (
            gateway.answer(mallory, {"id": prompt.id, "digest": prompt.digest}, "deny").json()
            == words
        )
        assert mallory.get(f"/v1/approvals/{prompt.id}").json() == words
    for prompt in (standing.id, over.id, sealed.id, never["id"]):
        assert gateway.answer(team, {"id": prompt, "digest": "0" * 64}, "deny").json() == words
    told = [
        gateway.answer(alice, {"id": each.id, "digest": each.digest}, "deny").status_code
        for each in (over, sealed)
    ]
    assert told == [409, 423]


def test_answers_to_prompts_that_are_not_there_are_few(gateway: Gateway) -> None:
    """
    Looking for one reads every journal, so it can't be done a thousand times a second; whoever
    answers what is there never runs out.
    """
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    prompt = gateway.ask("ops/api", "run: echo one")
    for _ in range(40):
        assert (
            gateway.answer(alice, {"id": prompt.id, "digest": "0" * 64}, "deny").status_code == 409
        )
    codes = {
        gateway.answer(alice, {"id": "a-" + "a" * 26, "digest": "0" * 64}, "deny").json()["code"]
        for _ in range(60)
    }
    assert codes == {"unknown", "too_many"}


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


def test_a_silent_connection_is_closed(gateway: Gateway) -> None:
    """
    By a server whose patience is shorter than the usual quarter of a minute, and is otherwise
    itself.
    """
    assert protocol.SILENT_SECONDS == 15.0
    gateway.start(program=[sys.executable, "-c", IMPATIENT])
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=WAIT_SECONDS) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHost: x")
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(10) == b""


def test_a_connection_that_was_answered_once_is_not_kept_open_byte_by_byte(
    gateway: Gateway,
) -> None:
    """
    The first request is no licence: what comes after it, a head or a body that nobody reads, is
    there in time or not at all.
    """
    gateway.start(program=[sys.executable, "-c", IMPATIENT])
    for length in (b"", b"Content-Length: 1000000\r\n"):
        with socket.create_connection(
            ("127.0.0.1", gateway.port), timeout=WAIT_SECONDS
        ) as connection:
            connection.sendall(
                b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n" % (gateway.port, length)
            )
            assert connection.recv(65536).startswith(b"HTTP/1.1 204")
            connection.sendall(b"G")
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(10) == b""


def test_a_connection_is_used_for_many_requests_whatever_their_pieces(shared: Gateway) -> None:
    """
    Whoever sends whole requests is not cut, however often they are broken into pieces on the way.
    """
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % shared.port
    with socket.create_connection(("127.0.0.1", shared.port), timeout=WAIT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(request), 7):
            connection.sendall(request[:cut])
            connection.sendall(request[cut:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 204")


def test_two_tokens_can_not_fill_all_streams() -> None:
    """
    Neither two tokens of one person nor two of two people: others still get one, and each refusal
    says whose bound it is.
    """

    async def story() -> None:
        none: Any = None
        settings = GatewaySettings()
        bounds = (
            settings.streams_per_token_max,
            settings.streams_per_person_max,
            settings.streams_max,
        )
        assert bounds[0] < bounds[1] <= bounds[2] // 4
        streams = Streams(
            none, none, none, streams_max=40, streams_per_token_max=5, streams_per_person_max=10
        )
        tail = SharedTail(SessionId("ops/api"), asyncio.Semaphore(), none)

        def bearer(name: str, person: str) -> Bearer:
            return Bearer.of(
                TokenAdded(
                    name=name,
                    digest=name,
                    person=person,
                    scopes=("read",),
                    audience="personal",
                    expires_at=None,
                    by="a",
                )
            )

        with contextlib.ExitStack() as stack:

            def fill(name: str, person: str) -> tuple[int, str]:
                for count in range(41):
                    try:
                        stack.enter_context(streams.hold(Follower(tail, bearer(name, person), 0)))
                    except Refused as exc:
                        return (count, exc.message) if status_of(exc) == 429 else (-1, exc.code)
                raise AssertionError("no bound")

            assert fill("a1", "alice") == (5, "this token has 5 streams open already")
            assert fill("b1", "bob") == (5, "this token has 5 streams open already")
            assert fill("a2", "alice") == (5, "this token has 5 streams open already")
            assert fill("a3", "alice") == (0, "alice has 10 streams open already")
            assert [fill(f"c{each}", f"carol{each}")[0] for each in range(6)] == [5, 5, 5, 5, 5, 0]
            assert fill("d1", "dan") == (0, "40 streams are open already")
        assert (len(streams), streams._of_token, streams._of_person) == (0, {}, {})

    asyncio.run(story())


def test_more_streams_than_one_token_may_have_are_refused() -> None:
    async def story() -> None:
        none: Any = None
        streams = Streams(
            none, none, none, streams_max=3, streams_per_token_max=2, streams_per_person_max=3
        )
        tail = SharedTail(SessionId("ops/api"), asyncio.Semaphore(), none)
        one, other = (
            Bearer.of(
                TokenAdded(
                    name=name,
                    digest=name,
                    person="alice",
                    scopes=("read",),
                    audience="personal",
                    expires_at=None,
                    by="a",
                )
            )
            for name in "ab"
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(streams.hold(Follower(tail, one, 0)))
            stack.enter_context(
                streams.hold(Inbox(Board(), one, None))
            )  # whatever it tells, it is a stream
            for listener in (Follower(tail, one, 0), Inbox(Board(), one, None)):
                with pytest.raises(Refused) as refused, streams.hold(listener):
                    pass
                assert status_of(refused.value) == 429
            stack.enter_context(streams.hold(Follower(tail, other, 0)))
            with pytest.raises(Refused), streams.hold(Follower(tail, other, 0)):
                pass
        assert len(streams) == 0
        with streams.hold(Follower(tail, one, 0)):
            assert len(streams) == 1

    asyncio.run(story())


def test_a_client_that_never_reads_costs_bounded_memory(gateway: Gateway) -> None:
    """
    Forty never-reading followers of six megabytes of history each: what one holds is bounded by two
    records, not by the history; and others go on.

    One record may be on its way into the socket and one may wait behind it. Unbounded, this would
    be 240 MB.
    """
    blob, turns, stuck_clients = "x" * 200_000, 12, 40
    gateway.settings(
        f'[agents.assistant]\nmodel = "{gateway.script(*[{"say": blob} for _ in range(turns)])}"\ntools = []\n'
    )
    gateway.start()
    token = gateway.token("alice")
    alice = gateway.client(token)
    for number in range(turns):
        assert gateway.send(alice, "ops/long", f"{number} " + "y" * 100_000).status_code == 202
        until(
            lambda: alice.get("/v1/sessions/ops/long").json()["phase"] == "idle", "the turn to end"
        )

    def read_whole() -> None:
        with gateway.events(alice, "ops/long") as reading:
            reading.until_record("turn_ended", turn=f"t{turns}")

    assert gateway.process is not None
    for _ in range(3):
        read_whole()
    before = _resident_bytes(gateway.process.pid)
    stuck = []
    try:
        for _ in range(stuck_clients):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", gateway.port))
            connection.sendall(
                f"GET /v1/sessions/ops/long/events HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            stuck.append(connection)
        until(
            lambda: f"holdfast_streams {stuck_clients}" in alice.get("/metrics").text, "all streams"
        )
        read_whole()
        grown = _resident_bytes(gateway.process.pid) - before
        assert grown < stuck_clients * 2 * RECORD_BYTES_MAX, (
            f"{grown / stuck_clients / 1024:.0f} KiB for each"
        )
    finally:
        for connection in stuck:
            connection.close()
    until(lambda: "holdfast_streams 0" in alice.get("/metrics").text, "their streams to be closed")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_the_openapi_document_says_which_codes_there_are(alice: httpx.Client) -> None:
    document = alice.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert json.dumps(document).count("operationId") == 17
