"""Who decided what, when, why, and its result: complete, filtered, exported, and for nobody else."""

import csv
import io
import json
import os
from typing import Any

import pytest

from tests.acceptance.gateway.conftest import Gateway, until


def decide(gateway: Gateway, client: Any, session: str, text: str, option: str, **more: Any) -> str:
    gateway.send(client, session, text)
    prompt = gateway.waiting(client, session)
    assert gateway.answer(client, prompt, option, **more).status_code == 200
    name: str = prompt["id"]
    return name


def decisions(client: Any, **query: str) -> list[dict[str, Any]]:
    answer = client.get("/v1/decisions", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["decisions"]
    return found


@pytest.fixture
def decided(gateway: Gateway) -> tuple[Gateway, Any, dict[str, str]]:
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    names = {
        "approved": decide(gateway, client, "ops/a", "run: echo =1+1", "approve_once"),
        "denied": decide(gateway, client, "ops/b", "run: rm -rf x", "deny", reason="too much"),
        "written": decide(
            gateway, client, "ops/a", "write_file path=a.txt content=b", "approve_once"
        ),
    }
    gateway.send(client, "ops/c", "run: echo waits")
    gateway.waiting(client, "ops/c")
    until(
        lambda: all(each["outcome"] for each in decisions(client)), "the results of all decisions"
    )
    return gateway, client, names


def test_every_decision_is_listed_with_its_person_reason_and_result(
    decided: tuple[Gateway, Any, dict[str, str]],
) -> None:
    _, client, names = decided
    found = decisions(client)
    assert [each["id"] for each in found] == [
        names["written"],
        names["denied"],
        names["approved"],
    ], "newest first, and no prompt that still waits"
    denied, approved = found[1], found[2]
    told = ("option", "answered_by", "reason", "outcome", "requester", "tool", "way")
    assert [denied[each] for each in told] == [
        "deny", "alice", "too much", "denied", "alice", "shell", "script",
    ]  # fmt: skip
    assert (approved["option"], approved["outcome"]) == ("approve_once", "ok")
    assert "=1+1" in approved["text"]
    assert approved["requested_at"] <= approved["answered_at"] <= approved["ended_at"]


def test_the_result_of_an_approved_job_is_how_the_job_ended(gateway: Gateway) -> None:
    """Its call has a result at once, which says only that the job began."""
    os.mkfifo(gateway.work / "hold")
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    command = "shell command='grep --only-matching held ./hold' background=true"
    name = decide(gateway, client, "ops/job", command, "approve_once")
    (running,) = until(
        lambda: [each for each in decisions(client) if each["job"]], "the job to have begun"
    )
    assert (running["id"], running["outcome"], running["ended_at"]) == (name, None, None)
    (gateway.work / "hold").write_text("held no more")
    (ended,) = until(
        lambda: [each for each in decisions(client) if each["outcome"]], "the job to have ended"
    )
    assert (ended["outcome"], ended["text"].strip()) == ("ok", "held")


def test_decisions_are_filtered_and_paged(decided: tuple[Gateway, Any, dict[str, str]]) -> None:
    _, client, names = decided
    every = decisions(client)
    assert [each["id"] for each in decisions(client, tool="write_file")] == [names["written"]]
    assert [each["id"] for each in decisions(client, session="ops/b")] == [names["denied"]]
    assert decisions(client, person="bob") == []
    assert decisions(client, person="alice") == every
    middle = every[1]["answered_at"]
    assert decisions(client, since=middle) == every[:2]
    assert decisions(client, until=middle) == every[1:]
    assert decisions(client, since="2100-01-01") == []
    first = client.get("/v1/decisions?limit=2").json()
    rest = client.get("/v1/decisions", params={"limit": 2, "after": first["next"]}).json()
    assert first["decisions"] + rest["decisions"] == every
    assert (rest["next"], rest["unreadable"]) == (None, [])
    assert client.get("/v1/decisions?since=soon").json()["code"] == "malformed"


def test_an_export_has_the_same_decisions_and_no_formula(
    decided: tuple[Gateway, Any, dict[str, str]],
) -> None:
    _, client, _ = decided
    every = decisions(client)
    lines = client.get("/v1/decisions.jsonl")
    assert lines.headers["content-type"] == "application/jsonl"
    assert [json.loads(line) for line in lines.text.splitlines()] == every
    table = client.get("/v1/decisions.csv")
    assert table.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [row["id"] for row in rows] == [each["id"] for each in every]
    assert rows[1]["reason"] == "too much"
    assert rows[2]["text"].startswith("'=1+1"), "a spreadsheet would run it"


def test_a_decision_is_shown_to_those_who_could_see_its_prompt(
    decided: tuple[Gateway, Any, dict[str, str]],
) -> None:
    gateway, _, names = decided
    bob = gateway.client(gateway.token("bob"))
    assert decisions(bob) == []
    assert bob.get("/v1/decisions.csv").text.count("\n") == 1
    assert bob.get(f"/v1/approvals/{names['approved']}/outcome").status_code == 404
    narrow = gateway.client(gateway.token("alice", audience="team:ops"))
    assert decisions(narrow) == []
    admin = gateway.client(gateway.token("root", "read,admin"))
    assert len(decisions(admin)) == len(names)
    blind = gateway.client(gateway.token("alice", "send"))
    assert blind.get("/v1/decisions").status_code == 403


def test_the_outcome_of_a_prompt_is_its_answer_and_the_result_of_its_call(
    decided: tuple[Gateway, Any, dict[str, str]],
) -> None:
    _, client, names = decided
    found = client.get(f"/v1/approvals/{names['denied']}/outcome").json()
    assert (found["option"], found["outcome"], found["reason"]) == ("deny", "denied", "too much")


@pytest.mark.about_files
def test_a_session_that_can_not_be_read_is_named(
    decided: tuple[Gateway, Any, dict[str, str]],
) -> None:
    """The list does not claim to be whole."""
    gateway, client, names = decided
    gateway.stop()
    (segment,) = (gateway.home / "sessions" / "ops" / "b").glob("*.jsonl")
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(b"too much", b"too mush"))
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    answer = client.get("/v1/decisions").json()
    assert names["approved"] in [each["id"] for each in answer["decisions"]]
    assert names["denied"] not in [each["id"] for each in answer["decisions"]]
    assert answer["unreadable"] == ["ops/b"]
