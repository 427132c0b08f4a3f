"""The contract over HTTP: who may what, what is told, and that the document says the same."""

import asyncio
import secrets
from typing import Any, cast

import httpx
import pytest

from holdfast.errors import (
    Busy,
    CannotDrive,
    Fenced,
    HoldfastError,
    InDoubt,
    NewerVersion,
    NotSaved,
    Refused,
    Superseded,
    Takeover,
    Unusable,
)
from holdfast.gateway.http.asgi import Receive, Scope, Send
from holdfast.gateway.http.problems import problem_of, redacted
from holdfast.gateway.http.request_guard import RequestGuard, allowed_hosts
from holdfast.gateway.http.response import HttpResponse
from holdfast.gateway.server.rate_limit import Rate
from holdfast.gateway.server.tokens import Bearer, TokenAdded, reader_set_of
from holdfast.session.state import Reader
from tests.acceptance.gateway.conftest import TAKEN, Gateway, until


@pytest.fixture(scope="module")
def alice(shared: Gateway) -> httpx.Client:
    return shared.client(shared.token("alice"))


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        *[(Refused("x", code=code), status, code) for code, status in {
            "unknown": 404, "wrong_approver": 403, "no_authority": 403, "already_answered": 409, "plan_changed": 409, "dedup_conflict": 409, "expired": 410,
            "superseded": 410, "voided": 410, "cancelled": 410, "option_unavailable": 422, "sealed": 423, "not_saved": 503, "malformed": 400, "too_large": 413,
            "too_many": 429,
        }.items()],
        (Takeover("edited"), 423, "sealed"), (Busy("x"), 503, "busy"), (NotSaved("x"), 503, "not_saved"), (CannotDrive("x"), 503, "cannot_drive"),
        (NewerVersion("x"), 503, "newer_version"), (InDoubt("x"), 503, "in_doubt"), (Fenced("x"), 503, "fenced"), (Superseded("x"), 410, "superseded"),
        (Unusable("x", code="malformed"), 400, "malformed"),
    ],
)  # fmt: skip
def test_every_error_has_its_status(error: HoldfastError, status: int, code: str) -> None:
    told = problem_of(error)
    assert (told.status, told.code) == (status, code)


def test_a_message_is_taken_once_for_each_key(shared: Gateway, alice: httpx.Client) -> None:
    first = shared.send(alice, "api/dedup", "what time is it", key="k1")
    assert first.status_code == 202
    assert set(first.json()) == {"session", "turn", "input", "seq", "superseded"}
    again = shared.send(alice, "api/dedup", "what time is it", key="k1")
    assert {key: again.json()[key] for key in ("session", "turn", "input")} == {
        key: first.json()[key] for key in ("session", "turn", "input")
    }
    other = shared.send(alice, "api/dedup", "something else", key="k1")
    assert (other.status_code, other.json()["code"]) == (409, "dedup_conflict")
    assert other.headers["content-type"] == "application/problem+json"
    assert shared.send(alice, "api/dedup", "x", key="bad key").status_code == 400


def test_lists_go_on_after_the_last_name(shared: Gateway) -> None:
    lister = shared.client(shared.token("lister"))
    for number in range(5):
        shared.send(lister, f"lists/s{number}", "help")
    first = lister.get("/v1/sessions?limit=2").json()
    second = lister.get(f"/v1/sessions?limit=2&after={first['next']}").json()
    third = lister.get(f"/v1/sessions?limit=2&after={second['next']}").json()
    names = [each["session"] for page in (first, second, third) for each in page["sessions"]]
    assert names == [f"lists/s{number}" for number in range(5)]
    assert third["next"] is None


