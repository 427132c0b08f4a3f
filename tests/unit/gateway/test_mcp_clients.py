"""Names, sessions, versions and users of the proxy's clients."""

import os
import socket
import subprocess
import sys

import pytest

from holdfast.gateway.mcp.clients import (
    client_in_header,
    is_session_of,
    new_session_header,
    session_of_client,
)
from holdfast.gateway.mcp.offer import OUTCOME, ClientOffer
from holdfast.gateway.mcp.peer_user import shares_user
from holdfast.gateway.mcp.rpc import ClientMessage, RpcProblem
from holdfast.gateway.mcp.versions import PREFIX, spoken_by
from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import session_id
from holdfast.session.home.events import TokenAdded, ToolPinned

NOBODY = 65534


def bearer(person: str, audience: str = "personal") -> Bearer:
    added = TokenAdded(
        name="t",
        digest="",
        person=person,
        scopes=("send",),
        audience=audience,
        expires_at=None,
        by="alice",
    )
    return Bearer.of(added)


def test_each_client_person_and_reader_set_has_a_session_of_its_own() -> None:
    names = ["a", "A", "a.b", "a b", "a-b", "x" * 200, "x" * 201, "größe", "\u202e", ""]
    reader_sets = ["personal", "team:ops", "team:dev", "public"]
    owners = [bearer(each, there) for each in ("alice", "bob", "a.b") for there in reader_sets]
    sessions = {session_of_client(owner, name): owner for owner in owners for name in names}
    assert len(sessions) == len(names) * len(owners)
    assert all(session_id(each) == each for each in sessions)
    for session, owner in sessions.items():
        assert [each for each in owners if is_session_of(session, each)] == [owner]


@pytest.mark.parametrize("given", [None, "", "x", "%.0", "_w.0", f"_w.{'0' * 32}", "é.1"])
def test_an_id_that_holds_no_name_names_nobody(given: str | None) -> None:
    assert client_in_header(given) is None


def test_an_id_repeats_the_name() -> None:
    assert client_in_header(new_session_header("größe")) == {"name": "größe"}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"mcp-protocol-version": "2025-11-25"}, -32020),
        ({"mcp-method": "tools/list"}, -32020),
        ({"mcp-name": "danger"}, -32020),
        ({"mcp-name": "=?base64?!!?="}, -32020),
    ],
)
def test_headers_that_disagree_with_the_message_are_refused(
    changed: dict[str, str], code: int
) -> None:
    meta = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {}}
    message = ClientMessage("tools/call", 1, {"name": "größe", "_meta": meta})
    headers = {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "=?base64?Z3LDtsOfZQ==?=",
    }
    assert spoken_by(message, headers.get).is_stateless
    with pytest.raises(RpcProblem) as refused:
        spoken_by(message, {**headers, **changed}.get)
    assert refused.value.code == code


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_says_whose_program_is_at_the_other_end(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        with socket.create_connection(server.getsockname()[:2]) as mine:
            ends = mine.getsockname()[:2], server.getsockname()[:2]
            assert shares_user(*ends)
        if os.geteuid() != 0:
            return
        connect = (
            f"import encodings.idna, os, socket, sys; os.setgid({NOBODY}); os.setuid({NOBODY});"
            "s = socket.create_connection((sys.argv[1], int(sys.argv[2])));"
            "print(*s.getsockname()[:2], flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-I", "-c", connect, host, str(server.getsockname()[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdout is not None
            address, port = other.stdout.readline().split()
            ours = server.getsockname()[:2]
            assert not shares_user((address, int(port)), ours)
            # Another connection from the same port is not this one.
            assert shares_user((address, int(port)), (ours[0], ours[1] + 1))
            other.kill()


def test_a_client_elsewhere_is_not_our_user_and_one_that_cannot_be_found_is() -> None:
    ours = ("127.0.0.1", 2)
    assert not shares_user(("192.0.2.7", 1), ours)
    assert not shares_user(None, ours)
    assert shares_user(("127.0.0.1", 1), ours)
    assert shares_user(("127.0.0.1", 1), None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        # A program that listens on a port is not the client that had it.
        assert shares_user(server.getsockname(), ours)


def test_no_servers_tool_takes_the_name_of_ours() -> None:
    """A client of one server sees its own names, and could not tell which of the two it calls."""
    pins = [
        ToolPinned(
            server="files",
            tool=tool,
            digest="d",
            definition='{"inputSchema":{},"description":"theirs"}',
            instructions="",
            identity="i",
            by="alice",
        )
        for tool in ("read", OUTCOME)
    ]
    offer = ClientOffer(pins, "files")
    assert [each["name"] for each in offer.tools()] == ["read", OUTCOME]
    assert "theirs" not in str(offer.tools()[-1])
    assert offer.pin_of(OUTCOME) is None
    whole = [each["name"] for each in ClientOffer(pins, None).tools()]
    assert whole == [f"files.{OUTCOME}", "files.read", OUTCOME]
