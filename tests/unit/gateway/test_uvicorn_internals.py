"""
The protocol builds on parts of uvicorn that uvicorn does not promise. Their source is pinned: a
release that changes them fails here first, and a person compares it with `http/protocol.py`.
"""

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from blake3 import blake3
from uvicorn import Server
from uvicorn.protocols.http import httptools_impl

from holdfast.gateway.http.protocol import Protocol
from holdfast.gateway.server.serve import Server as OurServer

READ = {
    "HttpToolsProtocol": (httptools_impl.HttpToolsProtocol, "6e5c4a6014c4e4624d2b2a70159da9e7"),
    "RequestResponseCycle": (
        httptools_impl.RequestResponseCycle,
        "fd36d7ffb03542a920cd04da9951e745",
    ),
    "Server.startup": (Server.startup, "6d8653f19419cdc024ac8a57cfecf852"),
    "Server.capture_signals": (Server.capture_signals, "24456c3616955f0ca7aaacf67901124e"),
}


@pytest.mark.parametrize("name", READ)
def test_the_insides_of_uvicorn_are_those_that_were_read(name: str) -> None:
    part, known = READ[name]
    found = blake3(inspect.getsource(part).encode()).hexdigest()[:32]
    assert found == known, (
        f"uvicorn {version('uvicorn')} changed {name}: read it beside gateway/http/protocol.py and "
        "gateway/server/serve.py, run tests/acceptance/gateway/test_wire.py, then pin it here and "
        "in pyproject.toml"
    )


def test_every_method_that_is_overridden_exists_in_uvicorn() -> None:
    ours = {name for name in vars(Protocol) if not name.startswith("_")}
    assert {name for name in ours if not hasattr(httptools_impl.HttpToolsProtocol, name)} == set()
    assert {"capture_signals", "startup"} <= set(vars(OurServer)) & set(vars(Server))


def test_uvicorn_is_capped_below_the_next_release() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    serve = project["optional-dependencies"]["serve"]
    (wanted,) = (each for each in serve if each.startswith("uvicorn"))
    assert "<" in wanted