def test_an_answer_counts_once_and_is_bound_to_what_was_shown(
    shared: Gateway, alice: httpx.Client
) -> None:
    shared.send(alice, "api/answers", "run: echo ran >> answers.txt")
    prompt = shared.waiting(alice, "api/answers")
    assert alice.get(f"/v1/approvals/{prompt['id']}").json() == prompt
    nonsense = shared.answer(alice, prompt, "approve_forever")
    assert (nonsense.status_code, nonsense.json()["code"]) == (422, "option_unavailable")
    unbound = alice.post(
        f"/v1/approvals/{prompt['id']}/answer", json={"option": "approve_once", "answer_id": "a1"}
    )
    assert unbound.status_code == 400
    body = {"option": "approve_once", "answer_id": "a1", "digest": prompt["digest"]}
    first = alice.post(f"/v1/approvals/{prompt['id']}/answer", json=body)
    assert (first.status_code, first.json()["result"] in TAKEN) == (200, True)
    assert set(first.json()) == {"result", "reason", "turn"}
    until(
        lambda: alice.get("/v1/sessions/api/answers").json()["phase"] == "idle", "the turn to end"
    )
    again = alice.post(f"/v1/approvals/{prompt['id']}/answer", json=body)
    assert (again.status_code, again.json()["turn"]["outcome"]) == (200, "completed")
    second = shared.answer(alice, prompt, "approve_once")
    assert (second.status_code, second.json()["code"]) == (409, "already_answered")
    assert (shared.work / "answers.txt").read_text() == "ran\n"


def test_an_edit_is_shown_again_and_a_denial_runs_nothing(
    shared: Gateway, alice: httpx.Client
) -> None:
    shared.send(alice, "api/edits", "run: echo first > edits.txt")
    prompt = shared.waiting(alice, "api/edits")
    assert (
        shared.answer(
            alice,
            prompt,
            "edit",
            arguments={"command": "echo second > edits.txt", "cwd": ".", "timeout_seconds": None},
        ).status_code
        == 200
    )
    shown = until(
        lambda: next(
            (
                each
                for each in alice.get("/v1/approvals").json()["approvals"]
                if each["session"] == "api/edits" and each["id"] != prompt["id"]
            ),
            None,
        ),
        "the new plan",
    )
    assert "echo second" in shown["display"]
    assert shared.answer(alice, shown, "deny", reason="no").status_code == 200
    until(lambda: alice.get("/v1/sessions/api/edits").json()["phase"] == "idle", "the turn to end")
    assert not (shared.work / "edits.txt").exists()


def test_a_grant_is_listed_to_its_giver_too_who_may_take_it_back(gateway: Gateway) -> None:
    """The requester and the giver see the same words; nobody else sees that it is there."""
    gateway.settings(
        '[policy.personal]\nwrite_file = { ask = ["bob"], requester_may_answer = false, remember = "session" }\n'
    )
    gateway.start()
    alice, bob = gateway.client(gateway.token("alice")), gateway.client(gateway.token("bob"))
    gateway.send(alice, "api/grants", "write_file path=notes.txt content=hi")
    prompt = gateway.waiting(bob, "api/grants")
    assert prompt["options"] == ["approve_once", "approve_session", "deny"]
    assert gateway.answer(bob, prompt, "approve_session").status_code == 200
    (grant,) = bob.get("/v1/grants").json()["grants"]
    assert alice.get("/v1/grants").json()["grants"] == [grant]
    assert (
        grant["requester"],
        grant["granted_by"],
        grant["counts"],
        bool(grant["expires_at"]),
    ) == ("alice", "bob", True, True)
    assert "notes.txt" in grant["covers"]
    mallory = gateway.client(gateway.token("mallory"))
    assert mallory.get("/v1/grants").json()["grants"] == []
    assert mallory.delete(f"/v1/grants/{grant['id']}").status_code == 404
    narrow = gateway.client(gateway.token("bob", "read,approve", audience="public"))
    assert narrow.get("/v1/grants").json()["grants"] == []
    assert bob.delete(f"/v1/grants/{grant['id']}").status_code == 204
    assert alice.get("/v1/grants").json()["grants"] == []


def test_a_grant_is_listed_to_its_owner_and_can_be_taken_back(
    shared: Gateway, alice: httpx.Client
) -> None:
    shared.send(alice, "api/grants", "run: true")
    assert (
        shared.answer(alice, shared.waiting(alice, "api/grants"), "approve_session").status_code
        == 200
    )
    (grant,) = alice.get("/v1/grants").json()["grants"]
    assert (grant["tool"], grant["scope"], grant["requester"]) == ("shell", "session", "alice")
    mallory = shared.client(shared.token("mallory"))
    assert mallory.get("/v1/grants").json()["grants"] == []
    assert mallory.delete(f"/v1/grants/{grant['id']}").status_code == 404
    assert (
        shared.client(shared.token("alice", "read")).delete(f"/v1/grants/{grant['id']}").status_code
        == 403
    )
    assert alice.delete(f"/v1/grants/{grant['id']}").status_code == 204
    assert alice.delete(f"/v1/grants/{grant['id']}").status_code == 404
    assert alice.get("/v1/grants").json()["grants"] == []


