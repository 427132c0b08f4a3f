"""Pins over HTTP: for an admin who may approve, in a way that counts, and for nobody else."""

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway.conftest import Gateway
from tests.adapters.mcp.conftest import ECHO, Rig

pytestmark = pytest.mark.needs_system("bwrap")


@pytest.fixture
def rig(gateway: Gateway, tmp_path: Path) -> Rig:
    """A server whose home is the gateway's."""
    rig = Rig(tmp_path)
    assert rig.home == gateway.home
    gateway.home.chmod(0o700)
    return rig


@pytest.fixture
def gateway_with_server(gateway: Gateway, rig: Rig) -> tuple[Gateway, Rig]:
    gateway.start()
    return gateway, rig


def pin_of(client: Any) -> dict[str, str]:
    (server,) = client.get("/v1/mcp").json()["servers"]
    (tool,) = server["tools"]
    return {"name": tool["name"], "digest": tool["digest"]}


def test_an_admin_reads_all_of_it_and_pins_it(gateway_with_server: tuple[Gateway, Rig]) -> None:
    gateway, rig = gateway_with_server
    client = gateway.client(gateway.token("alice", "read,send,approve,admin"))
    pin = pin_of(client)
    (shown,) = client.get("/v1/mcp/wire").json()["tools"]
    assert (shown["digest"], "Say it again." in shown["text"]) == (pin["digest"], True)
    assert client.post("/v1/pins", json={"tools": [pin]}).json() == {"pinned": ["wire.echo"]}
    gateway.send(client, "ops/a", "wire.echo text=hi")
    prompt = gateway.waiting(client, "ops/a")
    rig.plan(tools=[{**ECHO, "description": "Other."}])
    assert gateway.answer(client, prompt, "approve_once").status_code == 200
    (server,) = client.get("/v1/mcp").json()["servers"]
    assert [each["state"] for each in server["tools"]] == ["changed"]
    assert rig.got() == []


def test_a_digest_that_was_not_shown_pins_nothing(gateway_with_server: tuple[Gateway, Rig]) -> None:
    gateway, rig = gateway_with_server
    client = gateway.client(gateway.token("alice", "read,approve,admin"))
    pin = pin_of(client)
    rig.plan(tools=[{**ECHO, "description": "Other."}])
    refused = client.post("/v1/pins", json={"tools": [pin]})
    assert (refused.status_code, refused.json()["code"]) == (409, "plan_changed")
    assert client.post("/v1/pins/withdraw", json={"tools": ["wire"]}).status_code == 404


@pytest.mark.parametrize("scopes", ["read,send,approve", "read,admin", "read"])
def test_other_tokens_decide_nothing(gateway_with_server: tuple[Gateway, Rig], scopes: str) -> None:
    gateway, _ = gateway_with_server
    pin = pin_of(gateway.client(gateway.token("root", "read,approve,admin")))
    client = gateway.client(gateway.token("alice", scopes))
    for path, body in (("pins", {"tools": [pin]}), ("pins/withdraw", {"tools": ["wire"]})):
        refused = client.post(f"/v1/{path}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "no_authority")
    if "admin" not in scopes:
        assert client.get("/v1/mcp").status_code == 403
        assert client.get("/v1/mcp/wire").status_code == 403


def test_a_way_that_does_not_count_pins_nothing(gateway_with_server: tuple[Gateway, Rig]) -> None:
    gateway, rig = gateway_with_server
    client = gateway.client(gateway.token("alice", "read,approve,admin"))
    pin = pin_of(client)
    rig.settings(policy='[approvals]\nconsent = ["page"]\n')
    refused = client.post("/v1/pins", json={"tools": [pin]})
    assert (refused.status_code, refused.json()["code"]) == (403, "no_authority")


def test_a_server_that_cannot_be_asked_is_named(gateway_with_server: tuple[Gateway, Rig]) -> None:
    gateway, rig = gateway_with_server
    client = gateway.client(gateway.token("alice", "read,approve,admin"))
    rig.plan(raw={"tools/list": "not json"})
    answer = client.get("/v1/mcp/wire")
    assert (answer.status_code, answer.json()["code"]) == (503, "unreachable")
    assert client.get("/v1/mcp/other").status_code == 404
