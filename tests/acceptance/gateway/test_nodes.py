"""
Two servers over one database: whichever answers, a session is the same, and one that dies leaves
its work to the other. Real processes, real signals.
"""

import os
import shutil
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from proof.rigs.postgres_cluster import Cluster

from tests.acceptance.gateway.conftest import TAKEN, Gateway, until
from tests.warm import WarmStart

TAKEOVER_SECONDS = 35.0  # promised, for a node that is not heard of any more


class Pair(NamedTuple):
    first: Gateway
    second: Gateway
    database: str

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database, autocommit=True) as owner:
            owner.execute("set search_path to holdfast")
            found = owner.execute(sql, values)
            return found.fetchall() if found.description is not None else []

    def settings(self, more: str) -> None:
        for each in (self.first, self.second):
            each.settings(f'[storage]\nurl = "{self.database}"\n{more}')

    def start(self) -> "Pair":
        self.first.start()
        self.second.start()
        return self


@pytest.fixture
def pair(postgres: Cluster, tmp_path: Path, warm: WarmStart | None) -> Generator[Pair, None, None]:
    name = f"nodes_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(postgres.url(), autocommit=True) as owner:
        owner.execute(f'create database "{name}"')
        made = Pair(
            Gateway(tmp_path / "one", warm), Gateway(tmp_path / "two", warm), postgres.url(name)
        )
        made.settings("")
        made.first.run("storage", "init")
        shutil.copytree(made.first.home / "keys", made.second.home / "keys")
        yield made
        for each in (made.first, made.second):
            each.close()
        owner.execute(f'drop database "{name}" with (force)')