def test_cancel_is_for_the_requester_and_for_admins(shared: Gateway, alice: httpx.Client) -> None:
    shared.send(alice, "api/cancel", "run: echo never > cancel.txt")
    prompt = shared.waiting(alice, "api/cancel")
    assert (
        shared.client(shared.token("mallory")).post("/v1/sessions/api/cancel/cancel").status_code
        == 404
    )
    done = alice.post("/v1/sessions/api/cancel/cancel", json={"turn": prompt["turn"]})
    assert (done.status_code, [each["outcome"] for each in done.json()["turns"]]) == (
        200,
        ["cancelled"],
    )
    late = shared.answer(alice, prompt, "approve_once")
    assert (late.status_code, late.json()["code"]) == (410, "cancelled")
    shared.send(alice, "api/cancel", "run: echo never > cancel.txt")
    shared.waiting(alice, "api/cancel")
    admin = shared.client(shared.token("root", "admin"))
    assert [
        each["outcome"] for each in admin.post("/v1/sessions/api/cancel/cancel").json()["turns"]
    ] == ["cancelled"]
    assert not (shared.work / "cancel.txt").exists()


def test_a_cancel_without_a_body_needs_none_however_that_is_written(
    shared: Gateway, alice: httpx.Client
) -> None:
    shared.send(alice, "api/bodiless", "help")
    path = "/v1/sessions/api/bodiless/cancel"
    for written in (
        {},
        {"content": b""},
        {"content": iter([b""])},
        {"content": iter([b""]), "headers": {"content-type": "application/json"}},
    ):
        assert alice.post(path, **cast(Any, written)).status_code == 200
    assert alice.post(path, content=b"{}").status_code == 415
    assert (
        alice.post(path, content=b" ", headers={"content-type": "application/json"}).status_code
        == 400
    )


def test_a_named_approver_sees_the_session_answers_and_goes_on_seeing_it(gateway: Gateway) -> None:
    gateway.settings('[policy.personal]\nshell = { ask = ["bob"], requester_may_answer = false }\n')
    gateway.start()
    alice, bob, carol = (gateway.client(gateway.token(name)) for name in ("alice", "bob", "carol"))
    gateway.send(alice, "ops/api", "run: echo ran > x.txt")
    prompt = gateway.waiting(bob)
    assert prompt["may_answer"] == ["bob"]
    assert bob.get("/v1/sessions/ops/api").status_code == 200
    assert carol.get("/v1/sessions/ops/api").status_code == 404
    assert gateway.answer(alice, prompt, "approve_once").json()["code"] == "wrong_approver"
    assert gateway.answer(carol, prompt, "approve_once").json()["code"] == "wrong_approver"
    team_bob = gateway.client(gateway.token("bob", audience="team:ops"))
    foreign, absent = (
        gateway.answer(team_bob, {**prompt, "id": each}, "approve_once")
        for each in (prompt["id"], f"a-{'a' * 26}")
    )
    assert (foreign.status_code, foreign.json()) == (404, absent.json())
    assert (
        gateway.answer(
            gateway.client(gateway.token("bob", "read,send")), prompt, "approve_once"
        ).json()["code"]
        == "no_authority"
    )
    assert gateway.answer(bob, prompt, "approve_once").json()["result"] in TAKEN
    until(lambda: alice.get("/v1/sessions/ops/api").json()["phase"] == "idle", "the turn to end")
    assert bob.get("/v1/sessions/ops/api").status_code == 200
    # A second message takes bob's sight for granted no more than the first did.
    assert [each["session"] for each in bob.get("/v1/sessions").json()["sessions"]] == ["ops/api"]


def test_a_team_shares_its_sessions_and_nobody_elses(gateway: Gateway) -> None:
    gateway.start()
    alice, bob = (
        gateway.client(gateway.token(name, audience="team:ops")) for name in ("alice", "bob")
    )
    sales = gateway.client(gateway.token("carol", audience="team:sales"))
    assert gateway.send(alice, "team/room", "what time is it").status_code == 202
    assert bob.get("/v1/sessions/team/room").status_code == 404
    assert gateway.send(sales, "team/room", "hello").status_code == 404
    assert gateway.send(bob, "team/room", "what time is it").status_code == 202
    assert bob.get("/v1/sessions/team/room").status_code == 200
    assert gateway.client(gateway.token("carol")).get("/v1/sessions/team/room").status_code == 404
    assert (
        gateway.client(gateway.token("root", "admin")).get("/v1/sessions/team/room").status_code
        == 200
    )


