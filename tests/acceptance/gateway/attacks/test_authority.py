"""Tokens, secrets and the sessions and prompts of others: refused, audited, never echoed."""

import json

import httpx
import pytest

from tests.acceptance.gateway.attacks.conftest import get
from tests.acceptance.gateway.conftest import Gateway, status


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


def test_the_gateway_ignores_or_refuses_a_clients_claims_about_itself(shared: Gateway) -> None:
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


def test_a_prompt_of_others_and_an_unknown_prompt_get_the_same_answer(
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