def _records(gateway: Gateway, session: str) -> list[dict[str, Any]]:
    async def read(service: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        journal = await service.runtime.world.store.open(session)
        await journal.load(lambda record: found.append({"type": record.type}), after=0)
        await journal.close()
        return found

    return gateway.elsewhere(read)


def _count(gateway: Gateway, session: str, kind: str) -> int:
    return sum(each["type"] == kind for each in _records(gateway, session))


def test_a_prompt_of_one_node_is_seen_and_answered_at_the_other_and_runs_once(pair: Pair) -> None:
    """Token, list, inbox, stream and answer: the second node knows all of what the first wrote."""
    pair.start()
    token = pair.first.token("alice")
    here, there = pair.first.client(token), pair.second.client(token)
    sent = pair.first.send(here, "ops/api", "run: echo once >> ran.txt")
    assert sent.status_code == 202, sent.text
    prompt = pair.second.waiting(there, "ops/api")
    with pair.first.events(here, "ops/api") as stream:
        answered = pair.second.answer(there, prompt, "approve_once")
        assert answered.json()["result"] in TAKEN, answered.text
        stream.until_record("turn_ended")
    assert _count(pair.second, "ops/api", "tool_started") == 1
    assert there.get("/v1/approvals").json()["approvals"] == []
    listed = there.get("/v1/sessions").json()["sessions"]
    assert [each["session"] for each in listed] == ["ops/api"]


def test_a_token_that_one_node_revokes_is_dead_at_the_other_on_the_next_request(
    pair: Pair,
) -> None:
    pair.start()
    token = pair.first.token("alice", name="laptop")
    client = pair.second.client(token)
    assert client.get("/v1/sessions").status_code == 200
    pair.first.run("tokens", "revoke", "laptop")
    assert client.get("/v1/sessions").status_code == 401


def test_a_one_time_code_of_one_node_is_exchanged_at_the_other_once(pair: Pair) -> None:
    pair.start()
    code = pair.first.code
    assert pair.second.client().post("/v1/codes", json={"code": code}).status_code == 201
    assert pair.first.client().post("/v1/codes", json={"code": code}).status_code == 401


def test_a_message_that_is_sent_to_both_nodes_starts_one_turn(pair: Pair) -> None:
    pair.start()
    token = pair.first.token("alice")
    here, there = pair.first.client(token), pair.second.client(token)
    first = pair.first.send(here, "ops/api", "hello", key="k-1")
    second = pair.second.send(there, "ops/api", "hello", key="k-1")
    assert (first.status_code, second.status_code) == (202, 202), first.text + second.text
    assert first.json()["input"] == second.json()["input"]
    until(lambda: _count(pair.first, "ops/api", "turn_ended") == 1, "its end")


def test_a_stream_goes_on_at_the_other_node_after_its_cursor(pair: Pair) -> None:
    pair.start()
    token = pair.first.token("alice")
    here, there = pair.first.client(token), pair.second.client(token)
    pair.first.send(here, "ops/api", "hello")
    with pair.first.events(here, "ops/api") as stream:
        stream.until_record("turn_ended")
        seqs = [int(ident) for name, ident, _ in stream.heard if name == "record" and ident]
    pair.second.send(there, "ops/api", "hello again")
    with pair.second.events(there, "ops/api", after=seqs[-1]) as stream:
        stream.until_record("turn_ended")
        more = [int(ident) for name, ident, _ in stream.heard if name == "record" and ident]
    assert more[0] > seqs[-1]
    assert more == sorted(set(more))


def _slow(pair: Pair) -> None:
    """A model whose answer takes a while, so that a turn is under way when its node dies."""
    model = pair.first.script({"sleep": 4, "say": "one"}, {"sleep": 0, "say": "two"})
    pair.settings(f'[agents.slow]\nmodel = "{model}"\n')


def _driven_by(pair: Pair) -> set[str]:
    rows = pair.rows(
        "select p.node::text from head h join process p on p.incarnation = h.driver "
        "where h.session = 'ops/api'"
    )
    return {row[0] for row in rows}


def test_a_turn_of_a_killed_node_goes_on_at_the_other(pair: Pair) -> None:
    """kill -9 in the middle of a model call. The machine knows that the process is gone."""
    _slow(pair)
    pair.start()
    token = pair.first.token("alice")
    pair.first.send(pair.first.client(token), "ops/api", "hello")
    until(lambda: _count(pair.second, "ops/api", "model_call_started") == 1, "the model call")
    pair.first.kill()
    until(lambda: _count(pair.second, "ops/api", "turn_ended") == 1, "its end", TAKEOVER_SECONDS)
    assert _count(pair.second, "ops/api", "model_call_lost") == 1


@pytest.mark.beyond_share
def test_a_node_that_is_not_heard_of_loses_its_turn_within_35_seconds_and_writes_nothing_after(
    pair: Pair,
) -> None:
    """SIGSTOP past the lease: the database's clock judges it, and the stopped driver is fenced."""
    _slow(pair)
    pair.start()
    token = pair.first.token("alice")
    pair.first.send(pair.first.client(token), "ops/api", "hello")
    until(lambda: _count(pair.second, "ops/api", "model_call_started") == 1, "the model call")
    owner = _driven_by(pair)
    assert pair.first.process is not None
    pair.first.process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        until(lambda: _driven_by(pair) - owner, "the takeover", TAKEOVER_SECONDS)
        assert time.monotonic() - stopped < TAKEOVER_SECONDS
        until(lambda: _count(pair.second, "ops/api", "turn_ended") == 1, "its end")
    finally:
        pair.first.process.send_signal(signal.SIGCONT)
    before = _records(pair.second, "ops/api")
    pair.second.send(pair.second.client(token), "ops/api", "again")
    until(lambda: _count(pair.second, "ops/api", "turn_ended") == 2, "the second turn")
    assert _records(pair.second, "ops/api")[: len(before)] == before
    assert _count(pair.second, "ops/api", "model_call_lost") == 1


def test_a_reminder_fires_once_whichever_node_is_there(pair: Pair) -> None:
    pair.start()
    pair.first.run("reminders", "add", "ops/api", "look", "--in", "2s")
    until(lambda: _count(pair.second, "ops/api", "turn_ended") == 1, "the reminder")
    assert _count(pair.second, "ops/api", "input_accepted") == 1


def test_a_node_that_waits_alone_hears_of_a_prompt_within_a_second_or_two(pair: Pair) -> None:
    """The inbox of the second node is pushed, not asked for."""
    pair.start()
    token = pair.first.token("alice")
    here, there = pair.first.client(token), pair.second.client(token)
    from tests.acceptance.gateway.conftest import Events

    stream = Events(there, "/v1/approvals/events", {})
    try:
        pair.first.send(here, "ops/api", "run: echo hello")
        stream.until(lambda _, data: "ops/api" in repr(data), 10)
    finally:
        stream.close()
