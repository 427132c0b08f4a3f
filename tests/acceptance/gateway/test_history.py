"""A long session opens at its end, and every record is verified in front of the reader."""

from typing import Any

import pytest

from tests.acceptance.gateway.conftest import Events, Gateway, until


def idle(client: Any, session: str) -> None:
    until(
        lambda: client.get(f"/v1/sessions/{session}").json()["phase"] == "idle", "the turn to end"
    )


def records(client: Any, session: str, **query: Any) -> list[dict[str, Any]]:
    answer = client.get(f"/v1/sessions/{session}/records", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["records"]
    return found


def test_parts_are_the_records_of_the_stream_in_their_order(gateway: Gateway) -> None:
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    for text in ("what time is it", "list files", "what time is it"):
        gateway.send(client, "ops/a", text)
        idle(client, "ops/a")
    last = client.get("/v1/sessions/ops/a").json()["seq"]
    with gateway.events(client, "ops/a") as stream:
        stream.until(lambda name, data: name == "record" and data["seq"] == last)
    streamed = [data for name, _, data in stream.heard if name == "record"]
    assert records(client, "ops/a", limit=500) == streamed
    end = records(client, "ops/a", limit=4)
    assert end == streamed[-4:]
    before = records(client, "ops/a", limit=4, before=end[0]["seq"])
    assert before == streamed[-8:-4]
    assert records(client, "ops/a", before=1) == []
    wrong = client.get("/v1/sessions/ops/a/records?before=x")
    assert wrong.json()["code"] == "malformed"


def test_parts_hold_only_what_the_token_may_see(gateway: Gateway) -> None:
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    team = gateway.client(gateway.token("alice", audience="team:ops"))
    gateway.send(team, "ops/shared", "what time is it")
    idle(team, "ops/shared")
    gateway.send(alice, "ops/shared", "a private word")
    idle(alice, "ops/shared")
    assert any("a private word" in str(each) for each in records(alice, "ops/shared"))
    seen = records(team, "ops/shared", limit=500)
    assert any(each["type"] == "turn_ended" for each in seen)
    assert not any("a private word" in str(each) for each in seen)
    bob = gateway.client(gateway.token("bob"))
    assert bob.get("/v1/sessions/ops/shared/records").status_code == 404
    assert bob.get("/v1/sessions/ops/shared/verify").status_code == 404


def verified(client: Any, session: str) -> tuple[list[int], dict[str, Any]]:
    stream = Events(client, f"/v1/sessions/{session}/verify", {})
    verdict: dict[str, Any] = stream.until(lambda name, _: name == "verdict")
    stream.close()
    checked = [data["records"] for name, _, data in stream.heard if name == "checked"]
    return [each["seq"] for page in checked for each in page], verdict


@pytest.mark.about_files
def test_every_record_is_verified_and_a_changed_one_is_named(gateway: Gateway) -> None:
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    gateway.send(client, "ops/a", "what time is it")
    idle(client, "ops/a")
    last = client.get("/v1/sessions/ops/a").json()["seq"]
    seqs, verdict = verified(client, "ops/a")
    assert (seqs[-1], verdict) == (last, {"holds": True, "records": last, "detail": ""})
    assert seqs == sorted(set(seqs))
    (segment,) = (gateway.home / "sessions" / "ops" / "a").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b"what time", b"what tame"))
    seqs, verdict = verified(client, "ops/a")
    assert verdict["holds"] is False
    assert verdict["detail"]
    assert last not in seqs


def test_a_job_is_shown_and_stopped_by_who_may(gateway: Gateway) -> None:
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    gateway.send(client, "ops/job", "shell command='sleep 600' background=true")
    gateway.answer(client, gateway.waiting(client), "approve_once")
    jobs = until(lambda: client.get("/v1/sessions/ops/job").json()["jobs"], "the job")
    name = jobs[0]["id"]
    assert client.get(f"/v1/jobs/{name}").json()["state"] == "running"
    bob = gateway.client(gateway.token("bob"))
    reader = gateway.client(gateway.token("alice", "read"))
    assert bob.post(f"/v1/jobs/{name}/cancel").status_code == 404
    assert reader.post(f"/v1/jobs/{name}/cancel").status_code == 403
    assert client.get("/v1/jobs/j-none").status_code == 404
    assert client.post(f"/v1/jobs/{name}/cancel").status_code == 200
    until(lambda: client.get(f"/v1/jobs/{name}").json()["state"] == "ended", "its end")
    assert client.get(f"/v1/jobs/{name}").json()["outcome"] != "ok"


def test_search_finds_a_persons_own_words(gateway: Gateway) -> None:
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    gateway.send(alice, "ops/a", "please remember the zebra")
    idle(alice, "ops/a")
    hits = alice.get("/v1/search?q=zebra").json()["hits"]
    assert [each["session"] for each in hits] == ["ops/a"] * len(hits) != []
    bob = gateway.client(gateway.token("bob"))
    assert bob.get("/v1/search?q=zebra").json()["hits"] == []
    team = gateway.client(gateway.token("alice", audience="team:ops"))
    assert team.get("/v1/search?q=zebra").status_code == 403
    assert alice.get("/v1/search").json()["code"] == "malformed"