@pytest.mark.about_files
def test_a_sealed_session_is_reported_as_sealed_and_can_still_be_read(gateway: Gateway) -> None:
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    gateway.send(alice, "ops/api", "what time is it")
    until(lambda: alice.get("/v1/sessions/ops/api").json()["phase"] == "idle", "the turn to end")
    gateway.stop()
    (segment,) = (gateway.home / "sessions" / "ops" / "api").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b"what time", b"what tame"))
    gateway.start(gateway.port)
    answer = gateway.send(alice, "ops/api", "again")
    assert (answer.status_code, answer.json()["code"]) in ((423, "sealed"), (404, "unknown"))
    admin = gateway.client(gateway.token("root", "admin,send"))
    assert gateway.send(admin, "ops/api", "again").json()["code"] == "sealed"
    shown = admin.get("/v1/sessions/ops/api").json()
    assert (shown["phase"], shown["sealed"]["code"]) == ("sealed", "broken")


def test_only_an_admin_sees_the_paths_of_journal_files(
    shared: Gateway, alice: httpx.Client
) -> None:
    shared.send(alice, "api/files", "help")
    assert alice.get("/v1/sessions/api/files").json()["journal"] == []
    assert (
        shared.client(shared.token("root", "admin")).get("/v1/sessions/api/files").json()["journal"]
        != []
    )


def test_health_needs_no_token_and_numbers_do(shared: Gateway, alice: httpx.Client) -> None:
    for path in ("/healthz", "/readyz"):
        answer = httpx.get(f"{shared.url}{path}")
        assert (answer.status_code, answer.content) == (204, b"")
    assert httpx.get(f"{shared.url}/metrics").status_code == 401
    text = alice.get("/metrics").text
    assert "holdfast_http_requests_total" in text
    assert "holdfast_streams 0" in text
    assert "alice" not in text


def test_a_code_is_exchanged_once(gateway: Gateway) -> None:
    """Also after somebody has guessed until no more guesses are taken: that keeps nobody out."""
    gateway.start()
    stranger = gateway.client()
    for _ in range(
        400
    ):  # thirty at once and one in two seconds; a slow machine needs more tries to be too fast
        answer = stranger.post("/v1/codes", json={"code": secrets.token_urlsafe(32)})
        if answer.status_code == 429:
            break
    assert answer.status_code == 429
    given = stranger.post("/v1/codes", json={"code": gateway.code})
    assert given.status_code == 201
    assert given.json()["person"] == gateway.said["person"]
    assert (
        gateway.client(given.json()["token"]).get("/v1/me").json()["person"]
        == gateway.said["person"]
    )
    again = stranger.post("/v1/codes", json={"code": gateway.code})
    assert (again.status_code in {401, 429}, "token" in again.json()) == (True, False)
    journal = "".join(path.read_text() for path in gateway.home.rglob("*.jsonl"))
    assert given.json()["token"] not in journal


def test_rates_refill_over_time() -> None:
    now = 0.0
    rate = Rate(per_second=10, burst=2, now=lambda: now)
    assert [rate.take("a") for _ in range(3)] == [True, True, False]
    assert rate.take("b")
    now = 0.1
    assert [rate.take("a") for _ in range(2)] == [True, False]


def test_tokens_are_kept_as_hashes_and_names_are_used_once(gateway: Gateway) -> None:
    token = gateway.run(
        "tokens", "add", "laptop", "--as", "alice", "--scopes", "read,send,approve"
    )["token"]
    assert (
        gateway.run("tokens", "add", "laptop", "--as", "bob", "--scopes", "read", check=False)[
            "error"
        ]["code"]
        == "exists"
    )
    assert (
        gateway.run("tokens", "add", "x", "--as", "bob", "--scopes", "root", check=False)["error"][
            "code"
        ]
        == "malformed"
    )
    assert (
        gateway.run(
            "tokens",
            "add",
            "x",
            "--as",
            "bob",
            "--scopes",
            "read",
            "--audience",
            "all",
            check=False,
        )["error"]["code"]
        == "malformed"
    )
    for alike in ("ali\u200bce", "Zoe\u0308"):  # as everywhere: no name that looks like another's
        assert (
            gateway.run("tokens", "add", "x", "--as", alike, "--scopes", "read", check=False)[
                "error"
            ]["code"]
            == "malformed"
        )
    (listed,) = gateway.run("tokens", "list")["tokens"]
    assert listed == {
        "name": "laptop",
        "person": "alice",
        "scopes": ["read", "send", "approve"],
        "audience": "personal",
        "expires_at": None,
        "expired": False,
    }
    assert all(
        token.encode() not in path.read_bytes()
        for path in gateway.home.rglob("*")
        if path.is_file()
    )
    gateway.run("tokens", "revoke", "laptop")
    assert gateway.run("tokens", "list")["tokens"] == []


