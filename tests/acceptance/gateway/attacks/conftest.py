"""One server for tests that only look at refusals, and a person who has a session there."""

import httpx
import pytest

from tests.acceptance.gateway.conftest import Gateway


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