def bearer(audience: str, *scopes: str) -> Bearer:
    return Bearer.of(
        TokenAdded(
            name="n",
            digest="d",
            person="alice",
            scopes=scopes or ("read",),
            audience=audience,
            expires_at=None,
            by="a",
        )
    )


@pytest.mark.parametrize(
    ("token", "said_in", "reads"),
    [
        ("personal", ("personal", "personal:alice"), True), ("personal", ("team", "team:ops"), True), ("personal", ("public", "public"), True),
        ("team:ops", ("personal", "personal:alice"), False), ("team:ops", ("team", "team:ops"), True), ("team:ops", ("team", "team:sales"), False),
        ("team:ops", ("public", "public"), True), ("public", ("public", "public"), True), ("public", ("team", "team:ops"), False),
        ("public", ("personal", "personal:alice"), False), ("personal", (None, None), False), ("team:ops", ("", ""), False), ("personal", ("secret", "x"), False),
    ],
)  # fmt: skip
def test_a_token_reads_within_its_audience(
    token: str, said_in: tuple[str | None, str | None], reads: bool
) -> None:
    assert bearer(token).reads(*said_in) is reads
    assert bearer(token, "admin").reads(*said_in)


def test_only_a_reader_set_that_all_of_a_session_belongs_to_may_be_joined() -> None:
    ops, sales, mine = (
        Reader("bob", "team", "team:ops"),
        Reader("bob", "team", "team:sales"),
        Reader("bob", "personal", "personal:bob"),
    )
    assert bearer("team:ops").may_join([ops])
    assert not bearer("team:ops").may_join([ops, sales])
    assert not bearer("team:ops").may_join([ops, mine])
    assert not bearer("team:ops").may_join([])
    assert not bearer("personal").may_join([mine])
    assert reader_set_of("team", "x")[1] == "team:home"


def test_only_exact_names_are_hosts() -> None:
    assert allowed_hosts("::1", 1) == {"[::1]:1", "localhost:1"}
    assert allowed_hosts("10.0.0.1", 1, ["box.lan:443"]) == {"10.0.0.1:1", "box.lan:443"}


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("box.lan", "https://box.lan", 204), ("box.lan", "http://box.lan", 204), ("box.lan", "https://evil.com", 403), ("127.0.0.1:1", "https://127.0.0.1:1", 403),
        ("127.0.0.1:1", "http://127.0.0.1:1", 204), ("127.0.0.1:1", "https://box.lan", 403), ("evil.com", "https://evil.com", 403),
    ],
)  # fmt: skip
def test_a_name_of_the_proxy_in_front_is_ours_by_https_too(
    host: str, origin: str, status: int
) -> None:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await HttpResponse(status=204)(send)

    guard = RequestGuard(inner, allowed_hosts("127.0.0.1", 1, ["box.lan"]), proxied=["box.lan"])

    async def ask() -> int:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=guard), base_url=f"http://{host}"
        ) as client:
            return (await client.get("/healthz", headers={"origin": origin})).status_code

    assert asyncio.run(ask()) == status


def test_our_own_words_are_not_struck_out(shared: Gateway) -> None:
    """A route that is open to everybody takes nothing for a token."""
    assert "[redacted]" not in httpx.get(f"{shared.url}/v1/me").text


def test_redaction_removes_bearer_tokens_and_known_secrets() -> None:
    assert redacted("Bearer abc, hf_" + "a" * 43, ("abc",)) == "[redacted] [redacted]"
    assert redacted("my password hunter22", ("hunter22",)) == "my password [secret]"
